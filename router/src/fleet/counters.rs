//! In-flight counters: one word per instance, in memory that the kernel programs may share.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

/// A table of counter slots. Cheap to clone; the memory lives as long as any clone or counter.
#[derive(Clone, Debug)]
pub struct Counters(Arc<Table>);

/// There is no free slot left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all {slots} in-flight counters are taken: configure fewer instances, or wait until removed \
     ones have drained"
)]
pub struct NoSlot {
    /// Slots of the table.
    pub slots: u32,
}

struct Table {
    base: NonNull<AtomicU32>,
    /// Bytes from one slot to the next.
    stride: usize,
    len: u32,
    /// Free slots, the longest unused first.
    free: Mutex<VecDeque<u32>>,
    /// Releases that found a zero, and slots given up because they were not zero at their end. Both
    /// mean a fault in this program.
    faults: AtomicU64,
    /// Keeps the memory mapped.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only used through atomics, and its owner may move between threads.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Instances of different worker threads must not fight over one cache line.
#[repr(align(64))]
#[derive(Default)]
struct Padded(#[expect(dead_code, reason = "used through the table's pointer")] AtomicU32);

impl Counters {
    /// A table in this process's memory, for gateways without kernel programs.
    pub fn heap(len: u32) -> Self {
        // Not a box: moving one asserts that nothing else points into it.
        let slots: Arc<[Padded]> = (0..len).map(|_| Padded::default()).collect();
        let base = NonNull::from(&*slots).cast();
        // SAFETY: `slots` holds `len` zeroed counters a `Padded` apart, and is kept as the owner.
        unsafe { Self::mapped(base, size_of::<Padded>(), len, Box::new(slots)) }
    }

    /// A table in mapped memory: slot `i` is the word at `base + i * stride` bytes. (An array map
    /// of 4-byte values has a stride of 8.)
    ///
    /// # Safety
    /// All slots must be zero, valid for atomic access and aligned for as long as `owner` lives,
    /// and no one but holders of a slot may write to it.
    pub unsafe fn mapped(
        base: NonNull<AtomicU32>,
        stride: usize,
        len: u32,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        assert!(stride.is_multiple_of(align_of::<AtomicU32>()) && stride >= size_of::<AtomicU32>());
        Self(Arc::new(Table {
            base,
            stride,
            len,
            free: Mutex::new((0..len).collect()),
            faults: AtomicU64::new(0),
            _owner: owner,
        }))
    }

    /// Takes a free slot; its value is zero.
    ///
    /// # Errors
    /// When all are taken.
    pub fn take(&self) -> Result<Counter, NoSlot> {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free.pop_front().ok_or(NoSlot { slots: self.0.len })?;
        drop(free);
        Ok(Counter { table: Arc::clone(&self.0), slot })
    }

    /// Slots of the table.
    pub fn capacity(&self) -> u32 {
        self.0.len
    }

    /// Slots that no instance has.
    pub fn free(&self) -> usize {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Counts that went wrong since the start: always zero, unless this program is at fault.
    pub fn faults(&self) -> u64 {
        self.0.faults.load(Relaxed)
    }

    /// Requests in flight at all instances, removed ones included.
    pub fn total(&self) -> u64 {
        (0..self.0.len).map(|slot| u64::from(self.0.word(slot).load(Relaxed))).sum()
    }
}

impl Table {
    fn word(&self, slot: u32) -> &AtomicU32 {
        assert!(slot < self.len);
        // SAFETY: the slot is in the table, whose memory the owner keeps valid.
        unsafe { self.base.byte_add(slot as usize * self.stride).as_ref() }
    }
}

/// The in-flight counter of one instance. Its slot becomes free when it is dropped, and not before,
/// so that a ticket, which holds the instance, can never meet another instance's slot.
#[derive(Debug)]
pub struct Counter {
    table: Arc<Table>,
    slot: u32,
}

impl Counter {
    fn word(&self) -> &AtomicU32 {
        self.table.word(self.slot)
    }

    /// Its place in the table, by which the kernel programs know it.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Requests in flight.
    pub fn get(&self) -> u32 {
        self.word().load(Relaxed)
    }

    // The orderings are relaxed: the count itself is all that is shared through it.

    /// Adds one unless the count has reached `limit`, in one step; the new count, or `None`.
    pub fn increment_below(&self, limit: u32) -> Option<u32> {
        self.word()
            .fetch_update(Relaxed, Relaxed, |n| (n < limit).then(|| n + 1))
            .ok()
            .map(|before| before + 1)
    }

    /// Adds one if the count still is `seen`.
    pub fn increment_from(&self, seen: u32) -> bool {
        seen.checked_add(1)
            .is_some_and(|next| self.word().compare_exchange(seen, next, Relaxed, Relaxed).is_ok())
    }

    /// Takes one off. A count of zero stays zero and is recorded as a fault.
    pub fn decrement(&self) {
        if self.word().fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err() {
            self.table.faults.fetch_add(1, Relaxed);
            tracing::error!(slot = self.slot, "a request in flight was released twice");
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let left = self.get();
        if left != 0 {
            // Whoever inherited this slot would look busy for ever. Rather lose the slot.
            self.table.faults.fetch_add(1, Relaxed);
            tracing::error!(slot = self.slot, left, "an instance ended with requests in flight");
            return;
        }
        self.table.free.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_lent_until_none_is_left_and_come_back() {
        let counters = Counters::heap(3);
        let taken: Vec<_> = (0..3).map(|_| counters.take().expect("free")).collect();
        assert_eq!(counters.take().expect_err("all are taken"), NoSlot { slots: 3 });
        assert_eq!(taken.iter().map(Counter::slot).collect::<Vec<_>>(), [0, 1, 2]);
        drop(taken);
        assert_eq!((counters.free(), counters.faults()), (3, 0));
        // The one unused for longest is next, so that a stray release would show.
        drop(counters.take());
        assert_eq!(counters.take().expect("free").slot(), 1);
    }

    #[test]
    fn the_limit_is_exact_under_64_threads() {
        let counter = Counters::heap(1).take().expect("free");
        let barrier = std::sync::Barrier::new(64);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        (0..100).filter(|_| counter.increment_below(1000).is_some()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).sum()
        });
        assert_eq!((taken, counter.get()), (1000, 1000));
        (0..1000).for_each(|_| counter.decrement());
    }

    #[test]
    fn the_edges_of_the_count_hold() {
        let counters = Counters::heap(1);
        let counter = counters.take().expect("free");
        assert_eq!(counter.increment_below(0), None);
        assert!(!counter.increment_from(7) && counter.increment_from(0));
        counter.decrement();
        counter.decrement();
        assert_eq!((counter.get(), counters.faults()), (0, 1), "a second release changes nothing");
        counter.word().store(u32::MAX, Relaxed);
        assert!(counter.increment_below(u32::MAX).is_none() && !counter.increment_from(u32::MAX));
    }

    #[test]
    fn a_slot_that_does_not_end_at_zero_is_not_lent_again() {
        let counters = Counters::heap(2);
        let counter = counters.take().expect("free");
        assert_eq!(counter.increment_below(9), Some(1));
        drop(counter);
        assert_eq!((counters.free(), counters.faults(), counters.total()), (1, 1, 1));
        let next = counters.take().expect("one is left");
        assert_eq!((next.slot(), next.get()), (1, 0));
        assert!(counters.take().is_err());
    }

    #[test]
    fn mapped_memory_is_used_in_its_own_stride_and_kept_alive() {
        let words: Arc<[AtomicU32]> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let base = NonNull::from(&*words).cast();
        // SAFETY: four zeroed words, eight bytes apart, kept alive by the clone of their owner.
        let counters = unsafe { Counters::mapped(base, 8, 4, Box::new(Arc::clone(&words))) };
        let taken: Vec<_> = (0..4).map(|_| counters.take().expect("free")).collect();
        drop(counters);
        for counter in &taken {
            assert_eq!(counter.increment_below(5), Some(1));
        }
        let seen: Vec<_> = words.iter().map(|word| word.load(Relaxed)).collect();
        assert_eq!(seen, [1, 0, 1, 0, 1, 0, 1, 0]);
        // As a kernel program does it.
        words[2].fetch_sub(1, Relaxed);
        assert_eq!(taken[1].get(), 0);
        taken.iter().filter(|c| c.slot() != 1).for_each(Counter::decrement);
        drop(taken);
        assert_eq!(Arc::strong_count(&words), 1, "the owner goes with the last counter");
    }
}
