//! Heads of responses, as the client gets them.

use std::io::Write as _;

use router_ebpf::framing::Framing;

use super::{
    connection, field, framing,
    hop::{Named, is_hop_by_hop},
    upgrade,
};
use crate::http::{
    cors::Cors,
    head::{ResponseHead, Version},
};

/// How a response goes to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Downstream<'a> {
    /// The client's version.
    pub version: Version,
    /// Whether the client connection stays open behind this response. A response that ends when the
    /// connection does closes it all the same.
    pub keep_alive: bool,
    /// How the body is sent.
    pub body: Body,
    /// Fields to add; they replace the instance's of the same names.
    pub extra: &'a [(&'a str, &'a [u8])],
    /// Who may read it.
    pub cors: Cors<'a>,
}

/// How the body of a response is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// As it comes.
    #[default]
    Verbatim,
    /// Without its chunk framing; it ends with the connection.
    Payload,
    /// As an event stream, which is what the client asked for: whatever its status was, it is 200.
    Events,
}

/// Fields about the bytes of a body that is sent in another form.
const OF_THE_BYTES: [&str; 9] = [
    "accept-ranges",
    "content-digest",
    "content-encoding",
    "content-md5",
    "content-range",
    "digest",
    "etag",
    "repr-digest",
    "trailer",
];

/// Writes the head of a response to the client.
///
/// A 101 says that the connection is a WebSocket. Interim responses (1xx) are written too; they are not
/// for HTTP/1.0 clients (RFC 9110 section 15.2). `Via` is left out, as a gateway may (RFC 9110 section
/// 7.6.3).
pub fn response(out: &mut Vec<u8>, buf: &[u8], head: &ResponseHead, down: &Downstream<'_>) {
    out.reserve(head.len + 256);
    let events = down.body == Body::Events;
    if events {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        let _ = write!(out, "HTTP/1.1 {} ", head.status);
        out.extend_from_slice(head.reason_phrase(buf));
        out.extend_from_slice(b"\r\n");
    }
    let named = Named::of(head.names_fields.then(|| head.headers(buf)));
    let mut cors = down.cors;
    for (name, value) in head.headers(buf) {
        if is_hop_by_hop(name) || named.contains(name) || cors.owns(name) {
            continue;
        }
        cors.note_vary(name, value);
        let extra = || down.extra.iter().any(|(n, _)| name.eq_ignore_ascii_case(n.as_bytes()));
        let dropped = || match down.body {
            Body::Verbatim => false,
            // Without chunk framing there is no place for trailers.
            Body::Payload => name.eq_ignore_ascii_case(b"trailer"),
            Body::Events => OF_THE_BYTES.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes())),
        };
        if !extra() && !dropped() {
            field(out, name, value);
        }
    }
    for (name, value) in down.extra {
        field(out, name.as_bytes(), value);
    }
    if head.status == 101 {
        upgrade(out);
    } else if !head.is_interim() {
        cors.each(|name, value| field(out, name.as_bytes(), value));
        // RFC 9110 section 8.6: no Content-Length in a 204.
        let length = head.length.filter(|_| head.status != 204 && !events);
        let chunked = match down.body {
            Body::Verbatim => head.framing == Framing::chunked(),
            Body::Payload => false,
            Body::Events => down.version == Version::Http11,
        };
        framing(out, chunked, length);
        let delimited = match down.body {
            Body::Verbatim => !head.framing.is_until_close(),
            Body::Payload => false,
            Body::Events => chunked,
        };
        let keep_alive = down.keep_alive && delimited;
        connection(out, down.version, keep_alive);
    }
    out.extend_from_slice(b"\r\n");
}
