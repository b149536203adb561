//! Heads as they go on: to the instance, to the client.
//!
//! A head is written anew from the checked one. The fields that frame the body are the gateway's own,
//! in their plainest spelling, so that nothing an ill-meaning sender did to them goes further.
//!
//! Fields that concern one connection stay on it (RFC 9110 section 7.6.1), and so do those that
//! `Connection` names, except protected ones: a sender must not be able to make the gateway
//! remove what the other side decides by.

use std::{io::Write, net::IpAddr};

use router_ebpf::framing::Framing;

use super::head::{Fields, Method, RequestHead, ResponseHead, Version, list_tokens};

/// The gateway's name in `Via`.
const PSEUDONYM: &str = "atalho";

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

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// The instance's `host:port`, which becomes the Host field.
    pub authority: &'a str,
    /// The target to send instead of the client's, in origin form.
    pub target: Option<&'a [u8]>,
    /// The client's address.
    pub client: IpAddr,
}

/// Writes the head of a request to an instance, as HTTP/1.1 on a connection that stays open.
///
/// - `Host` is the instance's own authority; the client's goes into `X-Forwarded-Host`.
/// - `X-Forwarded-For`, `-Proto` and `-Host` say what the gateway has seen itself. Those of the
///   client, and `Forwarded`, are dropped: anyone can write them.
/// - `Expect` is dropped, because the gateway answers it.
/// - `Max-Forwards` of OPTIONS and TRACE counts down (RFC 9110 section 7.6.2).
pub fn request(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, up: &Upstream<'_>) {
    out.reserve(head.len + 256);
    out.extend_from_slice(head.method_bytes(buf));
    out.push(b' ');
    out.extend_from_slice(up.target.unwrap_or_else(|| head.target(buf)));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    field(out, b"Host", up.authority.as_bytes());
    let named = Named::of(head.names_fields.then(|| head.headers(buf)));
    let counts_down = head.has_max_forwards(buf);
    for (name, value) in head.headers(buf) {
        if is_hop_by_hop(name) || is_replaced_in_requests(name) || named.contains(name) {
            continue;
        }
        if counts_down && name.eq_ignore_ascii_case(b"max-forwards") {
            count_down(out, value);
            continue;
        }
        field(out, name, value);
    }
    framing(
        out,
        head.framing == Framing::chunked(),
        head.length.or_else(|| {
            // RFC 9110 section 8.6: where content is expected, say that there is none.
            matches!(head.method, Method::Post | Method::Put).then_some(0)
        }),
    );
    let received = if head.version == Version::Http10 { "1.0" } else { "1.1" };
    line(out, format_args!("Via: {received} {PSEUDONYM}"));
    line(out, format_args!("X-Forwarded-For: {}", up.client.to_canonical()));
    out.extend_from_slice(b"X-Forwarded-Proto: http\r\n");
    if let Some(host) = head.host(buf) {
        field(out, b"X-Forwarded-Host", host);
    }
    out.extend_from_slice(b"\r\n");
}

/// How a response goes to the client.
#[derive(Clone, Copy, Debug)]
pub struct Downstream<'a> {
    /// The client's version.
    pub version: Version,
    /// Whether the client connection stays open behind this response. A response that ends when the
    /// connection does closes it all the same.
    pub keep_alive: bool,
    /// The body is sent without its chunk framing and ends with the connection.
    pub dechunk: bool,
    /// Fields to add; they replace the instance's of the same names.
    pub extra: &'a [(&'a str, &'a [u8])],
}

/// Writes the head of a response to the client.
///
/// Interim responses (1xx) are written too; they are not for HTTP/1.0 clients (RFC 9110 section
/// 15.2). `Via` is left out, as a gateway may (RFC 9110 section 7.6.3).
pub fn response(out: &mut Vec<u8>, buf: &[u8], head: &ResponseHead, down: &Downstream<'_>) {
    out.reserve(head.len + 256);
    let _ = write!(out, "HTTP/1.1 {} ", head.status);
    out.extend_from_slice(head.reason_phrase(buf));
    out.extend_from_slice(b"\r\n");
    let named = Named::of(head.names_fields.then(|| head.headers(buf)));
    for (name, value) in head.headers(buf) {
        let extra = || down.extra.iter().any(|(n, _)| name.eq_ignore_ascii_case(n.as_bytes()));
        // Without chunk framing there is no place for trailers.
        let trailer = || down.dechunk && name.eq_ignore_ascii_case(b"trailer");
        if !is_hop_by_hop(name) && !named.contains(name) && !extra() && !trailer() {
            field(out, name, value);
        }
    }
    for (name, value) in down.extra {
        field(out, name.as_bytes(), value);
    }
    if !head.is_interim() {
        // RFC 9110 section 8.6: no Content-Length in a 204.
        let length = head.length.filter(|_| head.status != 204);
        framing(out, head.framing == Framing::chunked() && !down.dechunk, length);
        let keep_alive = down.keep_alive && !down.dechunk && !head.framing.is_until_close();
        connection(out, down.version, keep_alive);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the Connection field, where the version does not imply it.
pub(super) fn connection(out: &mut Vec<u8>, version: Version, keep_alive: bool) {
    match (version, keep_alive) {
        (Version::Http11, true) => {}
        (Version::Http10, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (_, false) => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

fn framing(out: &mut Vec<u8>, chunked: bool, length: Option<u64>) {
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if let Some(length) = length {
        line(out, format_args!("Content-Length: {length}"));
    }
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(line);
    out.extend_from_slice(b"\r\n");
}

/// Writes Max-Forwards one lower; a value that is no number goes as it is.
fn count_down(out: &mut Vec<u8>, value: &[u8]) {
    match std::str::from_utf8(value).ok().and_then(|v| v.parse::<u32>().ok()) {
        Some(left) => line(out, format_args!("Max-Forwards: {}", left.saturating_sub(1))),
        None => field(out, b"Max-Forwards", value),
    }
}

/// Fields of one connection, and those that frame the body, which are written anew.
fn is_hop_by_hop(name: &[u8]) -> bool {
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

fn is_replaced_in_requests(name: &[u8]) -> bool {
    let candidates: &[&str] = match name.len() {
        4 => &["host"],
        6 => &["expect"],
        9 => &["forwarded"],
        15 => &["x-forwarded-for"],
        16 => &["x-forwarded-host", "x-forwarded-port"],
        17 => &["x-forwarded-proto"],
        _ => &[],
    };
    candidates.iter().any(|c| name.eq_ignore_ascii_case(c.as_bytes()))
}

/// The fields that `Connection` names.
struct Named<'a>(Option<Fields<'a>>);

impl<'a> Named<'a> {
    /// `fields` of a head whose `Connection` names any.
    fn of(fields: Option<Fields<'a>>) -> Self {
        Self(fields)
    }

    fn contains(&self, name: &[u8]) -> bool {
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

#[cfg(test)]
#[path = "rewrite_tests.rs"]
mod tests;
