//! How a variant's requests are shared by their prefixes.
//!
//! All requests of a prefix have one home. When they are more than an even share, the home is busier
//! than the other instances whatever the rest does, and mostly the reason is prompts that only look
//! alike: they share a beginning that is longer than `prefix_length`.

use std::sync::{
    Mutex, PoisonError,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Counters that the keys of a variant share, a power of two. With as many keys as there may be, each
/// gets a thousandth of what is not the key's own.
const CELLS: usize = 1 << CELL_BITS;
const CELL_BITS: u32 = 10;
/// Requests from which on a share says something.
const MIN_SAMPLES: u64 = 100;

/// What a variant's requests since the window began were for. Its memory is fixed, and counting a
/// request takes no lock.
#[derive(Debug)]
pub struct PrefixShares {
    cells: Box<[Cell]>,
    /// Which keys meet in a cell: others in each window, so that two that are popular and meet by
    /// chance do not look like one for long.
    salt: AtomicU64,
    judged: Mutex<Judged>,
}

#[derive(Debug, Default)]
struct Cell {
    count: AtomicU32,
    /// The last one that was counted: of a cell with many requests mostly the one that has most.
    key: AtomicU64,
}

/// What the windows before this one showed.
#[derive(Debug, Default)]
struct Judged {
    /// Windows in a row that speak against what was told last.
    windows: u32,
    told_hot: bool,
}

/// What a window showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// The share of the most frequent prefix, 0 to 1; 0 while there were too few requests to tell.
    pub(super) share: f64,
    /// Its key.
    pub(super) key: u64,
    /// What is to be told.
    pub(super) change: Option<Change>,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// One prefix has had more than its share for a while.
    Hot,
    /// That is over.
    Over,
}

impl Default for PrefixShares {
    fn default() -> Self {
        let cells = std::iter::repeat_with(Cell::default).take(CELLS).collect();
        Self { cells, salt: AtomicU64::default(), judged: Mutex::default() }
    }
}

impl PrefixShares {
    /// Counts a request with this prefix key.
    pub fn note(&self, key: u64) {
        let cell = &self.cells[place(key, self.salt.load(Acquire))];
        cell.count.fetch_add(1, Relaxed);
        cell.key.store(key, Relaxed);
    }

    /// Ends a window and begins the next one. `instances` share the requests; `windows` in a row have
    /// to agree before something is told. A request that is counted meanwhile may be in either.
    pub(super) fn end_window(&self, instances: usize, windows: u32) -> Window {
        self.salt.store(fastrand::u64(..), Release);
        let (mut total, mut top, mut key) = (0, 0, 0);
        for cell in &self.cells {
            let count = u64::from(cell.count.swap(0, Relaxed));
            total += count;
            if count > top {
                (top, key) = (count, cell.key.load(Relaxed));
            }
        }
        if total < MIN_SAMPLES {
            // A quiet minute neither proves nor disproves anything.
            return Window { share: 0.0, key, change: None };
        }
        let share = top as f64 / total as f64;
        let hot = instances > 1 && share > 1.0 / instances as f64;
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        Window { share, key, change: judged.note(hot, windows) }
    }
}

impl Judged {
    fn note(&mut self, hot: bool, windows: u32) -> Option<Change> {
        if hot == self.told_hot {
            self.windows = 0;
            return None;
        }
        self.windows += 1;
        if self.windows < windows {
            return None;
        }
        *self = Self { windows: 0, told_hot: hot };
        Some(if hot { Change::Hot } else { Change::Over })
    }
}

/// The cell of a key: the upper bits of a product by an odd number (Fibonacci hashing, Knuth, "The
/// Art of Computer Programming", volume 3, section 6.4).
fn place(key: u64, salt: u64) -> usize {
    ((key ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CELL_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_prefix_is_found_among_any_number_of_others() {
        let mut rng = fastrand::Rng::with_seed(1);
        for share in [0.05, 0.2, 0.5, 0.9] {
            let shares = PrefixShares::default();
            for _ in 0..50_000 {
                let hot = rng.f64() < share;
                shares.note(if hot { 7 } else { rng.u64(1000..) });
            }
            shares.note(7);
            let window = shares.end_window(4, 3);
            assert_eq!(window.key, 7, "at {share}");
            assert!((window.share - share).abs() < 0.02, "{window:?} at {share}");
        }
    }

    #[test]
    fn many_prefixes_of_equal_weight_have_no_share_to_speak_of() {
        let shares = PrefixShares::default();
        let mut rng = fastrand::Rng::with_seed(2);
        (0..50_000).for_each(|_| shares.note(rng.u64(..)));
        let share = shares.end_window(4, 3).share;
        assert!(share < 0.01, "{share}");
    }

    #[test]
    fn keys_that_meet_in_one_window_part_in_the_next() {
        let shares = PrefixShares::default();
        let near =
            (1000..).find(|key| place(*key, 0) == place(7, 0)).expect("a thousandth of them");
        let window = || {
            for key in [7, near] {
                (0..200).for_each(|_| shares.note(key));
            }
            (0..600).for_each(|n| shares.note(1_000_000 + n));
            shares.end_window(4, 3).share
        };
        assert!(window() >= 0.4, "together at first");
        let apart = (0..10).filter(|_| window() < 0.3).count();
        assert!(apart >= 8, "{apart} of 10");
    }

    fn window(shares: &PrefixShares, hot: u64, others: u64, instances: usize) -> Window {
        (0..others).for_each(|n| shares.note(1000 + n));
        (0..hot).for_each(|_| shares.note(7));
        shares.end_window(instances, 3)
    }

    #[test]
    fn it_is_told_once_after_some_windows_and_once_when_it_is_over() {
        let shares = PrefixShares::default();
        let change = |hot, others| window(&shares, hot, others, 4).change;
        assert_eq!(change(300, 700), None);
        assert_eq!(change(300, 700), None);
        assert_eq!(change(200, 800), None, "that was its share, and the count starts anew");
        for expected in [None, None, Some(Change::Hot), None, None] {
            assert_eq!(change(300, 700), expected);
        }
        assert_eq!(change(3, 7), None, "too few to tell");
        for (hot, expected) in
            [(0, None), (0, None), (300, None), (0, None), (0, None), (0, Some(Change::Over))]
        {
            assert_eq!(change(hot, 700), expected);
        }
        assert_eq!(change(0, 1000), None);
    }

    #[test]
    fn one_instance_has_all_of_them_by_right() {
        let shares = PrefixShares::default();
        for _ in 0..10 {
            assert_eq!(window(&shares, 1000, 0, 1), Window { share: 1.0, key: 7, change: None });
        }
        let two = PrefixShares::default();
        let last = (0..3).map(|_| window(&two, 600, 400, 2)).last().expect("three");
        assert_eq!((last.key, last.change), (7, Some(Change::Hot)));
        assert!((0.6..0.61).contains(&last.share), "{last:?}");
    }

    #[test]
    fn no_request_is_lost_between_windows() {
        let shares = PrefixShares::default();
        let counted = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(|| (0..50_000).for_each(|_| shares.note(7)))).collect();
            let mut counted = 0;
            while !threads.iter().all(|thread| thread.is_finished()) {
                counted += sum(&shares);
            }
            counted + sum(&shares)
        });
        assert_eq!(counted, 100_000);
    }

    fn sum(shares: &PrefixShares) -> u64 {
        shares.cells.iter().map(|cell| u64::from(cell.count.swap(0, Relaxed))).sum()
    }
}
