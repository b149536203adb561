//! `zstd`: frames of RFC 8878, one behind the other.
//!
//! The frame decoder takes a block at a time, whole: a block is at most 128 KiB on either side, while any
//! number of them fits in a few bytes.

use std::io::Read;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Corrupt, Decode};

/// The largest window that a sender of HTTP may use (RFC 9659 section 3).
const MAX_WINDOW: u64 = 8 << 20;
/// The largest block (RFC 8878 section 3.1.1.2.4).
const MAX_BLOCK: usize = 128 << 10;

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The header of a frame.
    Frame,
    /// So many bytes of a frame that decoders skip.
    Skip(u32),
    /// A block.
    Block,
    /// What is left to be read of a frame, or of its blocks so far.
    Drain,
}

/// `zstd`.
pub(super) struct Zstd {
    state: State,
    /// Bytes of a header or a block that is not complete.
    pending: Vec<u8>,
    frame: FrameDecoder,
    checksum: bool,
}

impl Default for Zstd {
    fn default() -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MAX_WINDOW);
        Self { state: State::Frame, pending: Vec::new(), frame, checksum: false }
    }
}

impl Zstd {
    /// How many bytes the next header or block has, as far as `self.pending` tells: it may ask for a few
    /// first.
    fn wanted(&self) -> Result<usize, Corrupt> {
        let bytes = &self.pending;
        Ok(match self.state {
            State::Frame => match bytes.get(..5) {
                None => 5,
                Some([0x50..=0x5f, 0x2a, 0x4d, 0x18, _]) => 8,
                Some([0x28, 0xb5, 0x2f, 0xfd, descriptor]) => 5 + header(*descriptor),
                Some(_) => return Err(Corrupt),
            },
            State::Block => match bytes.get(..3) {
                None => 3,
                Some(head) => {
                    let head = usize::from(head[0])
                        | usize::from(head[1]) << 8
                        | usize::from(head[2]) << 16;
                    let size = head >> 3;
                    if size > MAX_BLOCK {
                        return Err(Corrupt);
                    }
                    let content = match head >> 1 & 3 {
                        1 => 1,
                        3 => return Err(Corrupt),
                        _ => size,
                    };
                    let checksum = if head & 1 == 1 && self.checksum { 4 } else { 0 };
                    3 + content + checksum
                }
            },
            State::Skip(_) | State::Drain => 0,
        })
    }

    /// Takes a header or a block that is complete.
    fn take(&mut self) -> Result<(), Corrupt> {
        let bytes = std::mem::take(&mut self.pending);
        match (self.state, bytes.as_slice()) {
            (State::Frame, [0x50..=0x5f, _, _, _, length @ ..]) => {
                let length = length.try_into().map_err(|_| Corrupt)?;
                self.state = State::Skip(u32::from_le_bytes(length));
            }
            (State::Frame, _) => {
                self.checksum = bytes[4] & 4 != 0;
                self.frame.reset(bytes.as_slice()).map_err(|_| Corrupt)?;
                self.state = State::Block;
            }
            _ => {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.frame.decode_blocks(bytes.as_slice(), one).map_err(|_| Corrupt)?;
                self.state = State::Drain;
            }
        }
        // Its memory serves the next one.
        self.pending = bytes;
        self.pending.clear();
        Ok(())
    }
}

/// The length of a frame's header behind its descriptor (RFC 8878 section 3.1.1.1).
fn header(descriptor: u8) -> usize {
    let single = descriptor >> 5 & 1;
    let window = usize::from(1 - single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = match descriptor >> 6 {
        0 => usize::from(single),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    window + dictionary + content
}

impl Decode for Zstd {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt> {
        let mut read = 0;
        loop {
            match &mut self.state {
                State::Drain => {
                    let made = self.frame.read(out).map_err(|_| Corrupt)?;
                    if made > 0 {
                        return Ok((read, made));
                    }
                    let finished = self.frame.is_finished();
                    self.state = if finished { State::Frame } else { State::Block };
                }
                State::Skip(0) => self.state = State::Frame,
                State::Skip(left) => {
                    let now = (input.len() - read).min(*left as usize);
                    *left -= now as u32;
                    read += now;
                    if now == 0 {
                        return Ok((read, 0));
                    }
                }
                State::Frame | State::Block => {
                    let wanted = self.wanted()?;
                    let missing = wanted - self.pending.len();
                    let now = missing.min(input.len() - read);
                    self.pending.extend_from_slice(&input[read..read + now]);
                    read += now;
                    if now < missing {
                        return Ok((read, 0));
                    }
                    if self.pending.len() == self.wanted()? {
                        self.take()?;
                    }
                }
            }
        }
    }
}
