//! How the payload of a body is written to its receiver.

use std::io::IoSlice;

use crate::aws::event_stream;

/// How a body is written.
#[derive(Debug)]
pub enum Output {
    /// As it comes, framing included.
    Verbatim,
    /// The payload alone, for receivers that know no chunks; its end is the connection's.
    Payload,
    /// The payload as parts of an event stream. What one read brings is one part.
    Events(Events),
    /// Not at all: the payload is kept.
    Held(Held),
}

/// A payload as an event stream.
#[derive(Debug)]
pub struct Events {
    /// Whether the receiver gets chunks, each with one event; otherwise the connection ends the stream.
    chunked: bool,
    /// Whether the end has been written.
    ended: bool,
}

/// The last chunk, without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A chunk's size in hexadecimal, and the line's end.
const CHUNK_LINE: usize = 10;
/// The longest [`Frame::head`].
const HEAD: usize = CHUNK_LINE + size_of::<event_stream::PartHead>();
/// The longest [`Frame::tail`]: the checksum, the chunk's end, the last chunk.
const TAIL: usize = 4 + 2 + LAST_CHUNK.len();

/// What stands before and behind a payload that is one event.
pub(super) struct Frame {
    head: Short<HEAD>,
    tail: Short<TAIL>,
}

impl Frame {
    /// The event with its payload, to be written in this order.
    pub(super) fn slices<'a>(&'a self, payload: &'a [u8]) -> [IoSlice<'a>; 3] {
        [self.head.bytes(), payload, self.tail.bytes()].map(IoSlice::new)
    }
}

/// A few bytes that are not worth an allocation.
struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Short<N> {
    fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Events {
    /// A stream that begins; `chunked` where the receiver knows chunks.
    pub fn new(chunked: bool) -> Self {
        Self { chunked, ended: false }
    }

    /// What makes `payload` one event; `last` if nothing follows.
    pub(super) fn frame(&mut self, payload: &[u8], last: bool) -> Frame {
        let (part, crc) = event_stream::part(payload);
        let (mut head, mut tail) = (Short::new(), Short::new());
        if self.chunked {
            let mut line = [0; CHUNK_LINE];
            head.push(size_line(event_stream::PART_OVERHEAD + payload.len(), &mut line));
        }
        head.push(&part);
        tail.push(&crc);
        if self.chunked {
            tail.push(b"\r\n");
        }
        if last {
            tail.push(self.end());
        }
        Frame { head, tail }
    }

    /// What ends the stream; nothing if it has been written.
    fn end(&mut self) -> &'static [u8] {
        let written = std::mem::replace(&mut self.ended, true);
        if self.chunked && !written { LAST_CHUNK } else { b"" }
    }

    /// An exception, and the end of the stream.
    pub fn exception(&mut self, name: &str, members: &[u8]) -> Vec<u8> {
        let message = event_stream::exception(name, members);
        let mut out = Vec::with_capacity(message.len() + 32);
        if self.chunked {
            let mut line = [0; CHUNK_LINE];
            out.extend_from_slice(size_line(message.len(), &mut line));
        }
        out.extend_from_slice(&message);
        if self.chunked {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(self.end());
        out
    }
}

/// The line before a chunk of so many bytes, below 4 GiB.
fn size_line(size: usize, line: &mut [u8; CHUNK_LINE]) -> &[u8] {
    let mut at = CHUNK_LINE - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut left = size;
    while left > 0 || at == CHUNK_LINE - 2 {
        at -= 1;
        line[at] = b"0123456789abcdef"[left % 16];
        left /= 16;
    }
    &line[at..]
}

/// The start of a payload.
#[derive(Debug)]
pub struct Held {
    bytes: Vec<u8>,
    limit: usize,
}

impl Held {
    /// Keeps the first `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    pub(super) fn add(&mut self, payload: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.bytes.extend_from_slice(&payload[..payload.len().min(room)]);
    }

    /// What was kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Output {
    /// Whether it is [`Output::Verbatim`].
    pub fn is_verbatim(&self) -> bool {
        matches!(self, Self::Verbatim)
    }

    /// What ends a body whose source has ended, if that has not been written.
    pub(super) fn end(&mut self) -> &'static [u8] {
        match self {
            Self::Events(events) => events.end(),
            _ => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks() {
        let mut line = [0; CHUNK_LINE];
        for (size, text) in [(0, "0\r\n"), (10, "a\r\n"), (0x1_0000, "10000\r\n")] {
            assert_eq!(size_line(size, &mut line), text.as_bytes());
        }
        assert_eq!(size_line(u32::MAX as usize, &mut line), b"ffffffff\r\n");
    }

    #[test]
    fn the_end_is_written_once() {
        let mut events = Events::new(true);
        let whole = |frame: Frame| {
            frame.slices(b"x").iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>()
        };
        let first = whole(events.frame(b"x", false));
        assert!(
            first.starts_with(b"6a\r\n") && first.ends_with(b"\r\n") && first.len() == 0x6a + 6
        );
        assert!(whole(events.frame(b"x", true)).ends_with(b"\r\n0\r\n\r\n"));
        assert_eq!(events.end(), b"");
        let mut failed = Events::new(true);
        assert!(failed.exception("InternalStreamFailure", b"{}").ends_with(b"\r\n0\r\n\r\n"));
        assert_eq!(failed.end(), b"");
        let mut old = Events::new(false);
        assert!(old.exception("InternalStreamFailure", b"{}").starts_with(&[0, 0, 0]));
    }
}
