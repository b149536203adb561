//! Request heads.

use std::mem::MaybeUninit;

use router_ebpf::framing::Framing;

use super::{
    Fields, Limits, Method, Reject, Span, Version,
    framing::{Announced, FramingFault, Gathered},
    lines::{LineError, end_of_head},
    target,
};

/// A request head that passed every check.
///
/// Holds offsets into the buffer that was parsed. Methods with a `buf` argument want a buffer that
/// starts with the same bytes; they panic when it is shorter than the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Bytes from the start of the buffer to the first byte of the body.
    pub len: usize,
    /// The method.
    pub method: Method,
    /// The client's version.
    pub version: Version,
    /// How the body is framed. Without Content-Length and Transfer-Encoding there is none.
    pub framing: Framing,
    /// Whether the client keeps the connection open after this exchange.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// `Connection` names fields of the head, which must not be passed on.
    pub(crate) names_fields: bool,
    /// What Content-Length says.
    pub(crate) length: Option<u64>,
    /// The target is in absolute form, so the host is the target's.
    absolute: bool,
    method_span: Span,
    target: Target,
    host: Option<Span>,
    fields: Span,
}

/// The target in origin form; some targets have one that is not in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    At(Span),
    Fixed(&'static [u8]),
}

impl RequestHead {
    /// The method as it was written.
    pub fn method_bytes<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        self.method_span.get(buf)
    }

    /// The target in origin form (`/path?query`), or `*` with OPTIONS. Of an absolute-form target
    /// the scheme and the authority are removed. Visible ASCII, without `#`.
    pub fn target<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        match self.target {
            Target::At(span) => span.get(buf),
            Target::Fixed(bytes) => bytes,
        }
    }

    /// The target's path, as it was written (nothing is decoded).
    pub fn path<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let target = self.target(buf);
        memchr::memchr(b'?', target).map_or(target, |at| &target[..at])
    }

    /// The target's query, without the `?`.
    pub fn query<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        let target = self.target(buf);
        memchr::memchr(b'?', target).map(|at| &target[at + 1..])
    }

    /// Host and port the request is for: the authority of an absolute-form target, which wins (RFC
    /// 9112 section 3.2.2), else the Host field. `None` if that is empty, or, in HTTP/1.0, absent.
    pub fn host<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        self.host.map(|span| span.get(buf))
    }

    /// The value of the first field of this name (ASCII case does not matter).
    pub fn header<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.headers(buf).find(name)
    }

    /// All fields in order, values without the white space around them.
    pub fn headers<'a>(&self, buf: &'a [u8]) -> Fields<'a> {
        Fields::new(self.fields.get(buf))
    }

    /// Whether `Max-Forwards` applies: to OPTIONS and TRACE (RFC 9110 section 7.6.2).
    pub(crate) fn has_max_forwards(&self, buf: &[u8]) -> bool {
        self.method == Method::Options || self.method_bytes(buf) == b"TRACE"
    }

    /// Whether the client wants this gateway itself to answer: OPTIONS or TRACE that must not be
    /// forwarded any more (`Max-Forwards: 0`).
    pub fn is_for_gateway(&self, buf: &[u8]) -> bool {
        self.has_max_forwards(buf) && self.header(buf, "max-forwards") == Some(b"0")
    }

    /// Whether the client's target was in absolute form.
    pub fn is_absolute(&self) -> bool {
        self.absolute
    }
}

/// Reads the request head at the start of `buf`; `None` means that more bytes are needed.
///
/// One empty line before the request line is passed over (RFC 9112 section 2.2).
///
/// # Errors
/// The request is malformed, ambiguous, larger than `limits` or asks for what the gateway does not
/// do. Many faults are found before the head is complete. The connection closes after the answer.
pub fn parse_request(buf: &[u8], limits: &Limits) -> Result<Option<RequestHead>, Reject> {
    parse_request_from(buf, &mut 0, limits)
}

/// As [`parse_request`], for a head that arrives in pieces.
///
/// `seen` is 0 for a new head; after each `None` it says up to where the head has been checked, and
/// is to be given back with the same bytes and more. So a head of n bytes costs O(n) in total.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_request_from(
    buf: &[u8],
    seen: &mut usize,
    limits: &Limits,
) -> Result<Option<RequestHead>, Reject> {
    let start = if buf.starts_with(b"\r\n") { 2 } else { 0 };
    if buf == b"\r" {
        return Ok(None);
    }
    if *seen <= start {
        early(&buf[start..])?;
    }
    let end = end_of_head(buf, start, seen)
        .map_err(|e: LineError| Reject::bad(e.reason(), e.message()))?;
    let bytes = end.unwrap_or(buf.len()) - start;
    if bytes > limits.head_bytes || (end.is_none() && bytes == limits.head_bytes) {
        return Err(Reject::new(
            431,
            "head_too_large",
            "The request head is larger than this gateway accepts (`limits.head_bytes`); send \
             fewer or shorter headers.",
        ));
    }
    match end {
        Some(end) => parse(buf, start, end, limits).map(Some),
        None => Ok(None),
    }
}

/// Refuses what cannot become a request line, so that a client that speaks something else (TLS, to
/// begin with) gets its answer at once instead of when the time is up.
fn early(line: &[u8]) -> Result<(), Reject> {
    let method = line.iter().take(32).position(|b| !is_token(*b));
    match method {
        None if line.len() < 32 => Ok(()),
        Some(at) if at > 0 && line[at] == b' ' => Ok(()),
        Some(0) if line[0] == 0x16 => Err(Reject::bad(
            "tls",
            "This is a TLS handshake, but the gateway speaks plain HTTP on this port.",
        )),
        _ => Err(Reject::bad(
            "request_line",
            "The request line does not begin with a method and one space.",
        )),
    }
}

/// Token bytes (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn parse(buf: &[u8], start: usize, end: usize, limits: &Limits) -> Result<RequestHead, Reject> {
    let head = &buf[start..end];
    // Neither the line discipline nor repeated fields are httparse's concern; bytes and tokens are.
    let mut few = [const { MaybeUninit::uninit() }; 64];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(head, &mut few[..limits.headers.min(64)]);
    let (method, target_bytes, minor) = match parsed {
        Err(httparse::Error::TooManyHeaders) if limits.headers > 64 => {
            let mut many = vec![MaybeUninit::uninit(); limits.headers];
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(head, &mut many);
            parsed.map_err(|e| refuse(e, head))?;
            (request.method, request.path, request.version)
        }
        parsed => {
            parsed.map_err(|e| refuse(e, head))?;
            (request.method, request.path, request.version)
        }
    };
    let (Some(method), Some(target_bytes), Some(minor)) = (method, target_bytes, minor) else {
        return Err(refuse(httparse::Error::Token, head));
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let method_span = Span::of(buf, method.as_bytes());
    let method = Method::from_bytes(method.as_bytes());
    if method == Method::Connect {
        return Err(Reject::new(
            501,
            "connect",
            "CONNECT is not supported: this is a gateway to inference servers, not a tunnel.",
        ));
    }
    let parts = target::parts(method, target_bytes.as_bytes())?;
    let fields_start = start + memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let fields = Span::new(fields_start, (end - 2).max(fields_start));

    let mut gathered = Gathered::default();
    let mut host = None;
    let mut expect = None;
    let framing_fault = |fault: FramingFault| Reject::bad(fault.reason(), fault.message());
    for (name, value) in Fields::new(fields.get(buf)) {
        gathered.field(name, value).map_err(framing_fault)?;
        if name.eq_ignore_ascii_case(b"host") {
            if host.replace(value).is_some() {
                return Err(Reject::bad("host", "Host appears more than once; send it once."));
            }
        } else if name.eq_ignore_ascii_case(b"expect") {
            expect = Some(value);
        }
    }
    match host {
        // RFC 9112 section 3.2: empty where the client's URL has no authority.
        Some(value) if !value.is_empty() && !target::is_authority(value) => {
            return Err(Reject::bad("host", "Host is not a host name or address with a port."));
        }
        None if version == Version::Http11 => {
            return Err(Reject::bad("host", "Host is missing; HTTP/1.1 requires it."));
        }
        _ => {}
    }
    let framing = match gathered.announced(version).map_err(framing_fault)? {
        Announced::Nothing => Framing::none(),
        Announced::Length(length) if length > limits.body_bytes => {
            return Err(Reject::new(
                413,
                "body_too_large",
                "The request body is larger than this gateway accepts (`limits.body_bytes`).",
            ));
        }
        Announced::Length(length) => Framing::length(length),
        Announced::Chunked => Framing::chunked(),
    };
    let expect_continue = match expect {
        // RFC 9110 section 10.1.1: an HTTP/1.0 client does not know what it asked for.
        Some(value) if version == Version::Http11 => {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Reject::new(
                    417,
                    "expectation",
                    "Expect asks for something else than 100-continue.",
                ));
            }
            !framing.is_done()
        }
        _ => false,
    };
    let host = parts.authority.or(host).filter(|host| !host.is_empty());
    Ok(RequestHead {
        len: end,
        method,
        version,
        framing,
        keep_alive: gathered.persistent(version),
        expect_continue,
        names_fields: gathered.names_fields,
        length: gathered.length(),
        absolute: parts.authority.is_some(),
        method_span,
        target: match parts.origin {
            b"/" if parts.authority.is_some() => Target::Fixed(b"/"),
            b"*" => Target::Fixed(b"*"),
            origin => Target::At(Span::of(buf, origin)),
        },
        host: host.map(|value| Span::of(buf, value)),
        fields,
    })
}

/// The answer to a head that is no HTTP/1 head.
fn refuse(error: httparse::Error, head: &[u8]) -> Reject {
    match error {
        httparse::Error::TooManyHeaders => Reject::new(
            431,
            "too_many_headers",
            "The request has more headers than this gateway accepts (`limits.headers`).",
        ),
        httparse::Error::Version if other_version(head) => {
            Reject::new(505, "version", "Only HTTP/1.0 and HTTP/1.1 are spoken on this port.")
        }
        httparse::Error::HeaderName => Reject::bad(
            "header_name",
            "A header line does not begin with a name and a colon right behind it.",
        ),
        httparse::Error::HeaderValue => {
            Reject::bad("header_value", "A header value contains a control byte.")
        }
        _ => Reject::bad(
            "request_line",
            "The request line is not 'METHOD target HTTP/1.1' with single spaces.",
        ),
    }
}

/// Whether the request line ends with a well-formed version (RFC 9112 section 2.3) that is not
/// spoken here. One that is has something else wrong with its line, such as a second space.
fn other_version(head: &[u8]) -> bool {
    let line = memchr::memchr(b'\r', head).map_or(head, |at| &head[..at]);
    matches!(line, [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit()
            && !matches!((major, minor), (b'1', b'0' | b'1')))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
