//! Heads of requests, as the instance gets them.

use std::net::IpAddr;

use router_ebpf::framing::Framing;

use super::{
    field, framing,
    hop::{Named, is_hop_by_hop},
    line, upgrade,
};
use crate::http::{
    head::{Method, RequestHead, Version, is_authority},
    ids::{self, Ids},
};

/// The gateway's name in `Via`.
const PSEUDONYM: &str = "atalho";

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The address at the other end of the client's connection.
    pub peer: IpAddr,
    /// Whether that is a proxy whose word is taken for where the request came from before.
    pub trusted: bool,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// The instance's `host:port`, which becomes the Host field.
    pub authority: &'a str,
    /// The target to send instead of the client's, in origin form.
    pub target: Option<&'a [u8]>,
    /// Where it comes from.
    pub origin: Origin,
    /// Fields that stand in place of the client's of the same names; `None` leaves one out.
    pub instead: &'a [(&'a str, Option<&'a [u8]>)],
    /// Whether the connection is to become a WebSocket: `Upgrade` goes on then.
    pub upgrade: bool,
    /// What the request is called.
    pub ids: &'a Ids,
}

/// Writes the head of a request to an instance, as HTTP/1.1 on a connection that stays open.
///
/// - `Host` is the instance's own authority; the client's goes into `X-Forwarded-Host`.
/// - `X-Forwarded-For`, `-Proto` and `-Host` say what the gateway has seen itself. Those of the
///   client, and `-Port`, are dropped, because anyone can write them, unless a trusted proxy did: then
///   they stay, and the proxy's address is added to the first.
/// - `Forwarded` is dropped: the fields above say the same, and two accounts could differ.
/// - `x-request-id`, `traceparent` and `tracestate` are those of [`Upstream::ids`].
/// - Those of [`Upstream::instead`] are replaced.
/// - `Expect` is dropped, because the gateway answers it.
/// - `Max-Forwards` of OPTIONS and TRACE counts down (RFC 9110 section 7.6.2).
pub fn request(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, up: &Upstream<'_>) {
    out.reserve(head.len + 512);
    out.extend_from_slice(head.method_bytes(buf));
    out.push(b' ');
    out.extend_from_slice(up.target.unwrap_or_else(|| head.target(buf)));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    field(out, b"Host", up.authority.as_bytes());
    let named = Named::of(head.names_fields.then(|| head.headers(buf)));
    let counts_down = head.has_max_forwards(buf);
    for (name, value) in head.headers(buf) {
        if is_hop_by_hop(name) || is_replaced(name) || named.contains(name) {
            continue;
        }
        let same = |(n, _): &(&str, _)| n.len() == name.len() && reads_as(name, n.as_bytes());
        if up.instead.iter().any(same) {
            continue;
        }
        if counts_down && name.eq_ignore_ascii_case(b"max-forwards") {
            count_down(out, value);
            continue;
        }
        if !up.ids.continued && name.eq_ignore_ascii_case(ids::TRACE_STATE.as_bytes()) {
            continue;
        }
        field(out, name, value);
    }
    for (name, value) in up.instead {
        if let Some(value) = value {
            field(out, name.as_bytes(), value);
        }
    }
    framing(
        out,
        head.framing == Framing::chunked(),
        head.length.or_else(|| {
            // RFC 9110 section 8.6: where content is expected, say that there is none.
            matches!(head.method, Method::Post | Method::Put).then_some(0)
        }),
    );
    if up.upgrade {
        upgrade(out);
    }
    field(out, ids::REQUEST_ID.as_bytes(), up.ids.request.as_bytes());
    if let Some(trace) = &up.ids.trace {
        field(out, ids::TRACE_PARENT.as_bytes(), trace.as_bytes());
    }
    let received = if head.version == Version::Http10 { "1.0" } else { "1.1" };
    line(out, format_args!("Via: {received} {PSEUDONYM}"));
    forwarded(out, buf, head, up.origin);
    out.extend_from_slice(b"\r\n");
}

/// Writes how the request came here.
fn forwarded(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, origin: Origin) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    if origin.trusted {
        for value in head.headers(buf).all("x-forwarded-for").filter(|value| !value.is_empty()) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    line(out, format_args!("{}", origin.peer.to_canonical()));
    // Of several, it is not known which one was meant.
    let word = |name| origin.trusted.then(|| head.headers(buf).only(name)).flatten();
    let proto = word("x-forwarded-proto").filter(|value| is_scheme(value));
    field(out, b"X-Forwarded-Proto", proto.unwrap_or(b"http"));
    let host = word("x-forwarded-host").filter(|value| is_authority(value));
    if let Some(host) = host.or_else(|| head.host(buf)) {
        field(out, b"X-Forwarded-Host", host);
    }
    let is_port = |value: &&[u8]| value.len() <= 5 && value.iter().all(u8::is_ascii_digit);
    if let Some(port) = word("x-forwarded-port").filter(is_port) {
        field(out, b"X-Forwarded-Port", port);
    }
}

/// A scheme by which a request can have reached a proxy.
fn is_scheme(value: &[u8]) -> bool {
    [&b"http"[..], b"https", b"ws", b"wss"].iter().any(|known| value.eq_ignore_ascii_case(known))
}

fn is_replaced(name: &[u8]) -> bool {
    // By length first: most names are none of these.
    let candidates: &[&str] = match name.len() {
        4 => &["host"],
        6 => &["expect"],
        9 => &["forwarded"],
        11 => &[ids::TRACE_PARENT],
        12 => &[ids::REQUEST_ID],
        15 => &["x-forwarded-for"],
        16 => &["x-forwarded-host", "x-forwarded-port"],
        17 => &["x-forwarded-proto"],
        _ => &[],
    };
    candidates.iter().any(|candidate| reads_as(name, candidate.as_bytes()))
}

/// Whether a server may take `name` for `known`, of the same length: case does not matter, and some
/// turn `-` into `_`.
fn reads_as(name: &[u8], known: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || (*a == b'_' && *b == b'-');
    name.iter().zip(known).all(same)
}

/// Writes Max-Forwards one lower; a value that is no number goes as it is.
fn count_down(out: &mut Vec<u8>, value: &[u8]) {
    match std::str::from_utf8(value).ok().and_then(|v| v.parse::<u32>().ok()) {
        Some(left) => line(out, format_args!("Max-Forwards: {}", left.saturating_sub(1))),
        None => field(out, b"Max-Forwards", value),
    }
}
