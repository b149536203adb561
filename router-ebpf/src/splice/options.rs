//! The TCP options that a splice must know: timestamps and SACK.
//!
//! Options are walked once, over a copy of the header's at most 40 bytes; rewriting keeps their
//! length, so that a header never grows or shrinks.

use super::{seq, timestamps::Timestamps};

/// Room for the options: 40 bytes at most (RFC 9293 section 3.1), rounded up to a power of two, so
/// that a masked index is always within it.
pub type Bytes = [u8; 64];
const MASK: usize = 63;
/// Most bytes of options.
pub const MAX: usize = 40;

const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// A range of bytes that has arrived, from `left` to before `right`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first byte.
    pub left: u32,
    /// The one behind the last.
    pub right: u32,
}

/// The blocks of a SACK option (RFC 2018); none when there is no such option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    /// How many of the blocks are there, 4 at most.
    pub count: u8,
    /// The blocks.
    pub blocks: [Block; 4],
}

impl Sack {
    /// Adds a block; there must not be four yet. (A comparison here would make the compiler leave
    /// out the mask, without which the kernel's verifier does not see that the index is in range.)
    #[inline(always)]
    pub fn push(&mut self, block: Block) {
        debug_assert!(self.count < 4);
        self.blocks[(self.count & 3) as usize] = block;
        self.count += 1;
    }

    /// All blocks moved by `offset`.
    #[inline(always)]
    pub fn shifted(&self, offset: u32) -> Self {
        let mut out = Self { count: self.count, ..Self::default() };
        let mut i = 0;
        while i < 4 {
            out.blocks[i] = Block {
                left: self.blocks[i].left.wrapping_add(offset),
                right: self.blocks[i].right.wrapping_add(offset),
            };
            i += 1;
        }
        out
    }

    /// The blocks as positions relative to number `base`, which is at position `at`; cut to
    /// `from..to`, and numbered so that position 0 becomes `zero`. What is empty is left out.
    #[inline(always)]
    pub fn cut(&self, base: u32, at: i64, from: i64, to: i64, zero: u32) -> Self {
        let mut out = Self::default();
        self.cut_into(&mut out, base, at, from, to, zero);
        out
    }

    /// As [`Sack::cut`], in place: the kernel programs' stack is small.
    #[inline(always)]
    pub fn cut_into(&self, out: &mut Self, base: u32, at: i64, from: i64, to: i64, zero: u32) {
        out.count = 0;
        let mut i = 0u8;
        while i < 4 {
            if i < self.count {
                let block = self.blocks[i as usize];
                let left = at + seq::distance(base, block.left);
                let right = at + seq::distance(base, block.right);
                let left = if left < from { from } else { left };
                let right = if right > to { to } else { right };
                if left < right {
                    out.push(Block {
                        left: seq::shift(zero, left),
                        right: seq::shift(zero, right),
                    });
                }
            }
            i += 1;
        }
    }
}

/// What was found, and where, for writing it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// The SACK blocks.
    pub sack: Sack,
    /// Offset of the timestamps option plus one; 0 for none.
    timestamps_at: u8,
    /// Offset of the SACK option plus one; 0 for none.
    sack_at: u8,
}

#[inline(always)]
fn load(bytes: &Bytes, at: usize) -> u32 {
    u32::from_be_bytes([
        bytes[at & MASK],
        bytes[(at + 1) & MASK],
        bytes[(at + 2) & MASK],
        bytes[(at + 3) & MASK],
    ])
}

#[inline(always)]
fn store(bytes: &mut Bytes, at: usize, value: u32) {
    let [a, b, c, d] = value.to_be_bytes();
    bytes[at & MASK] = a;
    bytes[(at + 1) & MASK] = b;
    bytes[(at + 2) & MASK] = c;
    bytes[(at + 3) & MASK] = d;
}

impl Options {
    /// What a walk finds in the usual header: two no-operations and the timestamps, or nothing.
    #[inline(always)]
    pub fn stamped(timestamps: Option<Timestamps>) -> Self {
        let timestamps_at = if timestamps.is_some() { 2 + 1 } else { 0 };
        Self { timestamps, timestamps_at, ..Self::default() }
    }

    /// Walks the first `length` of `bytes` (40 at most). Nothing when they are malformed: such a
    /// packet is best left to the socket.
    #[inline(always)]
    pub fn parse(bytes: &Bytes, length: usize) -> Option<Self> {
        let mut found = Self::default();
        if length > MAX {
            return None;
        }
        let mut at = 0;
        while at < length {
            at = found.step(bytes, length, at)?;
        }
        Some(found)
    }

    /// Looks at the option at `at`, which is before `length`, and says where the next one is: at
    /// `length` or behind it when there is none. Nothing when it is malformed.
    #[inline(always)]
    pub fn step(&mut self, bytes: &Bytes, length: usize, at: usize) -> Option<usize> {
        let kind = bytes[at & MASK];
        if kind == END {
            return Some(length);
        }
        if kind == NOP {
            return Some(at + 1);
        }
        if at + 1 >= length {
            return None;
        }
        let size = bytes[(at + 1) & MASK] as usize;
        if size < 2 || at + size > length {
            return None;
        }
        if kind == TIMESTAMPS && size == 10 {
            self.timestamps =
                Some(Timestamps { value: load(bytes, at + 2), echo: load(bytes, at + 6) });
            self.timestamps_at = at as u8 + 1;
        }
        if kind == SACK && size >= 10 && size % 8 == 2 {
            self.sack_at = at as u8 + 1;
            self.sack = Sack::default();
            let mut i = 0;
            while i < 4 {
                if 2 + 8 * i < size {
                    let block = at + 2 + 8 * i;
                    self.sack
                        .push(Block { left: load(bytes, block), right: load(bytes, block + 4) });
                }
                i += 1;
            }
        }
        Some(at + size)
    }

    /// Writes other values where these were found in `bytes`. `sack` has at most as many blocks;
    /// the room of the rest is filled with no-operations.
    #[inline(always)]
    pub fn rewrite(&self, bytes: &mut Bytes, timestamps: Option<Timestamps>, sack: &Sack) {
        if let (1.., Some(new)) = (self.timestamps_at, timestamps) {
            let at = self.timestamps_at as usize - 1;
            store(bytes, at + 2, new.value);
            store(bytes, at + 6, new.echo);
        }
        if self.sack_at == 0 {
            return;
        }
        let at = self.sack_at as usize - 1;
        let mut i = 0u8;
        while i < 4 {
            let block = at + 2 + 8 * i as usize;
            if i < sack.count && i < self.sack.count {
                store(bytes, block, sack.blocks[i as usize].left);
                store(bytes, block + 4, sack.blocks[i as usize].right);
            } else if i < self.sack.count {
                store(bytes, block, u32::from_be_bytes([NOP; 4]));
                store(bytes, block + 4, u32::from_be_bytes([NOP; 4]));
            }
            i += 1;
        }
        if sack.count == 0 {
            bytes[at & MASK] = NOP;
            bytes[(at + 1) & MASK] = NOP;
        } else if sack.count < self.sack.count {
            bytes[(at + 1) & MASK] = 2 + 8 * sack.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(options: &[u8]) -> (Bytes, usize) {
        let mut bytes = [0xee; 64];
        bytes[..options.len()].copy_from_slice(options);
        (bytes, options.len())
    }

    #[test]
    fn the_usual_layouts_are_found_and_rewritten() {
        let mut raw = vec![NOP, NOP, TIMESTAMPS, 10, 0, 0, 0, 5, 0, 0, 0, 6, NOP, NOP, SACK, 18];
        raw.extend([0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0, 40]);
        let (mut bytes, length) = header(&raw);
        let found = Options::parse(&bytes, length).unwrap();
        assert_eq!(found.timestamps, Some(Timestamps { value: 5, echo: 6 }));
        assert_eq!(found.sack.count, 2);
        assert_eq!(found.sack.blocks[1], Block { left: 30, right: 40 });

        let new = Timestamps { value: 7, echo: 8 };
        let mut sack = Sack::default();
        sack.push(Block { left: 100, right: 200 });
        found.rewrite(&mut bytes, Some(new), &sack);
        let again = Options::parse(&bytes, length).unwrap();
        assert_eq!((again.timestamps, again.sack), (Some(new), sack));

        let (usual, stamped) = header(&raw[..12]);
        assert_eq!(Options::parse(&usual, stamped), Some(Options::stamped(found.timestamps)));
        assert_eq!(Options::parse(&usual, 0), Some(Options::stamped(None)));

        again.rewrite(&mut bytes, None, &Sack::default());
        let last = Options::parse(&bytes, length).unwrap();
        assert_eq!((last.timestamps, last.sack), (Some(new), Sack::default()));
        assert!(bytes[length..].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn malformed_options_are_refused() {
        for raw in [&[TIMESTAMPS][..], &[TIMESTAMPS, 10, 1], &[SACK, 0], &[SACK, 1, 0], &[2, 9, 0]]
        {
            let (bytes, length) = header(raw);
            assert_eq!(Options::parse(&bytes, length), None, "{raw:?}");
        }
        assert_eq!(Options::parse(&[NOP; 64], 41), None);
        assert_eq!(Options::parse(&[NOP; 64], 40), Some(Options::default()));
    }

    #[test]
    fn blocks_are_cut_to_the_carried_range() {
        let mut sack = Sack::default();
        sack.push(Block { left: 90, right: 95 });
        sack.push(Block { left: 95, right: 110 });
        sack.push(Block { left: 130, right: 170 });
        let cut = sack.cut(100, 0, 0, 50, 1000);
        assert_eq!(cut.count, 2);
        assert_eq!(cut.blocks[0], Block { left: 1000, right: 1010 });
        assert_eq!(cut.blocks[1], Block { left: 1030, right: 1050 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked(raw in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let (mut bytes, length) = header(&raw);
            if let Some(found) = Options::parse(&bytes, length) {
                let stamp = found.timestamps.map(|_| Timestamps { value: 1, echo: 2 });
                found.rewrite(&mut bytes, stamp, &found.sack);
                let again = Options::parse(&bytes, length).unwrap();
                prop_assert_eq!((again.timestamps, again.sack), (stamp, found.sack));
                prop_assert!(bytes[length..].iter().all(|byte| *byte == 0xee));
            }
        }
    }
}
