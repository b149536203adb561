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
    // ln m = 2 atanh((m - 1) / (m + 1)); |z| <= 1/3 gives 2e-12 with these terms at worst, and less
    // is only needed to tell neighbours among 2^52 apart, which the seeds do as well.
    let (mantissa, exponent) =
        if mantissa > std::f64::consts::SQRT_2 { (mantissa / 2.0, 0.0) } else { (mantissa, 1.0) };
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let z2 = z * z;
    let mut series = 0.0;
    let mut n = 19.0;
    while n >= 1.0 {
        series = series * z2 + 1.0 / n;
        n -= 2.0;
    }
    2.0 * z * series - (exponent + f64::from(shift)) * std::f64::consts::LN_2
}

/// All instances of `variant`, in the order in which `key` prefers them, with their scores (higher
/// is better). Whether they can serve is not asked.
pub fn rank(variant: &Variant, key: PrefixKey) -> Vec<(Arc<Instance>, f64)> {
    let mut ranked: Vec<_> = variant.instances.iter().map(|i| (Distance::new(key, i), i)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
    ranked.into_iter().map(|(distance, i)| (Arc::clone(i), 1.0 / distance.draw)).collect()
}
