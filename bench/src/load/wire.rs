//! The little of HTTP/1.1 that a measuring client needs: the head of a response, and its payload
//! out of either framing. Independent of the gateway's own framing code, which it checks that way.

use std::io;

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, the empty line included.
    pub len: usize,
    /// The status.
    pub status: u16,
    /// Where the body ends.
    pub body: Body,
}

/// Where a body ends, and how far it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes are left.
    Length(u64),
    /// In the line that gives the size of a chunk; the size so far, and whether it is complete.
    Size(u64, bool),
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// So many bytes of the line end behind a chunk are left.
    ChunkEnd(u8),
    /// In the last line end behind the last chunk (trailers are not expected).
    LastEnd(u8),
    /// The body has ended.
    Done,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads the head at the start of `data`; `None` until it is complete.
///
/// # Errors
/// When it is no HTTP, or its framing is not one this client knows.
pub fn head(data: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(len) =
        response.parse(data).map_err(|error| malformed(&error.to_string()))?
    else {
        return Ok(None);
    };
    let mut body = None;
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().map_err(|_| malformed("a content-length"))?;
            body = Some(if length == 0 { Body::Done } else { Body::Length(length) });
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            body = Some(Body::Size(0, false));
        }
    }
    let body = body.ok_or_else(|| malformed("a response without framing"))?;
    Ok(Some(Head { len, status: response.code.unwrap_or(0), body }))
}

impl Body {
    /// Takes bytes of the body and hands the payload among them to `payload`. Returns how many
    /// bytes belong to the body: fewer than given when it ends before.
    ///
    /// # Errors
    /// When the chunks are malformed, or `payload` fails.
    pub fn feed(
        &mut self,
        data: &[u8],
        mut payload: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let mut at = 0;
        while at < data.len() && *self != Self::Done {
            match self {
                Self::Length(left) | Self::Chunk(left) => {
                    let take = (data.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    payload(&data[at..at + take])?;
                    at += take;
                    *left -= take as u64;
                    if *left == 0 {
                        *self = match self {
                            Self::Length(_) => Self::Done,
                            _ => Self::ChunkEnd(2),
                        };
                    }
                }
                _ => {
                    self.framing(data[at])?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    fn framing(&mut self, byte: u8) -> io::Result<()> {
        *self = match (*self, byte) {
            (Self::Size(size, false), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let size = size.checked_mul(16).ok_or_else(|| malformed("a chunk size"))?;
                Self::Size(size + u64::from(digit), false)
            }
            (Self::Size(size, false), b'\r' | b';') => Self::Size(size, true),
            (Self::Size(0, true), b'\n') => Self::LastEnd(2),
            (Self::Size(size, true), b'\n') => Self::Chunk(size),
            // An extension.
            (Self::Size(size, true), _) => Self::Size(size, true),
            (Self::ChunkEnd(2), b'\r') => Self::ChunkEnd(1),
            (Self::ChunkEnd(1), b'\n') => Self::Size(0, false),
            (Self::LastEnd(2), b'\r') => Self::LastEnd(1),
            (Self::LastEnd(1), b'\n') => Self::Done,
            _ => return Err(malformed("a chunk")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_decoded_however_they_are_cut() {
        let bytes = b"5\r\nhello\r\nB;x=y\r\n, you there\r\n0\r\n\r\nNEXT";
        for cut in 1..bytes.len() {
            let (mut body, mut text, mut used) = (Body::Size(0, false), Vec::new(), 0);
            for piece in bytes.chunks(cut) {
                used += body
                    .feed(piece, |payload| {
                        text.extend_from_slice(payload);
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!((body, used), (Body::Done, bytes.len() - 4));
            assert_eq!(text, b"hello, you there");
        }
        assert!(Body::Size(0, false).feed(b"5\r\nhelloX", |_| Ok(())).is_err());
    }

    #[test]
    fn a_head_says_where_its_body_ends() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(head(&bytes[..20]).unwrap(), None);
        let expected = Head { len: bytes.len(), status: 200, body: Body::Length(7) };
        assert_eq!(head(bytes).unwrap(), Some(expected));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
