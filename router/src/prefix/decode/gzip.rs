//! `gzip`: members of RFC 1952, one behind the other.

use super::{Corrupt, Decode, deflate::Inflate};

/// What comes next.
#[derive(Clone, Copy, Default)]
enum State {
    /// Bytes of the fixed part of a header: how many have come, and the flags.
    #[default]
    Start,
    Fixed(u8),
    /// Two bytes of length, and so many bytes.
    ExtraLength(u8),
    Extra,
    /// Text up to a NUL.
    Name,
    Comment,
    HeaderSum(u8),
    Body,
    /// Checksum and length, which are not checked: the decision is as good without.
    Trailer(u8),
}

/// `gzip`.
pub(super) struct Gzip {
    state: State,
    flags: u8,
    extra: u16,
    inflate: Inflate,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { state: State::Start, flags: 0, extra: 0, inflate: Inflate::new(false) }
    }
}

/// Bits of the flags.
const HEADER_SUM: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;

impl Gzip {
    /// Takes a byte outside of the compressed data.
    fn byte(&mut self, byte: u8) -> Result<(), Corrupt> {
        self.state = match self.state {
            State::Start if byte == 0x1f => State::Fixed(1),
            State::Start => return Err(Corrupt),
            State::Fixed(at) => {
                match (at, byte) {
                    (1, 0x8b) | (2, 8) | (4.., _) => {}
                    (3, flags) if flags & 0xe0 == 0 => self.flags = flags,
                    _ => return Err(Corrupt),
                }
                if at < 9 { State::Fixed(at + 1) } else { self.behind(0) }
            }
            State::ExtraLength(0) => {
                self.extra = u16::from(byte);
                State::ExtraLength(1)
            }
            State::ExtraLength(_) => {
                self.extra |= u16::from(byte) << 8;
                if self.extra > 0 { State::Extra } else { self.behind(EXTRA) }
            }
            State::Extra => {
                self.extra -= 1;
                if self.extra > 0 { State::Extra } else { self.behind(EXTRA) }
            }
            State::Name if byte == 0 => self.behind(NAME),
            State::Comment if byte == 0 => self.behind(COMMENT),
            State::HeaderSum(0) => State::HeaderSum(1),
            State::HeaderSum(_) => State::Body,
            State::Trailer(7) => State::Start,
            State::Trailer(at) => State::Trailer(at + 1),
            same @ (State::Name | State::Comment | State::Body) => same,
        };
        Ok(())
    }

    /// What comes behind the part of the header that this flag announces.
    fn behind(&self, flag: u8) -> State {
        let next = [(EXTRA, State::ExtraLength(0)), (NAME, State::Name), (COMMENT, State::Comment)];
        let part = next.into_iter().find(|(bit, _)| *bit > flag && self.flags & bit != 0);
        match part {
            Some((_, state)) => state,
            None if self.flags & HEADER_SUM != 0 => State::HeaderSum(0),
            None => State::Body,
        }
    }
}

impl Decode for Gzip {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt> {
        let mut read = 0;
        while !matches!(self.state, State::Body) {
            let Some(byte) = input.get(read) else { return Ok((read, 0)) };
            self.byte(*byte)?;
            read += 1;
        }
        let (more, made) = self.inflate.step(&input[read..], out)?;
        if self.inflate.has_ended() {
            self.inflate.reset();
            self.state = State::Trailer(0);
        }
        Ok((read + more, made))
    }
}
