//! HTTP messages as they were on the wire.

use crate::chunked;

/// A message head, byte for byte, with its lines taken apart.
#[derive(Clone, Debug)]
pub struct Head {
    /// All of it, the empty line included.
    pub raw: Vec<u8>,
    /// The request line or status line.
    pub first: String,
    /// Name and value of each field, in order, as sent.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// # Panics
    /// When a line is not a field.
    pub fn parse(raw: &[u8]) -> Self {
        let text: String = raw.iter().map(|&byte| byte as char).collect();
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let fields = lines
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .unwrap_or_else(|| panic!("no field: {line:?} in {text:?}"));
                (name.to_owned(), value.trim().to_owned())
            })
            .collect();
        Self { raw: raw.to_owned(), first, fields }
    }

    fn word(&self, index: usize) -> &str {
        self.first.split(' ').nth(index).unwrap_or_default()
    }

    /// The status of a response.
    ///
    /// # Panics
    /// When this is no status line.
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or_else(|_| panic!("no status line: {:?}", self.first))
    }

    /// The method of a request.
    pub fn method(&self) -> &str {
        self.word(0)
    }

    /// The target of a request.
    pub fn target(&self) -> &str {
        self.word(1)
    }

    /// Every value of a field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The value of a field that stands at most once.
    ///
    /// # Panics
    /// When it stands twice.
    #[track_caller]
    pub fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} stands {} times in {:?}", all.len(), self.first);
        all.first().copied()
    }

    /// Whether `Connection: close` is announced.
    pub fn closes(&self) -> bool {
        self.all("connection").iter().any(|value| value.to_ascii_lowercase().contains("close"))
    }

    /// Whether the body is chunked.
    pub fn chunked(&self) -> bool {
        self.all("transfer-encoding").iter().any(|value| value.eq_ignore_ascii_case("chunked"))
    }

    /// The announced length of the body.
    ///
    /// # Panics
    /// When it is no number.
    pub fn content_length(&self) -> Option<usize> {
        self.get("content-length").map(|value| value.parse().expect("a content-length"))
    }
}

/// A head and its body.
#[derive(Clone, Debug)]
pub struct Message {
    /// The head.
    pub head: Head,
    /// The body as it was on the wire: chunk lines, extensions and trailers included.
    pub body: Vec<u8>,
}

impl std::ops::Deref for Message {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Message {
    /// The body without its transfer coding.
    pub fn payload(&self) -> Vec<u8> {
        if self.head.chunked() { chunked::decode(&self.body).0 } else { self.body.clone() }
    }

    /// The payload as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let payload = self.payload();
        serde_json::from_slice(&payload).unwrap_or_else(|error| {
            panic!("no JSON ({error}): {:?}", String::from_utf8_lossy(&payload))
        })
    }
}

/// A request with a content-length, or without a body when `body` is empty and the method has none.
pub fn request(method: &str, target: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request_with(method, target, &[], body)
}

/// A request with more fields.
pub fn request_with(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Vec<u8> {
    let body = body.as_ref();
    let mut out = format!("{method} {target} HTTP/1.1\r\nHost: gateway.test\r\n").into_bytes();
    for (name, value) in fields {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT") {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// A request whose body is already in the chunked coding.
pub fn chunked_request(target: &str, raw_body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = format!(
        "POST {target} HTTP/1.1\r\nHost: gateway.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    out.extend_from_slice(raw_body.as_ref());
    out
}

/// A chat request whose user message is `text`.
pub fn chat(text: &str) -> Vec<u8> {
    chat_with(&[], text)
}

/// A chat request with more header fields.
pub fn chat_with(fields: &[(&str, &str)], text: &str) -> Vec<u8> {
    request_with("POST", "/v1/chat/completions", fields, chat_body(text))
}

/// The body of a chat request.
pub fn chat_body(text: &str) -> Vec<u8> {
    serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": text }] })
        .to_string()
        .into_bytes()
}

/// A response with a content-length.
pub fn response(status: u16, body: impl AsRef<[u8]>) -> Vec<u8> {
    response_with(status, &[], body)
}

/// A response with a content-length and more fields.
pub fn response_with(status: u16, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut out = format!("HTTP/1.1 {status} Status\r\n").into_bytes();
    for (name, value) in fields {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
    out
}

/// The head of a chunked response.
pub const CHUNKED_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
