//! Reading the request to explain.

use std::{fs, io::Read};

use anyhow::{Context, anyhow, bail};

use super::{Options, method};
use crate::{
    engine::userspace::advance_payload,
    http::{self, Limits, Method},
};

/// A request, whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Without query.
    pub(super) path: String,
    headers: Vec<(String, Vec<u8>)>,
    /// The payload: chunk framing is taken off.
    pub(super) body: Vec<u8>,
}

impl Request {
    /// All fields, as (name, value).
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_slice()))
    }

    /// The first field of this name (lower case).
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// The request that the command line describes.
pub(super) fn read(options: &Options) -> anyhow::Result<Request> {
    let bytes = match (&options.data, options.file.as_deref()) {
        (Some(data), _) => match data.strip_prefix('@') {
            Some(file) => read_file(file)?,
            None => data.clone().into_bytes(),
        },
        (None, Some(file)) => read_file(file)?,
        (None, None) => bail!("name a file with the request, or give a body with --data"),
    };
    // `POST `, `GET `: a raw request starts with a word in capitals, which no JSON does.
    let start = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let looks_raw = start > 0 && bytes.get(start) == Some(&b' ');
    if looks_raw && options.path.is_none() && options.data.is_none() {
        if !options.headers.is_empty() {
            bail!("the file holds a whole request with its own fields: leave --header out");
        }
        return raw(&bytes).context("the file looks like a raw HTTP request");
    }
    let headers = options.headers.iter().map(|line| {
        let (name, value) = line
            .split_once(':')
            .with_context(|| format!("--header `{line}`: write `Name: value`"))?;
        Ok((name.trim().to_owned(), value.trim().as_bytes().to_vec()))
    });
    Ok(Request {
        method: method(&options.request),
        path: without_query(options.path.as_deref().unwrap_or("/v1/chat/completions")).to_owned(),
        headers: headers.collect::<anyhow::Result<_>>()?,
        body: bytes,
    })
}

fn read_file(file: &str) -> anyhow::Result<Vec<u8>> {
    if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(bytes);
    }
    fs::read(file).with_context(|| format!("cannot read {file}"))
}

fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// Parses a recorded request by the gateway's own rules.
///
/// Lines that end in LF alone are mended first: editors and shells write them, clients do not.
fn raw(bytes: &[u8]) -> anyhow::Result<Request> {
    let mended = crlf_head(bytes);
    let limits = Limits { head_bytes: 1 << 20, headers: 1000, body_bytes: u64::MAX };
    let head = http::parse_request(&mended, &limits)
        .map_err(|reject| {
            anyhow!("the gateway would answer with {}: {}", reject.status, reject.message)
        })?
        .context("its head does not end with an empty line")?;
    let mut framing = head.framing;
    let mut body = Vec::new();
    let rest = &mended[head.len..];
    advance_payload(&mut framing, rest, |payload| body.extend_from_slice(payload))
        .map_err(|error| anyhow!("its body is malformed: {error}"))?;
    if !framing.is_done() {
        bail!("its body ends early: {} bytes are there", rest.len());
    }
    let headers = head
        .headers(&mended)
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()));
    Ok(Request {
        method: head.method,
        path: String::from_utf8(head.path(&mended).to_vec()).context("its path is not text")?,
        headers: headers.collect(),
        body,
    })
}

/// The request with CRLF at the end of each line of its head.
fn crlf_head(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(b'\n', rest) {
        let line = rest[..at].strip_suffix(b"\r").unwrap_or(&rest[..at]);
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
        rest = &rest[at + 1..];
        if line.is_empty() {
            break;
        }
    }
    out.extend_from_slice(rest);
    out
}
