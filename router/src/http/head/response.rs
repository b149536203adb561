//! Response heads.

use std::mem::MaybeUninit;

use router_ebpf::framing::Framing;

use super::{
    Fields, Limits, Method, Span, Version,
    framing::{Announced, Gathered},
    lines::end_of_head,
};
use crate::http::upgrade::names_websocket;

/// Why an instance's response cannot be passed on. The connection to it is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ResponseError {
    /// The reason as a short fixed word, for metrics.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: &'static str,
}

impl ResponseError {
    const fn new(reason: &'static str, message: &'static str) -> Self {
        Self { reason, message }
    }
}

/// A response head that passed every check. Offsets as in [`RequestHead`](super::RequestHead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes from the start of the buffer to the first byte of the body.
    pub len: usize,
    /// The status code, 100 to 999; 101 only of [`parse_upgrade_response`].
    pub status: u16,
    /// The instance's version.
    pub version: Version,
    /// How the body is framed; none for 1xx, 204, 304 and answers to HEAD.
    pub framing: Framing,
    /// Whether the instance keeps the connection open after this exchange.
    pub keep_alive: bool,
    /// `Connection` names fields of the head, which must not be passed on.
    pub(crate) names_fields: bool,
    /// What Content-Length says, whether or not a body follows.
    pub(crate) length: Option<u64>,
    reason_phrase: Span,
    fields: Span,
}

impl ResponseHead {
    /// Whether this is a 1xx behind which the final response follows on the same connection. Behind 101
    /// there is no HTTP any more.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The reason phrase; may be empty.
    pub fn reason_phrase<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        self.reason_phrase.get(buf)
    }

    /// The value of the first field of this name (ASCII case does not matter).
    pub fn header<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.headers(buf).find(name)
    }

    /// All fields in order, values without the white space around them.
    pub fn headers<'a>(&self, buf: &'a [u8]) -> Fields<'a> {
        Fields::new(self.fields.get(buf))
    }
}

const NO_RESPONSE: ResponseError =
    ResponseError::new("status_line", "the instance's answer is no HTTP/1 response");

/// Reads the response head at the start of `buf`; `None` means that more bytes are needed.
///
/// `request_method` is that of the request it answers: a response to HEAD has no body.
///
/// # Errors
/// The response is malformed, ambiguous (as strictly as a request: the client must agree with the
/// gateway on where it ends), larger than `limits`, or switches protocols, which was never asked for.
pub fn parse_response(
    buf: &[u8],
    request_method: Method,
    limits: &Limits,
) -> Result<Option<ResponseHead>, ResponseError> {
    let head = read(buf, request_method, limits)?;
    match head {
        Some(ResponseHead { status: 101, .. }) => Err(ResponseError::new(
            "upgrade",
            "the instance switched protocols, which was not asked for",
        )),
        head => Ok(head),
    }
}

/// As [`parse_response`], for the answer to a request for a WebSocket.
///
/// # Errors
/// As [`parse_response`]; also if the response switches to another protocol.
pub fn parse_upgrade_response(
    buf: &[u8],
    limits: &Limits,
) -> Result<Option<ResponseHead>, ResponseError> {
    let head = read(buf, Method::Get, limits)?;
    let other = |head: &ResponseHead| {
        head.status == 101
            && !(head.version == Version::Http11 && names_websocket(head.headers(buf)))
    };
    match head {
        Some(head) if other(&head) => Err(ResponseError::new(
            "upgrade",
            "the instance switched protocols, but not to WebSocket",
        )),
        head => Ok(head),
    }
}

fn read(
    buf: &[u8],
    request_method: Method,
    limits: &Limits,
) -> Result<Option<ResponseHead>, ResponseError> {
    let begin = &buf[..buf.len().min(5)];
    if !b"HTTP/".starts_with(begin) {
        return Err(NO_RESPONSE);
    }
    let end =
        end_of_head(buf, 0, &mut 0).map_err(|e| ResponseError::new(e.reason(), e.message()))?;
    let bytes = end.unwrap_or(buf.len());
    if bytes > limits.head_bytes || (end.is_none() && bytes == limits.head_bytes) {
        return Err(ResponseError::new(
            "head_too_large",
            "the head of the instance's response is larger than the limit",
        ));
    }
    match end {
        Some(end) => parse(&buf[..end], request_method, limits).map(Some),
        None => Ok(None),
    }
}

fn parse(
    head: &[u8],
    request_method: Method,
    limits: &Limits,
) -> Result<ResponseHead, ResponseError> {
    let mut few = [const { MaybeUninit::uninit() }; 64];
    let config = httparse::ParserConfig::default();
    let mut response = httparse::Response::new(&mut []);
    let parsed = config.parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut few[..limits.headers.min(64)],
    );
    let (minor, code) = match parsed {
        Err(httparse::Error::TooManyHeaders) if limits.headers > 64 => {
            let mut many = vec![MaybeUninit::uninit(); limits.headers];
            let mut response = httparse::Response::new(&mut []);
            config
                .parse_response_with_uninit_headers(&mut response, head, &mut many)
                .map_err(refuse)?;
            (response.version, response.code)
        }
        parsed => {
            parsed.map_err(refuse)?;
            (response.version, response.code)
        }
    };
    let (Some(minor), Some(status)) = (minor, code) else { return Err(NO_RESPONSE) };
    if !(100..=999).contains(&status) {
        return Err(ResponseError::new("status", "the instance's status code is below 100"));
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let line = memchr::memchr(b'\r', head).unwrap_or(head.len());
    // `HTTP/1.x SSS` is 12 bytes; a space and the reason phrase may follow.
    let reason_phrase = Span::new(line.min(13), line);
    let fields_start = (line + 2).min(head.len());
    let fields = Span::new(fields_start, (head.len() - 2).max(fields_start));

    let mut gathered = Gathered::default();
    let fault = |f: super::framing::FramingFault| ResponseError::new(f.reason(), f.message());
    for (name, value) in Fields::new(fields.get(head)) {
        gathered.field(name, value).map_err(fault)?;
    }
    let announced = gathered.announced(version).map_err(fault)?;
    let bodyless = status < 200 || matches!(status, 204 | 304) || request_method == Method::Head;
    let framing = match announced {
        _ if bodyless => Framing::none(),
        Announced::Length(length) => Framing::length(length),
        Announced::Chunked => Framing::chunked(),
        Announced::Nothing => Framing::until_close(),
    };
    Ok(ResponseHead {
        len: head.len(),
        status,
        version,
        framing,
        keep_alive: gathered.persistent(version) && !framing.is_until_close(),
        names_fields: gathered.names_fields,
        length: gathered.length(),
        reason_phrase,
        fields,
    })
}

fn refuse(error: httparse::Error) -> ResponseError {
    match error {
        httparse::Error::TooManyHeaders => ResponseError::new(
            "too_many_headers",
            "the instance's response has more headers than the limit",
        ),
        httparse::Error::HeaderName => ResponseError::new(
            "header_name",
            "a header line of the instance's response does not begin with a name and a colon",
        ),
        httparse::Error::HeaderValue => ResponseError::new(
            "header_value",
            "a header value of the instance's response contains a control byte",
        ),
        _ => NO_RESPONSE,
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
