//! Following a body in user space while the kernel carries it.
//!
//! What the program cannot parse in order, because bytes before it are missing or because a packet holds
//! more chunks than it may look at, it forwards only when a copy of the payload was delivered here.
//! [`Ahead`] puts the copies in order and parses them; [`Pair::followed`](super::state::Pair::followed)
//! takes what it has found, and says when the program can go on by itself.

use alloc::{boxed::Box, vec};

use crate::framing::{Framing, FramingError};

/// Most bytes between what was parsed and the end of a copy: the program forwards nothing beyond.
pub const REACH: u64 = 64 * 1024;

/// What a source does that no correct one does. The stream must not go on: both connections are to be
/// reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The bytes are no chunked body.
    Malformed(FramingError),
    /// There are bytes behind the end of the body.
    Surplus,
    /// Bytes were sent again, and are not the same.
    Changed,
    /// A copy reaches further than [`REACH`], or begins before the body: not from the program.
    OutOfReach,
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Surplus => f.write_str("there are bytes behind the end of the body"),
            Self::Changed => f.write_str("bytes of the body were sent again, with other values"),
            Self::OutOfReach => f.write_str("a copy of the body is out of reach"),
        }
    }
}

impl core::error::Error for Trouble {}

/// Copies of a body's bytes, in order as far as they are.
#[derive(Debug)]
pub struct Ahead {
    parsed: u64,
    highest: u64,
    framing: Framing,
    /// The byte at position `p` is at `p % REACH`, if its bit in `there` is set.
    bytes: Box<[u8]>,
    there: Box<[u64]>,
}

impl Ahead {
    /// Begins at `parsed`, where the body stands as `framing` says.
    pub fn new(parsed: u64, framing: Framing) -> Self {
        Self {
            parsed,
            highest: parsed,
            framing,
            bytes: vec![0; REACH as usize].into_boxed_slice(),
            there: vec![0; REACH as usize / 64].into_boxed_slice(),
        }
    }

    /// Up to where the body was parsed.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }

    /// Where the body stands there.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether bytes are missing between what was parsed and the end of some copy.
    pub fn has_hole(&self) -> bool {
        self.highest > self.parsed
    }

    /// Takes the payload of a packet whose first byte is at position `at`, and parses as far as there
    /// is no hole.
    ///
    /// # Errors
    /// See [`Trouble`]; nothing may be taken afterwards.
    pub fn take(&mut self, at: i64, payload: &[u8]) -> Result<(), Trouble> {
        let end = at + payload.len() as i64;
        if at < 0 || end > (self.parsed + REACH) as i64 {
            return Err(Trouble::OutOfReach);
        }
        let old = (self.parsed as i64 - at).max(0) as usize;
        for (place, byte) in (at as u64..).zip(payload).skip(old) {
            let index = (place % REACH) as usize;
            let bit = 1 << (index % 64);
            if self.there[index / 64] & bit == 0 {
                self.there[index / 64] |= bit;
                self.bytes[index] = *byte;
            } else if self.bytes[index] != *byte {
                return Err(Trouble::Changed);
            }
        }
        self.highest = self.highest.max(end as u64);
        self.parse()
    }

    fn parse(&mut self) -> Result<(), Trouble> {
        while self.parsed < self.highest {
            let from = (self.parsed % REACH) as usize;
            let run = self.run(from).min((self.highest - self.parsed) as usize);
            if run == 0 {
                break;
            }
            if self.framing.is_done() {
                return Err(Trouble::Surplus);
            }
            let used = self.framing.advance(&self.bytes[from..from + run]);
            let used = used.map_err(Trouble::Malformed)?;
            for index in from..from + used {
                self.there[index / 64] &= !(1 << (index % 64));
            }
            self.parsed += used as u64;
        }
        if self.framing.is_done() && self.highest > self.parsed {
            return Err(Trouble::Surplus);
        }
        Ok(())
    }

    /// How many bytes are there from an index on, up to the end of the ring.
    fn run(&self, from: usize) -> usize {
        let mut at = from;
        while at < REACH as usize {
            let ones = (self.there[at / 64] >> (at % 64)).trailing_ones() as usize;
            at += ones;
            if ones < 64 - (at - ones) % 64 {
                break;
            }
        }
        at.min(REACH as usize) - from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(chunks: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, size) in chunks.iter().enumerate() {
            out.extend(format!("{size:x}\r\n").as_bytes());
            out.extend((0..*size).map(|at| (at * 7 + i) as u8));
            out.extend(b"\r\n");
        }
        out.extend(b"0\r\n\r\n");
        out
    }

    #[test]
    fn bytes_are_parsed_once_the_hole_is_filled() {
        let bytes = body(&[5, 300]);
        let mut ahead = Ahead::new(0, Framing::chunked());
        ahead.take(10, &bytes[10..]).unwrap();
        assert_eq!((ahead.parsed(), ahead.has_hole()), (0, true));
        ahead.take(0, &bytes[..4]).unwrap();
        assert_eq!((ahead.parsed(), ahead.has_hole()), (4, true));
        ahead.take(2, &bytes[2..12]).unwrap();
        assert!(ahead.framing().is_done() && !ahead.has_hole());
        assert_eq!(ahead.parsed(), bytes.len() as u64);
    }

    #[test]
    fn bytes_behind_the_end_are_noticed_whenever_they_come() {
        let bytes = body(&[5]);
        let end = bytes.len() as i64;
        let fresh = || Ahead::new(0, Framing::chunked());
        let mut together = bytes.clone();
        together.push(b'H');
        assert_eq!(fresh().take(0, &together), Err(Trouble::Surplus));
        let mut before = fresh();
        before.take(end, b"HTTP").unwrap();
        assert_eq!(before.take(0, &bytes), Err(Trouble::Surplus));
        let mut after_a_hole = fresh();
        after_a_hole.take(end + 1, b"TTP").unwrap();
        assert_eq!(after_a_hole.take(0, &bytes), Err(Trouble::Surplus));
        let mut after = fresh();
        after.take(0, &bytes).unwrap();
        assert_eq!(after.take(2, &bytes[2..]), Ok(()), "a repetition of what is known");
        assert_eq!(after.take(end, b"H"), Err(Trouble::Surplus));
    }

    #[test]
    fn what_no_correct_source_sends() {
        let mut ahead = Ahead::new(100, Framing::chunked());
        ahead.take(110, b"abc").unwrap();
        assert_eq!(ahead.take(111, b"x"), Err(Trouble::Changed));
        let far = (100 + REACH) as i64;
        assert_eq!(Ahead::new(100, Framing::chunked()).take(far - 2, b"ab"), Ok(()));
        let mut ahead = Ahead::new(100, Framing::chunked());
        assert_eq!(ahead.take(far - 1, b"ab"), Err(Trouble::OutOfReach));
        assert_eq!(ahead.take(-1, b"ab"), Err(Trouble::OutOfReach));
        let error = Trouble::Malformed(FramingError::ChunkSize);
        assert_eq!(ahead.take(100, b"zz"), Err(error));
    }

    proptest! {
        /// Any cut, in any order, with repetitions and overlaps, from any position on.
        #[test]
        fn the_end_is_found_whatever_the_order(
            chunks in proptest::collection::vec(1usize..2000, 0..40),
            start in 0u64..200_000,
            cuts in proptest::collection::vec((any::<proptest::sample::Index>(), 1usize..3000), 0..200),
        ) {
            let bytes = body(&chunks);
            let mut ahead = Ahead::new(start, Framing::chunked());
            let mut sent = vec![false; bytes.len()];
            for (from, len) in cuts {
                let from = from.index(bytes.len());
                let to = (from + len).min(bytes.len());
                if to as u64 > ahead.parsed() - start + REACH {
                    continue;
                }
                ahead.take((start as i64) + from as i64, &bytes[from..to]).unwrap();
                sent[from..to].fill(true);
                let parsed = sent.iter().position(|there| !there).unwrap_or(bytes.len());
                prop_assert_eq!(ahead.parsed() - start, parsed as u64);
            }
            for (from, part) in (0..).zip(bytes.chunks(1000)) {
                ahead.take(start as i64 + from * 1000, part).unwrap();
            }
            prop_assert!(ahead.framing().is_done() && !ahead.has_hole());
            prop_assert_eq!(ahead.parsed() - start, bytes.len() as u64);
        }
    }
}
