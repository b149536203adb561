//! What the guard's kernel program and the gateway agree on: keys, verdicts, and the arithmetic of
//! the connection limit. All of it is pure, so that the host's tests cover what the kernel runs.
//!
//! Keys are plain bytes in network order. [`KEY`] bytes hold a port, a family and an address; the
//! parts that a map does not use are zero.

use core::num::{NonZeroU32, NonZeroU64};

/// Length of every key, in bytes: port (2), zero, family (1), address (16).
pub const KEY: usize = 20;
/// Bits of a list key that stand before the address: the prefix length of `0.0.0.0/0` and `::/0`.
pub const FAMILY_BITS: u32 = 32;
/// Bits of an IPv6 address that tell subscribers apart; the rest is theirs to choose (RFC 4291
/// section 2.5.4), so that limiting single addresses would limit nobody.
pub const SUBSCRIBER_BITS: u32 = 64;

/// Most IPv6 extension headers of a packet that are looked behind. RFC 8200 section 4.1 foresees
/// seven; a longer chain serves to hide the port.
pub const MAX_EXTENSIONS: u32 = 16;
/// Most bytes that those headers may take.
pub const MAX_EXTENSION_BYTES: u32 = 2048;
/// Most VLAN tags: an 802.1ad one around an 802.1Q one.
pub const MAX_TAGS: u32 = 2;

/// Words of 64 bits in the map of ports, a bit per port.
pub const PORT_WORDS: u32 = 1024;

/// What the lists say about a source. Bits of a list entry's value.
pub mod listed {
    /// The source may connect: it is on the allow list, or there is none.
    pub const ALLOW: u32 = 1;
    /// The source is on the deny list, whatever else it is on.
    pub const DENY: u32 = 2;
}

/// What became of a packet to the gateway's ports; indices of the counters.
pub mod verdict {
    /// It went on to the gateway.
    pub const PASSED: u32 = 0;
    /// Dropped: its source is on the deny list.
    pub const DENIED: u32 = 1;
    /// Dropped: there is an allow list, and its source is not on it.
    pub const NOT_ALLOWED: u32 = 2;
    /// Dropped: a new connection beyond its source's limit.
    pub const RATE_LIMITED: u32 = 3;
    /// Passed unseen: IP that could not be parsed, or a TCP fragment without ports.
    pub const UNPARSED: u32 = 4;
    /// How many there are.
    pub const COUNT: u32 = 5;
}

/// An address family, with the value that keys carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

/// The key of an IPv4 address; `port` is zero in the list and the buckets.
#[inline(always)]
pub const fn key_v4(address: [u8; 4], port: u16) -> [u8; KEY] {
    let [p, q] = port.to_be_bytes();
    let [a, b, c, d] = address;
    [p, q, 0, Family::V4 as u8, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The key of an IPv6 address; `port` is zero in the list and the buckets.
#[inline(always)]
pub const fn key_v6(address: [u8; 16], port: u16) -> [u8; KEY] {
    let [p, q] = port.to_be_bytes();
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, r] = address;
    [p, q, 0, Family::V6 as u8, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, r]
}

/// The key of any address of a family: what a listener on `0.0.0.0` or `[::]` answers.
#[inline(always)]
pub const fn key_any(family: Family, port: u16) -> [u8; KEY] {
    match family {
        Family::V4 => key_v4([0; 4], port),
        Family::V6 => key_v6([0; 16], port),
    }
}

/// Who a source is to the connection limit: an IPv4 address, or an IPv6 /64.
#[inline(always)]
pub const fn bucket_key(source: [u8; KEY]) -> [u8; KEY] {
    let mut key = source;
    if key[3] == Family::V6 as u8 {
        let mut i = (FAMILY_BITS + SUBSCRIBER_BITS) as usize / 8;
        while i < KEY {
            key[i] = 0;
            i += 1;
        }
    }
    key
}

/// Where a port's bit is in the map of ports: the word's index, and the bit.
#[inline(always)]
pub const fn port_bit(port: u16) -> (u32, u64) {
    (port as u32 / 64, 1 << (port % 64))
}

/// How many new connections a source may open: a token bucket.
///
/// A bucket is one word, the time at which it will be full again (the generic cell rate algorithm,
/// ITU-T I.371, in the terms of a bucket). So a compare-and-swap is all that CPUs need between them,
/// a refusal writes nothing, and a bucket that was forgotten equals one that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Connections per second in the long run; tokens per second.
    pub rate: NonZeroU32,
    /// Connections at once after a quiet time; tokens that fit in the bucket.
    pub burst: NonZeroU32,
}

/// What a bucket says to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Pass it, if the bucket can be swapped to this value.
    Take(u64),
    /// Drop it.
    Empty,
    /// Drop it, and swap the bucket to this value: it owes more than an empty bucket can, because
    /// the limit was raised or the clock is behind.
    Owes(u64),
}

const SECOND: u64 = 1_000_000_000;

impl Limit {
    /// Both numbers in one word, that the program reads at once; zero means no limit.
    pub const fn to_word(self) -> u64 {
        (self.rate.get() as u64) << 32 | self.burst.get() as u64
    }

    /// The limit in a word, if it holds one.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Self> {
        match (NonZeroU32::new((word >> 32) as u32), NonZeroU32::new(word as u32)) {
            (Some(rate), Some(burst)) => Some(Self { rate, burst }),
            _ => None,
        }
    }

    /// Nanoseconds that a token takes to grow, rounded up: the limit is never exceeded, and for
    /// rates up to a million it is met within a thousandth.
    #[inline(always)]
    fn interval(self) -> u64 {
        (SECOND + u64::from(self.rate.get()) - 1) / NonZeroU64::from(self.rate)
    }

    /// Nanoseconds in which an empty bucket fills. Below 2^62.
    #[inline(always)]
    fn capacity(self) -> u64 {
        self.interval() * u64::from(self.burst.get())
    }

    /// The bucket of a source that has just opened its first connection.
    #[inline(always)]
    pub fn first(self, now: u64) -> u64 {
        now.saturating_add(self.interval())
    }

    /// Asks `bucket` for a token at `now`, both in nanoseconds of the monotonic clock.
    ///
    /// `now` may lie before the time of an earlier call, as clocks of two CPUs may differ a little:
    /// that costs the tokens that the difference is worth.
    #[inline(always)]
    pub fn take(self, bucket: u64, now: u64) -> Tokens {
        let (interval, capacity) = (self.interval(), self.capacity());
        let missing = bucket.saturating_sub(now);
        if missing <= capacity - interval {
            Tokens::Take(now.saturating_add(missing + interval))
        } else if missing <= capacity {
            Tokens::Empty
        } else {
            Tokens::Owes(now.saturating_add(capacity))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(rate: u32, burst: u32) -> Limit {
        Limit { rate: NonZeroU32::new(rate).unwrap(), burst: NonZeroU32::new(burst).unwrap() }
    }

    /// The program's way with a bucket, without rivals: whether a connection passes.
    fn connect(limit: Limit, bucket: &mut Option<u64>, now: u64) -> bool {
        let (value, passes) = match bucket.map(|value| limit.take(value, now)) {
            None => (limit.first(now), true),
            Some(Tokens::Take(value)) => (value, true),
            Some(Tokens::Owes(value)) => (value, false),
            Some(Tokens::Empty) => return false,
        };
        *bucket = Some(value);
        passes
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let limit = limit(10, 3);
        let mut bucket = None;
        let start = 5 * SECOND;
        let passed = |bucket: &mut _, at, n| (0..n).filter(|_| connect(limit, bucket, at)).count();
        assert_eq!(passed(&mut bucket, start, 10), 3);
        assert_eq!(passed(&mut bucket, start + SECOND / 10 - 1, 10), 0);
        assert_eq!(passed(&mut bucket, start + SECOND / 10, 10), 1);
        assert_eq!(
            passed(&mut bucket, start + SECOND, 10),
            3,
            "no more than the burst is saved up"
        );
    }

    #[test]
    fn a_burst_of_one_spaces_connections() {
        let limit = limit(1, 1);
        let mut bucket = None;
        assert!(connect(limit, &mut bucket, 0));
        assert!(!connect(limit, &mut bucket, SECOND - 1));
        assert!(connect(limit, &mut bucket, SECOND));
    }

    /// A step back of the clock costs tokens that are worth the step, and no more.
    #[test]
    fn the_clock_may_step_back_a_little() {
        let limit = limit(1000, 3);
        let mut bucket = None;
        assert!(connect(limit, &mut bucket, 10 * SECOND));
        assert!(connect(limit, &mut bucket, 10 * SECOND - 1000));
        assert!(!connect(limit, &mut bucket, 10 * SECOND - 2000));
        assert!(connect(limit, &mut bucket, 10 * SECOND));
        assert!(!connect(limit, &mut bucket, 10 * SECOND));
    }

    #[test]
    fn a_raised_limit_forgives_old_debt() {
        let mut bucket = None;
        let slow = limit(1, 1000);
        for _ in 0..1000 {
            assert!(connect(slow, &mut bucket, SECOND));
        }
        let fast = limit(1000, 10);
        assert!(!connect(fast, &mut bucket, SECOND), "the bucket is empty");
        assert!(connect(fast, &mut bucket, SECOND + SECOND / 1000), "but fills at the new rate");
    }

    #[test]
    fn a_lowered_limit_holds_at_once() {
        let mut bucket = None;
        for _ in 0..5 {
            assert!(connect(limit(1000, 10), &mut bucket, SECOND));
        }
        let slow = limit(1, 2);
        assert!(connect(slow, &mut bucket, SECOND));
        assert!(!connect(slow, &mut bucket, SECOND + 1));
    }

    #[test]
    fn the_end_of_time_is_harmless() {
        let most = limit(1, u32::MAX);
        assert_eq!(most.take(0, u64::MAX), Tokens::Take(u64::MAX));
        assert_eq!(most.first(u64::MAX), u64::MAX);
        assert!(matches!(most.take(u64::MAX, 0), Tokens::Owes(_)));
        assert_eq!(limit(u32::MAX, 1).take(7, 7), Tokens::Take(8));
    }

    #[test]
    fn keys_part_families_ports_and_subscribers() {
        let (v4, v6) = (key_v4([192, 0, 2, 7], 8080), key_v6([0x20; 16], 8080));
        assert_ne!(v4, key_v4([192, 0, 2, 7], 8081));
        assert_eq!(bucket_key(v4), v4);
        assert_eq!(bucket_key(v6)[4..], [[0x20; 8], [0; 8]].concat());
        assert_ne!(key_any(Family::V4, 80), key_any(Family::V6, 80));
        assert_eq!(port_bit(65535), (PORT_WORDS - 1, 1 << 63));
    }

    proptest! {
        #[test]
        fn a_word_holds_a_limit(rate in 1u32.., burst in 1u32..) {
            let limit = limit(rate, burst);
            prop_assert_eq!(Limit::from_word(limit.to_word()), Some(limit));
            prop_assert_eq!(Limit::from_word(limit.to_word() & 0xffff_ffff), None);
        }

        /// Within any window of time, no more pass than the burst and what grew meanwhile; and a
        /// source that keeps below the rate is never refused.
        #[test]
        fn no_window_exceeds_the_limit(
            rate in 1u32..100_000,
            burst in 1u32..50,
            steps in proptest::collection::vec(0u64..SECOND / 10, 1..300),
            start in any::<u32>(),
        ) {
            let limit = limit(rate, burst);
            let (mut bucket, mut now, mut passed) = (None, u64::from(start), Vec::new());
            for step in steps {
                now += step;
                if connect(limit, &mut bucket, now) {
                    passed.push(now);
                }
            }
            for (i, from) in passed.iter().enumerate() {
                for (j, to) in passed.iter().enumerate().skip(i) {
                    let grown = (to - from) * u64::from(rate) / SECOND;
                    prop_assert!((j - i + 1) as u64 <= u64::from(burst) + grown);
                }
            }
        }

        #[test]
        fn below_the_rate_none_is_refused(
            rate in 1u32..1_000_000,
            burst in 1u32..5,
            steps in proptest::collection::vec(0u64..1000, 1..200),
        ) {
            let limit = limit(rate, burst);
            let (mut bucket, mut now) = (None, 0);
            for step in steps {
                now += SECOND.div_ceil(u64::from(rate)) + step;
                prop_assert!(connect(limit, &mut bucket, now));
            }
        }

        /// Any two words, however nonsensical, give a bucket that is usable a full refill later.
        #[test]
        fn any_bucket_recovers(rate in 1u32.., burst in 1u32.., bucket: u64, now in 0..u64::MAX / 4) {
            let limit = limit(rate, burst);
            let mut bucket = Some(bucket);
            connect(limit, &mut bucket, now);
            prop_assert!(connect(limit, &mut bucket, now + limit.capacity()));
        }
    }
}
