//! Where an HTTP/1.1 body ends.
//!
//! One machine for both sides: user space feeds it slices with [`Framing::advance`], a kernel
//! program feeds it an skb with [`Framing::skip`] and [`Framing::step`]. It never looks at payload
//! bytes, never allocates, and is `Copy`, so that it can be handed over in mapped memory.
//!
//! It is strict where senders and receivers have been known to disagree (request smuggling): a chunk
//! size is plain hexadecimal without sign, space or overflow (RFC 9112 section 7.1), lines end with
//! CRLF and nothing else, control bytes are refused, extensions and trailers have a limit.

/// Longest chunk extension of one chunk, in bytes, the semicolon included.
pub const MAX_EXTENSION: u32 = 4096;
/// Longest trailer section, in bytes, the final CRLF included.
pub const MAX_TRAILERS: u32 = 16 * 1024;

/// Where the machine stands. Plain constants rather than an enum, because the value is read back
/// from memory that a kernel program writes, and any bit pattern must be harmless there.
pub mod state {
    /// `remaining` payload bytes, then the end.
    pub const LENGTH: u32 = 0;
    /// The body ends when the sender closes.
    pub const UNTIL_CLOSE: u32 = 1;
    /// Before the first digit of a chunk size.
    pub const SIZE_FIRST: u32 = 2;
    /// Within the digits of a chunk size; `remaining` is the value so far.
    pub const SIZE: u32 = 3;
    /// Within a chunk extension.
    pub const EXTENSION: u32 = 4;
    /// After the CR that ends a chunk-size line.
    pub const SIZE_LF: u32 = 5;
    /// `remaining` payload bytes of a chunk.
    pub const DATA: u32 = 6;
    /// Before the CR behind a chunk's payload.
    pub const DATA_CR: u32 = 7;
    /// Before the LF behind a chunk's payload.
    pub const DATA_LF: u32 = 8;
    /// At the start of a trailer line, or of the empty line that ends the body.
    pub const TRAILER_START: u32 = 9;
    /// Within a trailer line.
    pub const TRAILER: u32 = 10;
    /// After the CR of a trailer line.
    pub const TRAILER_LF: u32 = 11;
    /// After the CR of the empty line that ends the body.
    pub const FINAL_LF: u32 = 12;
    /// The body has ended.
    pub const DONE: u32 = 13;
    /// The bytes are no chunked body: [`Framing::error`](super::Framing::error) says why.
    pub const MALFORMED: u32 = 14;
}

/// Why bytes are no chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// A chunk size is missing, or holds something else than hexadecimal digits.
    ChunkSize,
    /// A chunk size does not fit in 63 bits.
    ChunkSizeOverflow,
    /// A line does not end with CRLF, or holds a bare CR or LF.
    LineEnd,
    /// A control byte in an extension or a trailer.
    ControlByte,
    /// The extensions of one chunk exceed [`MAX_EXTENSION`].
    ExtensionTooLong,
    /// The trailer section exceeds [`MAX_TRAILERS`].
    TrailersTooLong,
}

impl core::fmt::Display for FramingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ChunkSize => "a chunk size is not a plain hexadecimal number",
            Self::ChunkSizeOverflow => "a chunk size does not fit in 63 bits",
            Self::LineEnd => "a line of the chunked body does not end with CRLF",
            Self::ControlByte => "a control byte in a chunk extension or trailer",
            Self::ExtensionTooLong => "a chunk extension is longer than 4096 bytes",
            Self::TrailersTooLong => "the trailer section is longer than 16 KiB",
        })
    }
}

impl core::error::Error for FramingError {}

/// A position in an HTTP/1.1 body.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Payload bytes left of the message or chunk; the value so far while a chunk size is read.
    pub remaining: u64,
    /// One of [`state`].
    pub state: u32,
    /// Bytes of the current extension or of the trailer section; the error code when malformed.
    pub line: u32,
}

impl Framing {
    /// A body of `length` bytes.
    pub const fn length(length: u64) -> Self {
        let state = if length == 0 { state::DONE } else { state::LENGTH };
        Self { remaining: length, state, line: 0 }
    }

    /// A chunked body (RFC 9112 section 7.1), trailers included.
    pub const fn chunked() -> Self {
        Self { remaining: 0, state: state::SIZE_FIRST, line: 0 }
    }

    /// A body that ends when the sender closes (RFC 9112 section 6.3, rule 8).
    pub const fn until_close() -> Self {
        Self { remaining: 0, state: state::UNTIL_CLOSE, line: 0 }
    }

    /// No body.
    pub const fn none() -> Self {
        Self::length(0)
    }

    /// Whether the body has ended.
    #[inline(always)]
    pub const fn is_done(&self) -> bool {
        self.state == state::DONE
    }

    /// Whether the end is marked by closing alone.
    pub const fn is_until_close(&self) -> bool {
        self.state == state::UNTIL_CLOSE
    }

    /// Whether the body is of known length (also once it has ended).
    pub const fn is_length(&self) -> bool {
        self.state == state::LENGTH
    }

    /// What is wrong with the bytes, if anything is.
    pub const fn error(&self) -> Option<FramingError> {
        if self.state != state::MALFORMED {
            return None;
        }
        Some(match self.line {
            1 => FramingError::ChunkSize,
            2 => FramingError::ChunkSizeOverflow,
            3 => FramingError::LineEnd,
            4 => FramingError::ControlByte,
            5 => FramingError::ExtensionTooLong,
            _ => FramingError::TrailersTooLong,
        })
    }

    #[inline(always)]
    fn fail(&mut self, error: FramingError) {
        self.state = state::MALFORMED;
        self.line = match error {
            FramingError::ChunkSize => 1,
            FramingError::ChunkSizeOverflow => 2,
            FramingError::LineEnd => 3,
            FramingError::ControlByte => 4,
            FramingError::ExtensionTooLong => 5,
            FramingError::TrailersTooLong => 6,
        };
    }

    /// Whether the next bytes are payload, which [`Framing::skip`] passes over unseen.
    #[inline(always)]
    pub const fn in_payload(&self) -> bool {
        matches!(self.state, state::LENGTH | state::DATA | state::UNTIL_CLOSE)
    }

    /// Passes over payload: of `available` bytes, says how many belong to it, and consumes them.
    /// Zero when the next byte is not payload.
    #[inline(always)]
    pub fn skip(&mut self, available: u64) -> u64 {
        match self.state {
            state::UNTIL_CLOSE => available,
            state::LENGTH | state::DATA => {
                let taken = if available < self.remaining { available } else { self.remaining };
                self.remaining -= taken;
                if self.remaining == 0 {
                    self.state =
                        if self.state == state::LENGTH { state::DONE } else { state::DATA_CR };
                }
                taken
            }
            _ => 0,
        }
    }

    /// Consumes one byte that is not payload.
    ///
    /// A call in a payload state, or after the end, changes nothing.
    #[inline(always)]
    pub fn step(&mut self, byte: u8) {
        match self.state {
            state::SIZE_FIRST => match hex(byte) {
                Some(digit) => {
                    self.remaining = digit as u64;
                    self.state = state::SIZE;
                }
                None => self.fail(FramingError::ChunkSize),
            },
            state::SIZE => match (hex(byte), byte) {
                (Some(digit), _) => {
                    if self.remaining >> 59 != 0 {
                        self.fail(FramingError::ChunkSizeOverflow);
                    } else {
                        self.remaining = self.remaining << 4 | digit as u64;
                    }
                }
                (None, b';') => {
                    self.line = 1;
                    self.state = state::EXTENSION;
                }
                (None, b'\r') => self.state = state::SIZE_LF,
                _ => self.fail(FramingError::ChunkSize),
            },
            state::EXTENSION => match byte {
                b'\r' => self.state = state::SIZE_LF,
                b'\n' => self.fail(FramingError::LineEnd),
                _ if is_control(byte) => self.fail(FramingError::ControlByte),
                _ if self.line >= MAX_EXTENSION => self.fail(FramingError::ExtensionTooLong),
                _ => self.line += 1,
            },
            state::SIZE_LF => {
                self.line = 0;
                if byte != b'\n' {
                    self.fail(FramingError::LineEnd);
                } else if self.remaining == 0 {
                    self.state = state::TRAILER_START;
                } else {
                    self.state = state::DATA;
                }
            }
            state::DATA_CR => {
                self.state = state::DATA_LF;
                if byte != b'\r' {
                    self.fail(FramingError::LineEnd);
                }
            }
            state::DATA_LF => {
                self.state = state::SIZE_FIRST;
                if byte != b'\n' {
                    self.fail(FramingError::LineEnd);
                }
            }
            state::TRAILER_START | state::TRAILER => {
                if self.line >= MAX_TRAILERS {
                    self.fail(FramingError::TrailersTooLong);
                    return;
                }
                self.line += 1;
                match byte {
                    b'\r' if self.state == state::TRAILER_START => self.state = state::FINAL_LF,
                    b'\r' => self.state = state::TRAILER_LF,
                    b'\n' => self.fail(FramingError::LineEnd),
                    _ if is_control(byte) => self.fail(FramingError::ControlByte),
                    _ => self.state = state::TRAILER,
                }
            }
            state::TRAILER_LF => {
                self.line += 1;
                self.state = state::TRAILER_START;
                if byte != b'\n' {
                    self.fail(FramingError::LineEnd);
                }
            }
            state::FINAL_LF => {
                self.line = 0;
                self.state = state::DONE;
                if byte != b'\n' {
                    self.fail(FramingError::LineEnd);
                }
            }
            _ => {}
        }
    }

    /// Consumes bytes up to the end of the body.
    ///
    /// Returns how many of `bytes` belong to the body: all of them unless the body ended within.
    ///
    /// # Errors
    /// When the bytes are no chunked body. The machine stays in the error.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, FramingError> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if self.in_payload() {
                at += self.skip((bytes.len() - at) as u64) as usize;
            } else {
                self.step(bytes[at]);
                if let Some(error) = self.error() {
                    return Err(error);
                }
                at += 1;
            }
        }
        Ok(at)
    }
}

#[inline(always)]
const fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Control bytes other than the horizontal tab (RFC 9110 section 5.5).
#[inline(always)]
const fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(bytes: &[u8]) -> Result<(usize, bool), FramingError> {
        let mut framing = Framing::chunked();
        framing.advance(bytes).map(|n| (n, framing.is_done()))
    }

    #[test]
    fn length_ends_after_its_bytes() {
        let mut framing = Framing::length(5);
        assert_eq!(framing.advance(b"abc"), Ok(3));
        assert!(!framing.is_done());
        assert_eq!(framing.advance(b"defgh"), Ok(2));
        assert!(framing.is_done());
        assert_eq!(framing.advance(b"x"), Ok(0));
        assert!(Framing::length(0).is_done());
    }

    #[test]
    fn until_close_never_ends() {
        let mut framing = Framing::until_close();
        assert_eq!(framing.advance(&[0; 1000]), Ok(1000));
        assert!(!framing.is_done());
    }

    #[test]
    fn chunked_bodies_end_where_the_rfc_says() {
        let cases: &[&[u8]] = &[
            b"0\r\n\r\n",
            b"000\r\n\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"A;name=\"value\";x\r\n0123456789\r\n0;last\r\n\r\n",
            b"a\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\nTrailer: yes\r\nOther:\t1\r\n\r\n",
        ];
        for case in cases {
            let mut with_next = case.to_vec();
            with_next.extend_from_slice(b"GET / HTTP/1.1\r\n");
            assert_eq!(run(&with_next), Ok((case.len(), true)), "{case:?}");
            assert_eq!(run(&case[..case.len() - 1]), Ok((case.len() - 1, false)), "{case:?}");
        }
    }

    #[test]
    fn malformed_bodies_are_named() {
        use FramingError::*;
        let cases: &[(&[u8], FramingError)] = &[
            (b"\r\n", ChunkSize),
            (b"-1\r\n", ChunkSize),
            (b"+1\r\n", ChunkSize),
            (b"0x1\r\n", ChunkSize),
            (b" 1\r\n", ChunkSize),
            (b"1 \r\n", ChunkSize),
            (b"1\n", ChunkSize),
            (b";\r\n", ChunkSize),
            (b"1\rx", LineEnd),
            (b"1\r\nab", LineEnd),
            (b"1\r\na\n", LineEnd),
            (b"1\r\na\r\r", LineEnd),
            (b"1;a\n", LineEnd),
            (b"1;a\0", ControlByte),
            (b"0\r\n\n", LineEnd),
            (b"0\r\na\n", LineEnd),
            (b"0\r\na\x01", ControlByte),
            (b"0\r\n\rx", LineEnd),
            (b"8000000000000000\r\n", ChunkSizeOverflow),
            (b"10000000000000000\r\n", ChunkSizeOverflow),
        ];
        for (case, error) in cases {
            assert_eq!(run(case), Err(*error), "{case:?}");
        }
        assert_eq!(run(b"7fffffffffffffff\r\n"), Ok((18, false)));
    }

    #[test]
    fn limits_hold_at_the_boundary() {
        let extension = |n: usize| {
            let mut body = b"1".to_vec();
            body.push(b';');
            body.resize(1 + n, b'x');
            body.extend_from_slice(b"\r\na\r\n0\r\n\r\n");
            body
        };
        assert!(run(&extension(MAX_EXTENSION as usize)).is_ok());
        assert_eq!(
            run(&extension(MAX_EXTENSION as usize + 1)),
            Err(FramingError::ExtensionTooLong)
        );
        let trailers = |n: usize| {
            let mut body = b"0\r\n".to_vec();
            body.resize(3 + n - 4, b'x');
            body.extend_from_slice(b"\r\n\r\n");
            body
        };
        assert!(run(&trailers(MAX_TRAILERS as usize)).is_ok());
        assert_eq!(run(&trailers(MAX_TRAILERS as usize + 2)), Err(FramingError::TrailersTooLong));
    }

    proptest! {
        /// The kernel steps where user space advances: both must agree on any cut of any input.
        #[test]
        fn any_cut_gives_the_same_result(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b'a'), Just(b';'), any::<u8>()],
                0..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(bytes.len());
            let mut whole = Framing::chunked();
            let whole_result = whole.advance(&bytes);
            let mut parts = Framing::chunked();
            let parts_result = parts.advance(&bytes[..cut]).and_then(|first| {
                if first < cut { Ok(first) } else { parts.advance(&bytes[cut..]).map(|n| first + n) }
            });
            prop_assert_eq!(whole_result, parts_result);
            prop_assert_eq!(whole, parts);
        }

        /// A body that a correct sender writes is followed to its exact end.
        #[test]
        fn written_bodies_are_read_to_their_end(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
            surplus in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            let length = body.len();
            body.extend_from_slice(&surplus);
            let mut framing = Framing::chunked();
            prop_assert_eq!(framing.advance(&body), Ok(length));
            prop_assert!(framing.is_done());
        }
    }
}
