//! Which elements of an array shared with programs are in use.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long an element rests before another connection gets it. A program that had looked it up
/// for the old one has long ended by then: it runs for microseconds.
const REUSE_DELAY: Duration = Duration::from_millis(100);

/// Hands out indices of elements.
#[derive(Debug)]
pub(super) struct IndexPool {
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

impl IndexPool {
    pub(super) fn new(total: u32) -> Self {
        Self { inner: Mutex::new(Inner { fresh: 0, resting: VecDeque::new() }), total }
    }

    /// An element that no program can be working on.
    pub(super) fn take(&self, now: Instant) -> Option<u32> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((index, since)) = inner.resting.front().copied()
            && now.duration_since(since) >= REUSE_DELAY
        {
            inner.resting.pop_front();
            return Some(index);
        }
        (inner.fresh < self.total).then(|| {
            inner.fresh += 1;
            inner.fresh - 1
        })
    }

    /// Returns an element; programs must not find it any more.
    pub(super) fn give_back(&self, index: u32, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.resting.push_back((index, now));
    }

    /// Elements in use.
    pub(super) fn in_use(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.fresh as usize - inner.resting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_element_rests() {
        let pool = IndexPool::new(2);
        let start = Instant::now();
        assert_eq!(pool.take(start), Some(0));
        assert_eq!(pool.take(start), Some(1));
        assert_eq!(pool.take(start), None);
        assert_eq!(pool.in_use(), 2);
        pool.give_back(1, start);
        assert_eq!(pool.take(start + REUSE_DELAY / 2), None);
        assert_eq!(pool.take(start + REUSE_DELAY), Some(1));
        pool.give_back(0, start);
        assert_eq!(pool.in_use(), 1);
    }
}
