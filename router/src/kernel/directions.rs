//! Which directions are in use.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a direction rests before another connection gets it. A program that had looked it up
/// for the old one has long ended by then: it runs for microseconds.
const REST: Duration = Duration::from_millis(100);

/// Hands out indices of directions.
#[derive(Debug)]
pub(super) struct Directions {
    inner: Mutex<Inner>,
    total: u32,
}

#[derive(Debug)]
struct Inner {
    /// Indices from here on have never been used.
    fresh: u32,
    /// Returned ones, the longest resting first.
    resting: VecDeque<(u32, Instant)>,
}

impl Directions {
    pub(super) fn new(total: u32) -> Self {
        Self { inner: Mutex::new(Inner { fresh: 0, resting: VecDeque::new() }), total }
    }

    /// A direction that no program can be working on.
    pub(super) fn take(&self, now: Instant) -> Option<u32> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((index, since)) = inner.resting.front().copied()
            && now.duration_since(since) >= REST
        {
            inner.resting.pop_front();
            return Some(index);
        }
        (inner.fresh < self.total).then(|| {
            inner.fresh += 1;
            inner.fresh - 1
        })
    }

    /// Returns a direction; its source must have left the map of slots.
    pub(super) fn give_back(&self, index: u32, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.resting.push_back((index, now));
    }

    /// Directions in use.
    pub(super) fn in_use(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.fresh as usize - inner.resting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_direction_rests() {
        let directions = Directions::new(2);
        let start = Instant::now();
        assert_eq!(directions.take(start), Some(0));
        assert_eq!(directions.take(start), Some(1));
        assert_eq!(directions.take(start), None);
        assert_eq!(directions.in_use(), 2);
        directions.give_back(1, start);
        assert_eq!(directions.take(start + REST / 2), None);
        assert_eq!(directions.take(start + REST), Some(1));
        directions.give_back(0, start);
        assert_eq!(directions.in_use(), 1);
    }
}
