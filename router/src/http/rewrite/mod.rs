//! Heads as they go on: to the instance, to the client.
//!
//! A head is written anew from the checked one. The fields that frame the body are the gateway's own,
//! in their plainest spelling, so that nothing an ill-meaning sender did to them goes further.
//!
//! Fields that concern one connection stay on it (RFC 9110 section 7.6.1), and so do those that
//! `Connection` names, except protected ones: a sender must not be able to make the gateway
//! remove what the other side decides by.

mod hop;
mod request;
mod response;

use std::io::Write as _;

pub use self::{
    request::{Origin, Upstream, request},
    response::{Body, Downstream, response},
};
use super::{head::Version, upgrade::WEBSOCKET};

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

/// Writes one field.
pub(super) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes that the connection is to become, or is now, a WebSocket.
fn upgrade(out: &mut Vec<u8>) {
    field(out, b"Connection", b"Upgrade");
    field(out, b"Upgrade", WEBSOCKET.as_bytes());
}

fn line(out: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(line);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
