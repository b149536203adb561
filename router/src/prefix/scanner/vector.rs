//! What is looked for in 64 bytes at once, as bits, the first byte lowest.
//!
//! `fearless_simd` picks the widest instructions of the machine at run time, and needs no unsafe code
//! here.

use fearless_simd::{Level, prelude::*, u8x64};

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// The machine's best instructions.
pub(super) fn level() -> Level {
    Level::new()
}

/// The lowest `count` bits.
#[inline(always)]
pub(super) const fn low(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// A block of input; behind its end there are zeros, which mean nothing in JSON.
#[derive(Clone, Copy)]
pub(super) struct Block<S: Simd> {
    simd: S,
    bytes: u8x64<S>,
    /// Bytes of input in it.
    pub(super) len: u32,
}

impl<S: Simd> Block<S> {
    /// A full block.
    #[inline(always)]
    pub(super) fn full(simd: S, block: &[u8; BLOCK]) -> Self {
        Self { simd, bytes: u8x64::from_slice(simd, block), len: BLOCK as u32 }
    }

    /// The beginning of `input`.
    #[inline(always)]
    pub(super) fn load(simd: S, input: &[u8]) -> Self {
        if let Some(block) = input.first_chunk() {
            return Self::full(simd, block);
        }
        let mut block = [0; BLOCK];
        block[..input.len()].copy_from_slice(input);
        Self { len: input.len() as u32, ..Self::full(simd, &block) }
    }

    /// Bytes equal to `byte`.
    #[inline(always)]
    pub(super) fn is(&self, byte: u8) -> u64 {
        self.bytes.simd_eq(u8x64::splat(self.simd, byte)).to_bitmask()
    }

    /// Bytes that continue a character of UTF-8.
    #[inline(always)]
    pub(super) fn continuations(&self) -> u64 {
        let top = self.bytes & u8x64::splat(self.simd, 0xc0);
        top.simd_eq(u8x64::splat(self.simd, 0x80)).to_bitmask()
    }
}

/// Whether there is a quote in these blocks.
#[inline(always)]
pub(super) fn any_quote<S: Simd>(simd: S, blocks: &[[u8; BLOCK]; 4]) -> bool {
    let quote = u8x64::splat(simd, b'"');
    let [a, b, c, d] = blocks.each_ref().map(|b| u8x64::from_slice(simd, b).simd_eq(quote));
    (a | b | c | d).any_true()
}

/// Bytes of a group of blocks.
pub(super) const GROUP: usize = 4 * BLOCK;

/// What is in a group of blocks.
pub(super) enum Group {
    /// No bracket that counts, no two backslashes in a row, and an odd or even number of quotes that
    /// have no backslash before them.
    Quiet { odd: bool },
    /// Anything else.
    Loud,
}

/// Looks at a group; `window` begins with the byte before it. Brackets are `open` and the one two
/// codes on, which closes it; none counts when all of the group is within one string.
#[inline(always)]
pub(super) fn group<S: Simd>(
    simd: S,
    window: &[u8; GROUP + 1],
    open: u8,
    in_string: bool,
) -> Group {
    let splat = |byte| u8x64::splat(simd, byte);
    let at = |at: usize| u8x64::from_slice(simd, &window[at..at + BLOCK]);
    // Additions and minima cost less than comparisons: what is looked for is made zero, and of four
    // blocks the smallest bytes are compared.
    let bracket = |at: u8x64<S>| (at - splat(open)) & splat(!2);
    let run = |before: u8x64<S>, at: u8x64<S>| (before ^ splat(b'\\')) | (at ^ splat(b'\\'));
    let quote =
        |before: u8x64<S>, at: u8x64<S>| at.simd_eq(splat(b'"')) & !before.simd_eq(splat(b'\\'));
    let blocks = [0, 1, 2, 3].map(|n| (at(n * BLOCK), at(n * BLOCK + 1)));
    let smallest = |[a, b, c, d]: [u8x64<S>; 4]| a.min(b).min(c.min(d));
    let brackets = smallest(blocks.map(|(_, at)| bracket(at)));
    let runs = smallest(blocks.map(|(before, at)| run(before, at)));
    let [a, b, c, d] = blocks.map(|(before, at)| quote(before, at));
    if !brackets.min(runs).simd_eq(splat(0)).any_true() {
        return Group::Quiet { odd: (a ^ b ^ c ^ d).to_bitmask().count_ones() % 2 == 1 };
    }
    let one_string = in_string && !(a | b | c | d).any_true();
    if one_string && !runs.simd_eq(splat(0)).any_true() {
        return Group::Quiet { odd: false };
    }
    Group::Loud
}

/// The bytes of a full block that a backslash before them makes literal, and whether the byte behind
/// the block is. `carry` says whether the first byte is.
#[inline(always)]
pub(super) fn literals(backslashes: u64, carry: bool) -> (u64, bool) {
    let after = backslashes << 1 | u64::from(carry);
    if after & backslashes != 0 {
        // Backslashes in a row are rare, and all this work would be for nothing.
        return literals_in_runs(backslashes, carry);
    }
    (after, backslashes >> 63 == 1)
}

#[cold]
#[inline(never)]
fn literals_in_runs(backslashes: u64, carry: bool) -> (u64, bool) {
    // In a run of backslashes, every other one escapes. Subtracting lets the carry run through the
    // run: it comes out at an even or odd bit by the parity of the run's length.
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let carry = u64::from(carry);
    let escaping = backslashes & !carry;
    let even_runs = ((escaping << 1) | ODD).wrapping_sub(escaping) ^ ODD;
    let literal = even_runs ^ (backslashes | carry);
    (literal, (backslashes & !literal) >> 63 == 1)
}

/// For every bit, whether the number of bits up to and with it is odd.
#[inline(always)]
pub(super) const fn parity(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn escapes_are_as_read_one_by_one(backslashes in prop_oneof![
                any::<u64>(),
                (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c),
                (0u32..=64).prop_map(|n| !low(n)),
            ], carry: bool) {
            let mut expected = 0u64;
            let mut literal = carry;
            for bit in 0..64 {
                expected |= u64::from(literal) << bit;
                literal = !literal && backslashes >> bit & 1 == 1;
            }
            prop_assert_eq!(literals(backslashes, carry), (expected, literal));
        }

        #[test]
        fn parities(bits: u64) {
            for bit in 0..64 {
                let odd = (bits & low(bit + 1)).count_ones() % 2 == 1;
                prop_assert_eq!(parity(bits) >> bit & 1 == 1, odd);
            }
        }
    }
}
