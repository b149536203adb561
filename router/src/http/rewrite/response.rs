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
    /// The body is sent without its chunk framing and ends with the connection.
    pub dechunk: bool,
    /// Fields to add; they replace the instance's of the same names.
    pub extra: &'a [(&'a str, &'a [u8])],
    /// Who may read it.
    pub cors: Cors<'a>,
}

/// Writes the head of a response to the client.
///
/// A 101 says that the connection is a WebSocket. Interim responses (1xx) are written too; they are not
/// for HTTP/1.0 clients (RFC 9110 section 15.2). `Via` is left out, as a gateway may (RFC 9110 section
/// 7.6.3).
pub fn response(out: &mut Vec<u8>, buf: &[u8], head: &ResponseHead, down: &Downstream<'_>) {
    out.reserve(head.len + 256);
    let _ = write!(out, "HTTP/1.1 {} ", head.status);
    out.extend_from_slice(head.reason_phrase(buf));
    out.extend_from_slice(b"\r\n");
    let named = Named::of(head.names_fields.then(|| head.headers(buf)));
    let mut cors = down.cors;
    for (name, value) in head.headers(buf) {
        if is_hop_by_hop(name) || named.contains(name) || cors.owns(name) {
            continue;
        }
        cors.note_vary(name, value);
        let extra = || down.extra.iter().any(|(n, _)| name.eq_ignore_ascii_case(n.as_bytes()));
        // Without chunk framing there is no place for trailers.
        let trailer = || down.dechunk && name.eq_ignore_ascii_case(b"trailer");
        if !extra() && !trailer() {
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
        let length = head.length.filter(|_| head.status != 204);
        framing(out, head.framing == Framing::chunked() && !down.dechunk, length);
        let keep_alive = down.keep_alive && !down.dechunk && !head.framing.is_until_close();
        connection(out, down.version, keep_alive);
    }
    out.extend_from_slice(b"\r\n");
}
