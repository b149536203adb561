//! How long answers have been lately, and so from which read on the kernel should go one.
//!
//! Of a body of unknown length nobody knows whether a hand-over will be earned back. To hand over after a
//! fixed number of reads costs at most twice what somebody would pay who knew; with what was learned from
//! answers of the same kind it costs less. Answers of a handful of tokens, as classifiers and tool calls
//! give, are never handed over then, and others are at their first read.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Kinds of answers of a variant that are told apart.
pub const KINDS: usize = 32;

/// Reads from which the last bucket begins: longer ones are all alike.
const MAX_READS: u64 = 1 << (BUCKETS - 2);
/// Bucket 0 is of at most one read, bucket `k` of more than half of `2^k`, and at most that.
const BUCKETS: usize = 12;

/// Reads and writes of user space that cost as much as a hand-over (docs/benchmarks.md).
const HAND_OVER_READS: u64 = 8;
/// Answers after which something is known.
const MIN_SAMPLES: u32 = 16;
/// Answers after which all that was noted counts half: the last few hundred decide.
const WINDOW_SAMPLES: u32 = 256;
/// What a noted answer weighs.
const SAMPLE_WEIGHT: u64 = 1 << BUCKETS;

/// A share of all answers, in the fixed point of [`Lengths::due`].
const WHOLE_SHARE: u32 = 1 << 16;
/// The weight of the newest answer in that share is one of so many: it follows the last dozens.
const SHARE_SMOOTHING: u32 = 32;

/// Whether answers are to be expected that are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Some: what a hand-over needs is to be ready from the beginning.
    HandOver,
    /// Few: as it is, it is as good.
    Little,
    /// Hardly any: what is ready for one costs more than it brings.
    Nothing,
}

/// What is known of the answers of one kind. Threads share it without a lock: a lost note does no harm.
#[derive(Debug)]
pub struct Lengths {
    counts: [AtomicU32; BUCKETS],
    noted: AtomicU32,
    /// The share of answers, those of known length included, that were due to be handed over.
    due: AtomicU32,
    /// See [`Lengths::from`]; zero while nothing is known.
    from: AtomicU32,
}

impl Default for Lengths {
    /// Nothing is known; every answer may be worth it.
    fn default() -> Self {
        let (counts, noted, from) = Default::default();
        Self { counts, noted, due: WHOLE_SHARE.into(), from }
    }
}

impl Lengths {
    /// Notes whether an answer was due to be handed over, whatever became of that.
    pub fn note_due(&self, due: bool) {
        let before = self.due.load(Relaxed);
        let after = before - before.div_ceil(SHARE_SMOOTHING)
            + if due { WHOLE_SHARE / SHARE_SMOOTHING } else { 0 };
        self.due.store(after.min(WHOLE_SHARE), Relaxed);
    }

    /// What the next one is likely to be.
    pub fn expect(&self) -> Expect {
        match self.due.load(Relaxed) {
            due if due >= WHOLE_SHARE / 8 => Expect::HandOver,
            due if due >= WHOLE_SHARE / 32 => Expect::Little,
            _ => Expect::Nothing,
        }
    }

    /// Reads after which an answer is best handed over; `None` while too little is known.
    pub fn from(&self) -> Option<u64> {
        match self.from.load(Relaxed) {
            0 => None,
            from => Some(u64::from(from)),
        }
    }

    /// Notes an answer that came in so many reads, or would have.
    pub fn note(&self, reads: u64) {
        self.counts[bucket(reads)].fetch_add(1, Relaxed);
        let noted = self.noted.fetch_add(1, Relaxed) + 1;
        // Exactly one of several threads sees this.
        if noted == WINDOW_SAMPLES {
            self.fade();
        }
        if noted >= MIN_SAMPLES {
            let counts = std::array::from_fn(|k| self.counts[k].load(Relaxed));
            self.from.store(best(&counts), Relaxed);
        }
    }

    fn fade(&self) {
        let mut left = 0;
        for count in &self.counts {
            let half = count.load(Relaxed).div_ceil(2);
            left += count.fetch_sub(half, Relaxed) - half;
        }
        // Never so few that what is known would be forgotten.
        self.noted.store(left.max(MIN_SAMPLES), Relaxed);
    }
}

/// What is known of each kind of answers.
#[derive(Debug, Default)]
pub struct Kinds([Lengths; KINDS]);

impl Kinds {
    /// Those of one kind, of less than [`KINDS`]. Others share.
    pub fn of(&self, kind: usize) -> &Lengths {
        &self.0[kind % KINDS]
    }
}

/// What the answers weigh that have not been seen: together less than one that has. Each bucket has half of the
/// one before it, so where nothing is known an answer is handed over as soon as that would have been worth it,
/// and one that is longer than any before is not left to user space for ever.
const fn unseen(bucket: usize) -> u64 {
    1 << (BUCKETS - 1 - bucket)
}

fn bucket(reads: u64) -> usize {
    if reads <= 1 { 0 } else { reads.min(MAX_READS + 1).next_power_of_two().ilog2() as usize }
}

/// Twice the reads of an answer in a bucket, on average.
const fn doubled(bucket: usize) -> u64 {
    match bucket {
        0 => 2,
        _ => (1 << (bucket - 1)) + 1 + (1 << bucket),
    }
}

/// The number of reads, a power of two, after which to hand over costs least.
///
/// An answer that has ended by then costs its reads; another one those until then, and the hand-over.
fn best(counts: &[u32; BUCKETS]) -> u32 {
    let weight = |k: usize| u64::from(counts[k]) * SAMPLE_WEIGHT + unseen(k);
    let mut after: u64 = (0..BUCKETS).map(weight).sum();
    let (mut until, mut least, mut best) = (0, u64::MAX, 1);
    // Beyond the last but one, nothing is told apart.
    for k in 0..BUCKETS - 1 {
        after -= weight(k);
        until += weight(k) * doubled(k);
        let cost = until + after * 2 * ((1 << k) + HAND_OVER_READS);
        if cost < least {
            (least, best) = (cost, 1 << k);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn learned(lengths: impl IntoIterator<Item = u64>) -> Option<u64> {
        let known = Lengths::default();
        lengths.into_iter().for_each(|reads| known.note(reads));
        known.from()
    }

    fn cost(lengths: &[u64], from: u64) -> u64 {
        let one = |&reads: &u64| if reads <= from { reads } else { from + HAND_OVER_READS };
        lengths.iter().map(one).sum()
    }

    #[test]
    fn buckets_end_at_powers_of_two() {
        for k in 1..BUCKETS - 1 {
            let end = 1u64 << k;
            assert_eq!((bucket(end / 2), bucket(end / 2 + 1), bucket(end)), (k - 1, k, k));
        }
        assert_eq!((bucket(0), bucket(1), bucket(2)), (0, 0, 1));
        assert_eq!((bucket(MAX_READS), bucket(MAX_READS + 1)), (BUCKETS - 2, BUCKETS - 1));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!([0, 1, 2, 3, 4].map(doubled), [2, 4, 7, 13, 25]);
    }

    #[test]
    fn short_answers_are_not_handed_over_and_long_ones_are_at_once() {
        let of = |reads: u64| learned([reads; MIN_SAMPLES as usize]).expect("enough of them");
        for reads in 0..=8 {
            assert_eq!(of(reads), 8, "{reads}: a longer one would be a surprise");
        }
        for reads in 17..2_000 {
            assert_eq!(of(reads), 1, "{reads}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_few() {
        assert_eq!(learned([500; MIN_SAMPLES as usize - 1]), None);
        assert!(learned([500; MIN_SAMPLES as usize]).is_some());
    }

    #[test]
    fn of_many_short_and_few_long_answers_those_are_handed_over() {
        let mixed = (0..200).map(|i| if i % 20 == 0 { 800 } else { 3 });
        assert_eq!(learned(mixed), Some(4));
        let rare_ones = (0..200).map(|i| if i == 0 { 800 } else { 5 });
        assert_eq!(learned(rare_ones), Some(8));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let known = Lengths::default();
        for (reads, from) in [(5, 8), (700, 1), (5, 8), (12, 1)] {
            (0..3 * WINDOW_SAMPLES).for_each(|_| known.note(reads));
            assert_eq!(known.from(), Some(from), "{reads}");
        }
        assert!(
            known.counts.iter().map(|count| count.load(Relaxed)).sum::<u32>() <= WINDOW_SAMPLES
        );
    }

    #[test]
    fn hand_overs_are_expected_until_there_are_none_and_again_once_there_are_some() {
        let known = Lengths::default();
        let note = |due, times| {
            (0..times).for_each(|_| known.note_due(due));
            known.expect()
        };
        assert_eq!(note(true, 1), Expect::HandOver);
        assert_eq!(note(false, 50), Expect::HandOver);
        assert_eq!(note(false, 100), Expect::Nothing);
        assert_eq!(note(true, 1), Expect::Little, "one more than none");
        assert_eq!(note(true, 5), Expect::HandOver);
        assert_eq!(note(true, 1_000), Expect::HandOver);
        assert_eq!(note(false, 1_000), Expect::Nothing);
    }

    #[test]
    fn kinds_are_told_apart() {
        let kinds = Kinds::default();
        (0..MIN_SAMPLES).for_each(|_| kinds.of(3).note(4));
        assert!(kinds.of(3).from().is_some() && kinds.of(4).from().is_none());
        assert!(kinds.of(3 + KINDS).from().is_some());
        assert!(crate::api::Api::ALL.len() <= KINDS, "each API is a kind of its own");
    }

    #[test]
    fn threads_may_note_at_the_same_time() {
        let known = Lengths::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| known.note(400)));
            }
        });
        assert_eq!(known.from(), Some(1));
    }

    proptest! {
        #[test]
        fn no_fixed_number_of_reads_would_have_cost_much_less(
            lengths in proptest::collection::vec(
                prop_oneof![0u64..6, 0u64..40, 0u64..3_000, Just(u64::MAX / 512)], 16..255,
            ),
        ) {
            let from = learned(lengths.iter().copied()).expect("enough of them");
            prop_assert!(from.is_power_of_two() && from <= MAX_READS);
            // Averages stand for the lengths in a bucket, and what never happened counts a little.
            let slack = |cost: u64| cost + cost / 2 + 64 * HAND_OVER_READS;
            for other in 1..=MAX_READS {
                let (cost, best) = (cost(&lengths, from), cost(&lengths, other));
                prop_assert!(cost <= slack(best), "{from}: {cost}, {other}: {best}");
            }
        }

        #[test]
        fn any_counts_have_an_answer(counts: [u32; BUCKETS]) {
            prop_assert!(u64::from(best(&counts)) <= MAX_READS);
        }
    }
}
