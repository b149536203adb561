//! Which web pages may read answers: Cross-Origin Resource Sharing, <https://fetch.spec.whatwg.org/>.
//!
//! Credentials mode is not granted: API keys travel in fields that the page sets itself, and cookies
//! mean nothing to inference servers. So a page of any origin can do with an API key what any program
//! can, and nothing in a user's name.

use std::{fmt, str::FromStr};

use super::head::{Fields, list_tokens};

/// How long a browser may keep the answer to a preflight, seconds.
const MAX_AGE: &str = "600";
/// Longest list of field names that is granted, bytes.
const MAX_FIELDS: usize = 4096;

/// An origin of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// Why text is no [`Origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no origin: write `scheme://host` or `scheme://host:port` in lower case, without a path, as \
     browsers send it; or \"*\" for all"
)]
pub struct OriginError;

impl Origin {
    fn is_any(&self) -> bool {
        self.0 == "*"
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let ok = text == "*"
            || text.split_once("://").is_some_and(|(scheme, host)| {
                let scheme_byte =
                    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
                let host_byte = |b: u8| {
                    b.is_ascii_graphic() && !b.is_ascii_uppercase() && !b"/?#@,*\\\"".contains(&b)
                };
                scheme.starts_with(|c: char| c.is_ascii_lowercase())
                    && scheme.bytes().all(scheme_byte)
                    && !host.is_empty()
                    && host.bytes().all(host_byte)
            });
        ok.then(|| Self(text.to_owned())).ok_or(OriginError)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an answer says about who may read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cors<'c> {
    /// Nothing, or whatever the instance says.
    #[default]
    Off,
    /// What the gateway says, instead of the instance.
    On {
        /// The origin that may read it, or `*`.
        allowed: Option<&'c str>,
        /// Whether that is another answer for another origin.
        varies: bool,
    },
}

impl<'c> Cors<'c> {
    /// For a request with these fields, where pages of `origins` may read answers. Without any, that
    /// is up to the instances.
    pub fn of(origins: &'c [Origin], fields: Fields<'_>) -> Self {
        Self::for_origin(origins, fields.only("origin"))
    }

    /// As [`Cors::of`], for a request that sent this origin.
    pub fn for_origin(origins: &'c [Origin], sent: Option<&[u8]>) -> Self {
        if origins.is_empty() {
            return Self::Off;
        }
        let any = origins.iter().find(|origin| origin.is_any());
        let same = |origin: &&Origin| sent.is_some_and(|sent| sent == origin.0.as_bytes());
        let allowed = any.or_else(|| origins.iter().find(same));
        Self::On { allowed: allowed.map(|origin| &*origin.0), varies: any.is_none() }
    }

    /// Whether a field of this name is the gateway's to write.
    pub(super) fn owns(self, name: &[u8]) -> bool {
        let prefix = b"access-control-";
        self != Self::Off
            && name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }

    /// Takes note of an instance's field that goes on: where it says already that the answer varies by
    /// origin, the gateway need not.
    pub(super) fn note_vary(&mut self, name: &[u8], value: &[u8]) {
        if let Self::On { varies, .. } = self
            && *varies
            && name.eq_ignore_ascii_case(b"vary")
        {
            let mut tokens = list_tokens(value);
            *varies = !tokens.any(|token| token == b"*" || token.eq_ignore_ascii_case(b"origin"));
        }
    }

    /// Hands the fields of an answer to `field`.
    pub(super) fn each(self, mut field: impl FnMut(&str, &[u8])) {
        let Self::On { allowed, varies } = self else { return };
        if let Some(origin) = allowed {
            field("Access-Control-Allow-Origin", origin.as_bytes());
            // Request ids, rate limits, reasons: without credentials, this is all of them.
            field("Access-Control-Expose-Headers", b"*");
        }
        if varies {
            field("Vary", b"Origin");
        }
    }
}

/// The fields of the answer to a preflight, besides those of every answer: that `methods` may be used, with
/// the fields that were `asked` for, if they are a list of names.
pub fn preflight<'p>(methods: &'p str, asked: Option<&'p [u8]>) -> Vec<(&'static str, &'p [u8])> {
    let mut fields: Vec<(&'static str, &[u8])> = vec![
        ("Access-Control-Allow-Methods", methods.as_bytes()),
        ("Access-Control-Max-Age", MAX_AGE.as_bytes()),
        ("Vary", b"Access-Control-Request-Method, Access-Control-Request-Headers"),
    ];
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~, ".contains(b);
    let names = asked.filter(|names| names.len() <= MAX_FIELDS && names.iter().all(is_name));
    fields.extend(names.map(|names| ("Access-Control-Allow-Headers", names)));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Limits, parse_request};

    fn origins(list: &[&str]) -> Vec<Origin> {
        list.iter().map(|text| text.parse().expect("an origin")).collect()
    }

    fn cors<'c>(origins: &'c [Origin], lines: &str) -> Cors<'c> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let head = parse_request(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        Cors::of(origins, head.headers(text.as_bytes()))
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        for good in [
            "*",
            "https://app.example",
            "http://localhost:3000",
            "tauri://localhost",
            "http://[::1]:8080",
        ] {
            assert_eq!(
                good.parse::<Origin>().map(|origin| origin.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in [
            "",
            "app.example",
            "https://",
            "https://App.example",
            "HTTPS://app.example",
            "https://a/",
            "https://a/b",
            "https://a, https://b",
            "https://*.example",
            "null",
            "https://u@a",
            "://a",
            "https://a b",
            "https://a\"",
            "1http://a",
        ] {
            assert_eq!(bad.parse::<Origin>(), Err(OriginError), "{bad}");
        }
    }

    #[test]
    fn an_origin_is_allowed_by_its_exact_bytes() {
        let list = origins(&["https://app.example", "http://localhost:3000"]);
        let of = |origin: &str| match cors(&list, &format!("Origin: {origin}\r\n")) {
            Cors::On { allowed, varies: true } => allowed.map(str::to_owned),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("https://app.example").as_deref(), Some("https://app.example"));
        assert_eq!(of("http://localhost:3000").as_deref(), Some("http://localhost:3000"));
        for other in [
            "https://app.example.evil",
            "https://evil-app.example",
            "http://app.example",
            "null",
            "*",
            "https://app.example:443",
            "https://APP.example",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(cors(&list, ""), Cors::On { allowed: None, varies: true });
        let twice = "Origin: https://app.example\r\nOrigin: https://app.example\r\n";
        assert_eq!(cors(&list, twice), Cors::On { allowed: None, varies: true });
        assert_eq!(cors(&[], "Origin: https://app.example\r\n"), Cors::Off);
    }

    #[test]
    fn all_origins() {
        let list = origins(&["https://app.example", "*"]);
        for lines in ["", "Origin: null\r\n", "Origin: https://app.example\r\n"] {
            assert_eq!(cors(&list, lines), Cors::On { allowed: Some("*"), varies: false });
        }
    }

    #[test]
    fn a_preflight_grants_what_is_a_list_of_names() {
        let has = |asked: Option<&[u8]>| {
            preflight("POST, OPTIONS", asked)
                .iter()
                .any(|(name, _)| name.ends_with("Allow-Headers"))
        };
        assert!(has(Some(b"authorization, content-type,x-stainless-os")));
        let long = vec![b'x'; MAX_FIELDS + 1];
        for bad in [None, Some(&b"a;b"[..]), Some(b"a\"b"), Some(b"a:b"), Some(&*long)] {
            assert!(!has(bad), "{bad:?}");
        }
    }
}
