//! `deflate`: the zlib format (RFC 9110 section 8.4.1.2), or the bare one of RFC 1951 that some send.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Corrupt, Decode};

/// A stream of RFC 1951, with or without the header and trailer of zlib.
pub(super) struct Inflate {
    decompress: Decompress,
    ended: bool,
}

impl Inflate {
    pub(super) fn new(zlib: bool) -> Self {
        Self { decompress: Decompress::new(zlib), ended: false }
    }

    /// Begins another stream, a bare one.
    pub(super) fn reset(&mut self) {
        self.decompress.reset(false);
        self.ended = false;
    }

    /// Whether the stream has ended; it reads nothing then.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Decode for Inflate {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt> {
        if self.ended {
            return Ok((0, 0));
        }
        let before = (self.decompress.total_in(), self.decompress.total_out());
        let status = self.decompress.decompress(input, out, FlushDecompress::None);
        self.ended = status.map_err(|_| Corrupt)? == Status::StreamEnd;
        let read = self.decompress.total_in() - before.0;
        let made = self.decompress.total_out() - before.1;
        Ok((read as usize, made as usize))
    }
}

/// `deflate`.
#[derive(Default)]
pub(super) struct Deflate {
    /// The first byte, until the second one tells what it is the first of.
    first: Option<u8>,
    inflate: Option<Inflate>,
    /// The first byte has been decoded.
    begun: bool,
}

impl Decode for Deflate {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt> {
        let (Some(first), Some(inflate)) = (self.first, &mut self.inflate) else {
            let [byte, ..] = input else { return Ok((0, 0)) };
            match self.first {
                None => {
                    self.first = Some(*byte);
                    return Ok((1, 0));
                }
                // RFC 1950 section 2.2: method 8, and a multiple of 31.
                Some(first) => {
                    let zlib =
                        first & 0x0f == 8 && (u16::from(first) << 8 | u16::from(*byte)) % 31 == 0;
                    self.inflate = Some(Inflate::new(zlib));
                    return self.step(input, out);
                }
            }
        };
        if !self.begun {
            self.begun = true;
            // One byte makes no output.
            let (_, made) = inflate.step(&[first], out)?;
            let (read, more) = inflate.step(input, &mut out[made..])?;
            return Ok((read, made + more));
        }
        // What follows the stream's end is nobody's.
        if inflate.has_ended() {
            return Ok((input.len(), 0));
        }
        inflate.step(input, out)
    }
}
