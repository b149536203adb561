//! Request targets (RFC 9112 section 3.2) and the host they are meant for.

use super::{Method, Reject};

/// A request target, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The host and port of an absolute-form target.
    pub(super) authority: Option<&'a [u8]>,
    /// The target in origin form, or `*`.
    pub(super) origin: &'a [u8],
}

const BAD: Reject = Reject::bad(
    "target",
    "The request target is neither a path, nor an absolute http URL, nor '*' with OPTIONS.",
);
const BAD_BYTES: Reject = Reject::bad(
    "target",
    "The request target has a byte that must be percent-encoded (control, space, '#' or non-ASCII).",
);

/// Takes a target apart.
pub(super) fn parts(method: Method, target: &[u8]) -> Result<Parts<'_>, Reject> {
    // RFC 3986 allows less; the rest is common in the wild and harmless here, for the bytes go on
    // unchanged. A fragment is never sent, and non-ASCII bytes are read differently by servers.
    if !target.iter().all(|&b| matches!(b, 0x21..=0x7e) && b != b'#') {
        return Err(BAD_BYTES);
    }
    match target {
        [b'/', ..] => Ok(Parts { authority: None, origin: target }),
        b"*" if method == Method::Options => Ok(Parts { authority: None, origin: target }),
        _ => absolute(method, target),
    }
}

fn absolute(method: Method, target: &[u8]) -> Result<Parts<'_>, Reject> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|s| target.get(..s.len()).is_some_and(|t| t.eq_ignore_ascii_case(s)))
        .ok_or(BAD)?;
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, origin) = rest.split_at(end);
    if !is_authority(authority) {
        return Err(Reject::bad("target", "The URL in the request line names no valid host."));
    }
    let origin = match origin {
        // RFC 9112 section 3.2.4: the last proxy turns the bare authority back into '*'.
        b"" if method == Method::Options => b"*",
        b"" => b"/",
        // `http://host?query` would have to be given a '/', which its bytes do not hold.
        [b'?', ..] => return Err(BAD),
        path => path,
    };
    Ok(Parts { authority: Some(authority), origin })
}

/// Whether these bytes are `host` or `host:port` (RFC 3986 section 3.2 without user information, and
/// without the comma, by which a list of hosts would look like one).
pub(crate) fn is_authority(value: &[u8]) -> bool {
    let (host, after) = if value.first() == Some(&b'[') {
        let Some(close) = memchr::memchr(b']', value) else { return false };
        let (literal, after) = value.split_at(close + 1);
        let inner = &literal[1..close];
        if inner.is_empty()
            || !inner.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        {
            return false;
        }
        (literal, after)
    } else {
        let colon = memchr::memchr(b':', value).unwrap_or(value.len());
        let (name, after) = value.split_at(colon);
        if !name.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(b)) {
            return false;
        }
        (name, after)
    };
    let port_fits = match after {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    !host.is_empty() && port_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let origin = |method, target| parts(method, target).map(|p| (p.authority, p.origin));
        assert_eq!(origin(Method::Get, b"/a?b=c"), Ok((None, &b"/a?b=c"[..])));
        assert_eq!(origin(Method::Get, b"//a"), Ok((None, &b"//a"[..])));
        assert_eq!(origin(Method::Options, b"*"), Ok((None, &b"*"[..])));
        assert_eq!(origin(Method::Get, b"HTTP://h:80/p?q"), Ok((Some(&b"h:80"[..]), &b"/p?q"[..])));
        assert_eq!(origin(Method::Get, b"http://h"), Ok((Some(&b"h"[..]), &b"/"[..])));
        assert_eq!(origin(Method::Options, b"http://h"), Ok((Some(&b"h"[..]), &b"*"[..])));
        for bad in [
            &b"*"[..],
            b"",
            b"a",
            b"h:80",
            b"ftp://h/",
            b"http://",
            b"http:///p",
            b"http://u@h/",
            b"http://h?q",
            b"/a#b",
            b"/\xc3\xa9",
            b"/a\x7f",
            b"http://h:x/",
            b"http://[::1/",
        ] {
            assert!(parts(Method::Get, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn authorities() {
        for good in [&b"a"[..], b"a:1", b"a:", b"1.2.3.4:8080", b"[::1]", b"[::1]:80", b"a_b.c-d"] {
            assert!(is_authority(good), "{good:?}");
        }
        for bad in [
            &b""[..],
            b":80",
            b"a b",
            b"a,b",
            b"a/b",
            b"u@a",
            b"a:b",
            b"a:1:2",
            b"a:123456",
            b"[]",
            b"[::1",
            b"[::1]x",
            b"a\x80",
            b"[g]",
            b"a?b",
            b"a\\b",
        ] {
            assert!(!is_authority(bad), "{bad:?}");
        }
    }
}
