//! Weighted rendezvous hashing: each instance draws a number from the key and its own seed, and the
//! best number wins.
//!
//! Nothing depends on the other instances, so a key moves only when its winner leaves, or when a
//! newcomer beats the winner. There is no state, and every gateway host finds the same order.

use std::{cmp::Ordering, sync::Arc};

use crate::fleet::{Instance, Variant};

/// The hash of what decides where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefixKey(pub u64);

/// How far an instance is from being a key's home: the smallest wins.
///
/// It is exponentially distributed with the weight as its rate, and the smallest of several such
/// draws falls to each with a probability in proportion to its weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    draw: f64,
    /// Makes the order total: two instances never tie.
    seed: u64,
}

impl Distance {
    pub(super) fn new(key: PrefixKey, instance: &Instance) -> Self {
        let bits = mix(mix(key.0).wrapping_add(instance.seed));
        Self { draw: -ln_unit(bits) / instance.weight(), seed: instance.seed }
    }

    pub(super) fn nearer_than(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Less
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.draw.total_cmp(&other.draw).then(self.seed.cmp(&other.seed))
    }
}

/// A 64-bit permutation in which every input bit flips every output bit half the time (the
/// finaliser of splitmix64).
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The natural logarithm of `(bits + 1) / 2^64`, the same on every machine.
///
/// `f64::ln` may round differently from one C library to the next, and gateway hosts would then
/// differ on a key now and then. This uses only additions, multiplications and divisions, which IEEE
/// 754 fixes to the last bit.
fn ln_unit(bits: u64) -> f64 {
    if bits == u64::MAX {
        return 0.0;
    }
    let bits = bits + 1;
    let shift = bits.leading_zeros();
    // 1 <= mantissa < 2, and the value is mantissa * 2^(-1 - shift).
    let mantissa = ((bits << shift) >> 11) as f64 / (1_u64 << 52) as f64;
    // ln m = 2 atanh(z) with z = (m - 1) / (m + 1). With m between 1/sqrt(2) and sqrt(2), z is at
    // most 0.172, and the first term left out, z^21/21, is below the precision of the type.
    let (mantissa, exponent) =
        if mantissa > std::f64::consts::SQRT_2 { (mantissa / 2.0, 0.0) } else { (mantissa, 1.0) };
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let z2 = z * z;
    let series = ATANH.iter().fold(0.0, |series, coefficient| series * z2 + coefficient);
    2.0 * z * series - (exponent + f64::from(shift)) * std::f64::consts::LN_2
}

/// Coefficients of `atanh(z) / z` by powers of `z * z`, the highest first.
const ATANH: [f64; 10] = [
    1.0 / 19.0,
    1.0 / 17.0,
    1.0 / 15.0,
    1.0 / 13.0,
    1.0 / 11.0,
    1.0 / 9.0,
    1.0 / 7.0,
    1.0 / 5.0,
    1.0 / 3.0,
    1.0,
];

/// All instances of `variant`, in the order in which `key` prefers them, with their scores (higher
/// is better). Whether they can serve is not asked.
pub fn rank(variant: &Variant, key: PrefixKey) -> Vec<(Arc<Instance>, f64)> {
    let mut ranked: Vec<_> = variant.instances.iter().map(|i| (Distance::new(key, i), i)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
    ranked.into_iter().map(|(distance, i)| (Arc::clone(i), 1.0 / distance.draw)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_to_the_last_bits_over_its_whole_range() {
        assert_eq!(ln_unit(u64::MAX), 0.0);
        let mut rng = fastrand::Rng::with_seed(3);
        let random = (0..100_000).map(|n| rng.u64(..) >> (n % 64));
        let edges = (0..64).flat_map(|n| [1 << n, (1 << n) - 1, u64::MAX - (1 << n)]);
        for bits in random.chain(edges) {
            let exact = ((bits as f64 + 1.0) / 2.0_f64.powi(64)).ln();
            let ours = ln_unit(bits);
            assert!(ours <= 0.0 && ours.is_finite());
            // Near 1 the reference itself loses what rounding to f64 takes from its argument.
            let error = (ours - exact).abs();
            assert!(error <= exact.abs() * 1e-15 + 2e-16, "{bits:#x}: {ours} for {exact}");
        }
    }

    #[test]
    fn every_input_bit_flips_half_the_output() {
        let mut rng = fastrand::Rng::with_seed(4);
        for bit in 0..64 {
            let flips: u32 = (0..2000)
                .map(|_| {
                    let x = rng.u64(..);
                    (mix(x) ^ mix(x ^ (1 << bit))).count_ones()
                })
                .sum();
            assert!((31.0..33.0).contains(&(f64::from(flips) / 2000.0)), "bit {bit}");
        }
    }
}
