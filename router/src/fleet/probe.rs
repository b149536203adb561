//! A small HTTP/1.1 client for what the gateway itself asks instances: health, models, metrics,
//! and to load adapters.
//!
//! One request per connection, a limit on the whole of its time and on the body's size. It is no part of
//! the way of a client's request.

use std::{fmt, io, net::SocketAddr, time::Duration};

use router_ebpf::framing::{Framing, FramingError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::http::{Limits, Method, ResponseHead, parse_response};

/// What the head of an answer may be like.
const HEAD: Limits = Limits { head_bytes: 64 * 1024, headers: 128, body_bytes: u64::MAX };

/// What to ask for.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// Value of the Host field.
    pub authority: &'a str,
    /// Path and query, from the `/` on.
    pub path: &'a str,
    /// Further fields, such as a client's credentials. Names and values must be valid.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// For everything: connecting, asking, reading.
    pub time_limit: Duration,
    /// Longest body, in bytes.
    pub size_limit: usize,
}

/// An instance's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The final status.
    pub status: u16,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum ProbeError {
    /// No address is known for the host name.
    Unresolved,
    /// No connection.
    Connect(io::Error),
    /// The connection failed.
    Io(io::Error),
    /// Not in time.
    Timeout(Duration),
    /// What came is no response.
    Malformed(&'static str),
    /// The connection ended before the response did.
    CutShort,
    /// The body's chunks are malformed.
    Framing(FramingError),
    /// The body is longer than allowed.
    TooLong(usize),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved => f.write_str("the host name has no known address"),
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::Timeout(limit) => write!(f, "no answer within {limit:?}"),
            Self::Malformed(what) => write!(f, "{what}"),
            Self::CutShort => f.write_str("the answer is cut short"),
            Self::Framing(error) => write!(f, "the answer is malformed: {error}"),
            Self::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
        }
    }
}

impl std::error::Error for ProbeError {}

impl ProbeError {
    /// Whether nobody listens at its port.
    pub(super) fn refused(&self) -> bool {
        matches!(self, Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether the instance could not be reached at all.
    pub(super) fn unreachable(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// Asks the first of `addresses` that takes the connection.
///
/// # Errors
/// When there is no complete answer within the limits.
pub async fn get(addresses: &[SocketAddr], request: &Get<'_>) -> Result<Answer, ProbeError> {
    let limit = request.time_limit;
    tokio::time::timeout(limit, exchange(addresses, request))
        .await
        .unwrap_or(Err(ProbeError::Timeout(limit)))
}

/// As [`get`], for those who want the answer's status alone: its body is not read.
///
/// # Errors
/// When there is no head of an answer within the limits.
pub async fn status(addresses: &[SocketAddr], request: &Get<'_>) -> Result<u16, ProbeError> {
    let limit = request.time_limit;
    let answer = async {
        let mut stream = ask(addresses, request).await?;
        Ok(read_head(&mut stream, &mut Vec::with_capacity(1024)).await?.status)
    };
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(ProbeError::Timeout(limit)))
}

/// Posts a body in JSON to the first of `addresses` that takes the connection.
///
/// # Errors
/// As those of [`get`].
pub async fn post(
    addresses: &[SocketAddr],
    request: &Get<'_>,
    body: &str,
) -> Result<Answer, ProbeError> {
    let limit = request.time_limit;
    let exchange = async {
        let mut stream = send(addresses, request, "POST", Some(body)).await?;
        read(&mut stream, request.size_limit).await
    };
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(ProbeError::Timeout(limit)))
}

async fn exchange(addresses: &[SocketAddr], request: &Get<'_>) -> Result<Answer, ProbeError> {
    read(&mut ask(addresses, request).await?, request.size_limit).await
}

async fn ask(addresses: &[SocketAddr], request: &Get<'_>) -> Result<TcpStream, ProbeError> {
    send(addresses, request, "GET", None).await
}

/// Connects, and sends the request.
async fn send(
    addresses: &[SocketAddr],
    request: &Get<'_>,
    method: &str,
    body: Option<&str>,
) -> Result<TcpStream, ProbeError> {
    let mut stream = connect(addresses).await?;
    let mut head = Vec::with_capacity(256);
    for part in [method, " ", request.path, " HTTP/1.1\r\nHost: "] {
        head.extend_from_slice(part.as_bytes());
    }
    head.extend_from_slice(request.authority.as_bytes());
    head.extend_from_slice(b"\r\nConnection: close\r\nAccept: */*\r\nUser-Agent: atalho\r\n");
    for (name, value) in request.headers {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    if let Some(body) = body {
        let length = body.len();
        let fields = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        head.extend_from_slice(fields.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(body.unwrap_or_default().as_bytes());
    stream.write_all(&head).await.map_err(ProbeError::Io)?;
    Ok(stream)
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, ProbeError> {
    let mut last = ProbeError::Unresolved;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = ProbeError::Connect(error),
        }
    }
    Err(last)
}

async fn read(stream: &mut TcpStream, size_limit: usize) -> Result<Answer, ProbeError> {
    let mut input = Vec::with_capacity(4096);
    let head = read_head(stream, &mut input).await?;
    input.drain(..head.len);
    let mut body = Body { framing: head.framing, payload: Vec::new(), limit: size_limit };
    loop {
        body.take(&input)?;
        if body.framing.is_done() {
            return Ok(Answer { status: head.status, body: body.payload });
        }
        input.clear();
        match fill(stream, &mut input).await {
            Err(ProbeError::CutShort) if body.framing.is_until_close() => {
                return Ok(Answer { status: head.status, body: body.payload });
            }
            filled => filled?,
        }
    }
}

/// Reads the head of the final answer, which stays at the front of `input`.
async fn read_head(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
) -> Result<ResponseHead, ProbeError> {
    loop {
        let head = parse_response(input, Method::Get, &HEAD);
        if let Some(head) = head.map_err(|error| ProbeError::Malformed(error.message))? {
            if !head.is_interim() {
                return Ok(head);
            }
            input.drain(..head.len);
            continue;
        }
        fill(stream, input).await?;
    }
}

/// Reads once; the end of the stream is an error.
async fn fill(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<(), ProbeError> {
    match stream.read_buf(input).await {
        Ok(0) => Err(ProbeError::CutShort),
        Ok(_) => Ok(()),
        Err(error) => Err(ProbeError::Io(error)),
    }
}

struct Body {
    framing: Framing,
    payload: Vec<u8>,
    limit: usize,
}

impl Body {
    /// Takes the payload out of `input`. What follows the end is ignored.
    fn take(&mut self, mut input: &[u8]) -> Result<(), ProbeError> {
        while !input.is_empty() && !self.framing.is_done() {
            if !self.framing.in_payload() {
                self.framing.step(input[0]);
                if let Some(error) = self.framing.error() {
                    return Err(ProbeError::Framing(error));
                }
                input = &input[1..];
                continue;
            }
            let (payload, rest) = input.split_at(self.framing.skip(input.len() as u64) as usize);
            if self.payload.len() + payload.len() > self.limit {
                return Err(ProbeError::TooLong(self.limit));
            }
            self.payload.extend_from_slice(payload);
            input = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Serves one connection: checks the request, sends `answer` in pieces of `size` bytes, closes.
    async fn served(
        answer: &'static [u8],
        size: usize,
        limit: usize,
    ) -> Result<Answer, ProbeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("open");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.expect("a request");
            }
            let head = String::from_utf8(head).expect("ASCII");
            assert!(head.starts_with("GET /x?y HTTP/1.1\r\nHost: here:1\r\n"), "{head}");
            assert!(head.contains("\r\nAuthorization: Bearer k\r\n"), "{head}");
            for piece in answer.chunks(size) {
                // The client may have had enough.
                if stream.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let request = Get {
            authority: "here:1",
            path: "/x?y",
            headers: &[("Authorization", b"Bearer k")],
            time_limit: Duration::from_secs(10),
            size_limit: limit,
        };
        let client = async {
            let answer = get(&[address], &request).await;
            (answer, ())
        };
        let ((answer, ()), ()) = tokio::join!(client, server);
        answer
    }

    #[tokio::test]
    async fn a_status_is_told_before_the_body_has_come() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let request = Get {
            authority: "x",
            path: "/",
            headers: &[],
            time_limit: Duration::from_secs(10),
            size_limit: 0,
        };
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let head = b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 9\r\n\r\n";
            stream.write_all(head).await.expect("a reader");
            stream
        };
        let addresses = [address];
        let (status, _open) = tokio::join!(status(&addresses, &request), server);
        assert_eq!(status.expect("a head"), 201);
    }

    async fn body(answer: &'static [u8], size: usize) -> (u16, String) {
        let answer = served(answer, size, 100).await.expect("a complete answer");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    }

    #[tokio::test]
    async fn reads_each_framing_in_pieces_of_any_size() {
        for size in [1, 2, 7, 1000] {
            let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more";
            assert_eq!(body(sized, size).await, (200, "hello".into()));
            let chunked = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n\
                            3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nx: y\r\n\r\n";
            assert_eq!(body(chunked, size).await, (503, "hello".into()));
            assert_eq!(body(b"HTTP/1.0 200 OK\r\n\r\nhello", size).await, (200, "hello".into()));
            let interim = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
            assert_eq!(body(interim, size).await, (204, String::new()));
        }
    }

    #[tokio::test]
    async fn what_is_wrong_is_an_error() {
        let fails = async |answer: &'static [u8]| {
            served(answer, 1000, 4).await.expect_err("the answer is no good").to_string()
        };
        assert!(fails(b"").await.contains("cut short"));
        assert!(fails(b"HTTP/1.1 200 OK\r\n").await.contains("cut short"));
        assert!(fails(b"SSH-2.0-x\r\n\r\n").await.contains("no HTTP"));
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert!(fails(short).await.contains("cut short"));
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde";
        assert!(fails(long).await.contains("longer than 4 bytes"));
        let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n";
        assert!(fails(chunk).await.contains("chunk size"));
        let coding = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        assert!(fails(coding).await.contains("Transfer-Encoding"));
    }

    #[tokio::test]
    async fn silence_ends_at_the_time_limit_and_a_dead_address_is_passed_over() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = silent.local_addr().expect("bound");
        let request = Get {
            authority: "x",
            path: "/",
            headers: &[],
            time_limit: Duration::from_millis(20),
            size_limit: 4,
        };
        let error = get(&[address], &request).await.expect_err("nobody answers");
        assert!(matches!(error, ProbeError::Timeout(_)) && !error.unreachable());
        let error = get(&[], &request).await.expect_err("there is no address");
        assert!(matches!(error, ProbeError::Unresolved) && !error.unreachable());

        let dead = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let dead_address = dead.local_addr().expect("bound");
        drop(dead);
        let error = get(&[dead_address], &request).await.expect_err("it is closed");
        assert!(error.unreachable(), "{error}");
        let error = get(&[dead_address, address], &request).await.expect_err("it is silent");
        assert!(matches!(error, ProbeError::Timeout(_)), "the second one took the connection");
    }
}
