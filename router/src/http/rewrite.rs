//! Heads as they go on: to the instance, to the client.

use std::net::IpAddr;

use super::head::{RequestHead, ResponseHead, Version};

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

/// Writes the head of a request to an instance.
pub fn request(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, up: &Upstream<'_>) {
    let _ = (out, buf, head, up);
}

/// How a response goes to the client.
#[derive(Clone, Copy, Debug)]
pub struct Downstream<'a> {
    /// The client's version.
    pub version: Version,
    /// Whether the client connection stays open behind this response.
    pub keep_alive: bool,
    /// The body is sent without its chunk framing and ends with the connection.
    pub dechunk: bool,
    /// Fields to add.
    pub extra: &'a [(&'a str, &'a [u8])],
}

/// Writes the head of a response to the client.
pub fn response(out: &mut Vec<u8>, buf: &[u8], head: &ResponseHead, down: &Downstream<'_>) {
    let _ = (out, buf, head, down);
}
