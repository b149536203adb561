//! Message heads: where they end, what they say, and why one is refused.
//!
//! A head is kept where it was received. [`RequestHead`] and [`ResponseHead`] hold offsets into the
//! buffer that was parsed, never copies; their methods take the same buffer again.
//!
//! What two receivers could read in two ways is refused rather than repaired, because the gateway,
//! the kernel programs and the instance must all agree on where a body ends.

mod fields;
mod framing;
mod lines;
mod request;
mod response;
mod target;

pub use fields::Fields;
pub(crate) use fields::list_tokens;
pub use request::{RequestHead, parse_request, parse_request_from};
pub use response::{ResponseError, ResponseHead, parse_response, parse_upgrade_response};
pub(crate) use target::is_authority;

use std::borrow::Cow;

/// What a message may measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, from its first line to its empty line, both included.
    pub head_bytes: usize,
    /// Fields of a head.
    pub headers: usize,
    /// Bytes of a request body. Announced ones are refused at once; whoever reads a chunked body
    /// counts for itself.
    pub body_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 64 * 1024, headers: 256, body_bytes: 100 * 1024 * 1024 }
    }
}

/// A request method, as far as the gateway cares which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `CONNECT`; such a request is refused, so no [`RequestHead`] has it.
    Connect,
    /// Any other token; forwarded as it is.
    Other,
}

impl Method {
    /// The method of these bytes. Methods are case-sensitive (RFC 9110 section 9.1).
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match bytes {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"PATCH" => Self::Patch,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// The protocol version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// Why a request is refused. The connection closes after the answer, because what follows on it
/// cannot be trusted to be the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status to answer with.
    pub status: u16,
    /// The reason as a short fixed word, for metrics and the `x-atalho-error` header.
    pub reason: &'static str,
    /// The reason as a sentence, for whoever reads the answer.
    pub message: Cow<'static, str>,
}

impl Reject {
    pub(crate) const fn new(status: u16, reason: &'static str, message: &'static str) -> Self {
        Self { status, reason, message: Cow::Borrowed(message) }
    }

    pub(crate) const fn bad(reason: &'static str, message: &'static str) -> Self {
        Self::new(400, reason, message)
    }
}

impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.status, self.reason, self.message)
    }
}

impl std::error::Error for Reject {}

/// Offsets into the buffer a head was parsed from. Heads are far below 4 GiB: [`Limits`] is checked
/// before a span is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The span of `part`, which must be a slice of `buf`.
    fn of(buf: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr() as usize - buf.as_ptr() as usize;
        debug_assert!(start + part.len() <= buf.len());
        Self { start: start as u32, end: (start + part.len()) as u32 }
    }

    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    fn get(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }
}

impl Method {
    /// The name used in logs; those that need no telling apart are `OTHER`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Connect => "CONNECT",
            Self::Other => "OTHER",
        }
    }
}
