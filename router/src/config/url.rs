//! The address of an instance as people write it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Why a text is not the URL of an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// TLS towards instances is not supported.
    #[error(
        "`{0}` asks for TLS, which the gateway does not speak to instances: write http://, and \
         keep the path to the instance on a private network"
    )]
    Https(String),
    /// Not `http://`.
    #[error("`{0}` does not begin with http://: write http://host:port")]
    Scheme(String),
    /// There is more than a host and a port.
    #[error(
        "`{url}` has {what}: write http://host:port alone, requests keep their own paths and \
         credentials"
    )]
    Extra {
        /// The text.
        url: String,
        /// What is too much.
        what: &'static str,
    },
    /// No host name or address.
    #[error("`{0}` has no valid host: write a name, an IPv4 address, or an IPv6 address in [ ]")]
    Host(String),
    /// Not a port.
    #[error("`{0}` has no valid port: write a number from 1 to 65535")]
    Port(String),
}

/// `http://host[:port]` of an instance, in normal form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InstanceUrl {
    /// `http://host:port`: lower case, port always written, IP addresses in their shortest form.
    text: String,
    /// The literal address, when the host is one.
    literal: Option<IpAddr>,
    port: u16,
}

const SCHEME: &str = "http://";

impl InstanceUrl {
    /// Reads and normalises a URL. The port defaults to 80.
    ///
    /// # Errors
    /// When the text is no such URL, see [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let scheme = |s: &str| text.get(..s.len()).is_some_and(|t| t.eq_ignore_ascii_case(s));
        if scheme("https://") {
            return Err(UrlError::Https(text.into()));
        }
        if !scheme(SCHEME) {
            return Err(UrlError::Scheme(text.into()));
        }
        let rest = &text[SCHEME.len()..];
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let extra = |what| UrlError::Extra { url: text.into(), what };
        match rest.bytes().find(|b| matches!(b, b'/' | b'?' | b'#' | b'@')) {
            Some(b'@') => return Err(extra("a user name")),
            Some(b'/') => return Err(extra("a path")),
            Some(_) => return Err(extra("a query or fragment")),
            None => {}
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(v6) => {
                let (host, after) =
                    v6.split_once(']').ok_or_else(|| UrlError::Host(text.into()))?;
                let port = match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or_else(|| UrlError::Host(text.into()))?),
                };
                (Host::V6(host.parse().map_err(|_| UrlError::Host(text.into()))?), port)
            }
            None => {
                let (host, port) = match rest.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (rest, None),
                };
                (Host::parse(host).ok_or_else(|| UrlError::Host(text.into()))?, port)
            }
        };
        let port = match port {
            None => 80,
            // `parse` would take a sign.
            Some(p) if !p.bytes().all(|b| b.is_ascii_digit()) => 0,
            Some(p) => p.parse().unwrap_or(0),
        };
        if port == 0 {
            return Err(UrlError::Port(text.into()));
        }
        let literal = host.literal();
        Ok(Self { text: format!("{SCHEME}{host}:{port}"), literal, port })
    }

    /// The same host at a port so much higher; `None` beyond the last one.
    pub fn at_port_above(&self, offset: u32) -> Option<Self> {
        let port = u16::try_from(u32::from(self.port).checked_add(offset)?).ok()?;
        let host = self.text.rsplit_once(':')?.0;
        Some(Self { text: format!("{host}:{port}"), literal: self.literal, port })
    }

    /// The normal form, `http://host:port`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host:port`, as in a Host field.
    pub fn authority(&self) -> &str {
        &self.text[SCHEME.len()..]
    }

    /// The address, when the host is an IP address and needs no look-up.
    pub fn literal(&self) -> Option<SocketAddr> {
        self.literal.map(|ip| SocketAddr::new(ip, self.port))
    }
}

impl std::str::FromStr for InstanceUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl fmt::Display for InstanceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for InstanceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

enum Host {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(String),
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(v4) = text.parse() {
            return Some(Self::V4(v4));
        }
        // One final dot marks a fully qualified name, and is kept: it turns search domains off.
        let labels = text.strip_suffix('.').unwrap_or(text);
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // All-numeric last label: resolvers would take `1.2.3` or `256.1.1.1` for something else.
        let numeric = labels.rsplit('.').next()?.bytes().all(|b| b.is_ascii_digit());
        let ok = labels.len() <= 253 && !numeric && labels.split('.').all(label);
        ok.then(|| Self::Name(text.to_ascii_lowercase()))
    }

    fn literal(&self) -> Option<IpAddr> {
        match self {
            Self::V4(ip) => Some((*ip).into()),
            Self::V6(ip) => Some((*ip).into()),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.fmt(f),
            Self::V6(ip) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_have_one_normal_form() {
        let normal = |text: &str| {
            let url = InstanceUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            (url.as_str().to_owned(), url.authority().to_owned(), url.literal())
        };
        let of = |authority: &str| {
            (format!("http://{authority}"), authority.to_owned(), authority.parse().ok())
        };
        assert_eq!(normal("http://10.0.0.11:8000"), of("10.0.0.11:8000"));
        assert_eq!(normal("http://10.0.0.11:8000/"), of("10.0.0.11:8000"));
        assert_eq!(normal("HTTP://GPU-1.Example:08000"), of("gpu-1.example:8000"));
        assert_eq!(normal("http://gpu_1"), of("gpu_1:80"));
        assert_eq!(normal("http://gpu.example.:80"), of("gpu.example.:80"));
        assert_eq!(normal("http://[::1]:8000"), of("[::1]:8000"));
        assert_eq!(normal("http://[2001:DB8:0:0::0001]"), of("[2001:db8::1]:80"));
        assert_eq!(normal("http://localhost:8000").2, None);
    }

    #[test]
    fn what_is_no_instance_url_is_refused_with_advice() {
        let advice = |text: &str| InstanceUrl::parse(text).expect_err(text).to_string();
        assert!(advice("https://gpu:8000").contains("TLS"));
        assert!(advice("HTTPS://gpu").contains("TLS"));
        for text in ["", "gpu:8000", "ftp://gpu", "http:/gpu", "htt\u{e9}p://x", "10.0.0.1:80"] {
            assert!(advice(text).contains("does not begin with http://"), "{text}");
        }
        assert!(advice("http://gpu:8000/v1").contains("has a path"));
        assert!(advice("http://gpu//").contains("has a path"));
        assert!(advice("http://gpu?x").contains("a query"));
        assert!(advice("http://gpu#x").contains("fragment"));
        assert!(advice("http://user:secret@gpu").contains("a user name"));
        for host in [
            "",
            ":80",
            "a b",
            "-gpu",
            "gpu-",
            "a..b",
            ".",
            "1.2.3",
            "256.1.1.1",
            "10.0.0.1.",
            "[::1",
            "::1",
            "[::1]x",
            "[gpu]",
            "[fe80::1%eth0]",
            "g\u{e9}",
            "a\r\nb",
        ] {
            let error = InstanceUrl::parse(&format!("http://{host}")).expect_err(host);
            assert!(matches!(error, UrlError::Host(_) | UrlError::Port(_)), "{host}: {error}");
        }
        for port in ["", "0", "65536", "+80", "-1", "8e1", "80 ", "80:80"] {
            let error = InstanceUrl::parse(&format!("http://gpu:{port}")).expect_err(port);
            assert!(matches!(error, UrlError::Port(_)), "{port}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_normal_forms_are_stable(text in "(http://)?[ -~\\[\\]:]{0,40}") {
            if let Ok(url) = InstanceUrl::parse(&text) {
                prop_assert_eq!(InstanceUrl::parse(url.as_str()), Ok(url.clone()));
                prop_assert!(url.authority().bytes().all(|b| b.is_ascii_graphic()));
            }
        }
    }
}
