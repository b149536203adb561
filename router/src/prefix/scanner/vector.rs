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
    /// The beginning of `input`.
    #[inline(always)]
    pub(super) fn load(simd: S, input: &[u8]) -> Self {
        match input.first_chunk::<BLOCK>() {
            Some(block) => Self { simd, bytes: u8x64::from_slice(simd, block), len: 64 },
            None => {
                let mut block = [0; BLOCK];
                block[..input.len()].copy_from_slice(input);
                let bytes = u8x64::from_slice(simd, &block);
                Self { simd, bytes, len: input.len() as u32 }
            }
        }
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
pub(super) fn any_quote<S: Simd>(simd: S, blocks: &[u8; 4 * BLOCK]) -> bool {
    let quote = u8x64::splat(simd, b'"');
    let is = |at: usize| u8x64::from_slice(simd, &blocks[at..at + BLOCK]).simd_eq(quote);
    (is(0) | is(BLOCK) | is(2 * BLOCK) | is(3 * BLOCK)).any_true()
}

/// Bytes that a backslash before them makes literal. `carry` says whether that is so of the first
/// byte.
#[inline(always)]
pub(super) fn escaped(backslashes: u64, carry: bool) -> u64 {
    // In a run of backslashes, every other one escapes. Subtracting lets the carry run through the
    // run: it comes out at an even or odd bit by the parity of the run's length.
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let carry = u64::from(carry);
    let escaping = backslashes & !carry;
    let even_runs = ((escaping << 1) | ODD).wrapping_sub(escaping) ^ ODD;
    even_runs ^ (backslashes | carry)
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
        fn escapes_are_as_read_one_by_one(backslashes in prop_oneof![any::<u64>(), Just(u64::MAX)], carry: bool) {
            let mut expected = 0u64;
            let mut literal = carry;
            for bit in 0..64 {
                expected |= u64::from(literal) << bit;
                literal = !literal && backslashes >> bit & 1 == 1;
            }
            prop_assert_eq!(escaped(backslashes, carry), expected);
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
