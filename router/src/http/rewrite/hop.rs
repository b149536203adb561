//! Fields that concern one connection, and stay on it (RFC 9110 section 7.6.1).

use crate::http::head::{Fields, list_tokens};

/// Fields that stay although `Connection` names them: what authenticates, what says how content is
/// to be read, and what the gateway or the routing relies on. Names ending in `-` are beginnings.
const PROTECTED: &[&str] = &[
    "access-control-",
    "anthropic-",
    "api-key",
    "authorization",
    "cache-control",
    "content-",
    "cookie",
    "date",
    "location",
    "openai-",
    "origin",
    "retry-after",
    "sec-websocket-",
    "set-cookie",
    "strict-transport-security",
    "trailer",
    "vary",
    "via",
    "www-authenticate",
    "x-amz-",
    "x-amzn-",
    "x-api-key",
    "x-atalho-",
];

/// Fields of one connection, and those that frame the body, which are written anew.
pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
    // By length first: most names are none of these.
    let candidates: &[&str] = match name.len() {
        2 => &["te"],
        7 => &["upgrade"],
        10 => &["connection", "keep-alive"],
        14 => &["content-length", "http2-settings"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        18 => &["proxy-authenticate"],
        19 => &["proxy-authorization"],
        _ => &[],
    };
    candidates.iter().any(|c| name.eq_ignore_ascii_case(c.as_bytes()))
}

/// The fields that `Connection` names.
pub(super) struct Named<'a>(Option<Fields<'a>>);

impl<'a> Named<'a> {
    /// `fields` of a head whose `Connection` names any.
    pub(super) fn of(fields: Option<Fields<'a>>) -> Self {
        Self(fields)
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        let Some(fields) = &self.0 else { return false };
        !is_protected(name)
            && fields
                .clone()
                .filter(|(n, _)| n.eq_ignore_ascii_case(b"connection"))
                .flat_map(|(_, value)| list_tokens(value))
                .any(|option| option.eq_ignore_ascii_case(name))
    }
}

fn is_protected(name: &[u8]) -> bool {
    PROTECTED.iter().any(|protected| {
        let protected = protected.as_bytes();
        if protected.ends_with(b"-") {
            name.get(..protected.len()).is_some_and(|n| n.eq_ignore_ascii_case(protected))
        } else {
            name.eq_ignore_ascii_case(protected)
        }
    })
}
