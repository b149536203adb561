//! In-flight counters: one word per instance, in memory that the kernel programs may share.
//!
//! While another process serves the same instances, as one that is being replaced does to its end, each has a
//! table of its own, and what counts is the [sum](Counter::get): a process that dies takes its requests with it.

mod foreign;
mod slots;

use std::{
    any::Any,
    fmt,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

use arc_swap::ArcSwap;

pub use self::foreign::Foreign;
use self::slots::Slots;

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
    slots: Mutex<Slots>,
    /// Whether there are any others: seldom, so this is asked first.
    shared: AtomicBool,
    others: ArcSwap<Vec<Arc<Foreign>>>,
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
            slots: Mutex::new(Slots::new(len)),
            shared: AtomicBool::new(false),
            others: ArcSwap::default(),
            faults: AtomicU64::new(0),
            _owner: owner,
        }))
    }

    /// Takes a free slot; its value is zero.
    ///
    /// # Errors
    /// When all are taken.
    pub fn take(&self) -> Result<Counter, NoSlot> {
        self.counter(self.0.slots().take())
    }

    /// Takes the slot that another process has for `place`, or else a free one.
    ///
    /// # Errors
    /// When all are taken.
    pub fn take_for(&self, place: &str) -> Result<Counter, NoSlot> {
        self.counter(self.0.slots().take_for(place))
    }

    fn counter(&self, slot: Option<u32>) -> Result<Counter, NoSlot> {
        let slot = slot.ok_or(NoSlot { slots: self.0.len })?;
        Ok(Counter { table: Arc::clone(&self.0), slot })
    }

    /// Keeps slots for the places that have them in another process, and for nothing else, until
    /// [`forget_others`](Self::forget_others).
    pub fn keep_for(&self, places: impl IntoIterator<Item = (String, u32)>) {
        self.0.slots().keep_for(places);
    }

    /// The places for which slots are kept that nobody has taken.
    pub fn kept(&self) -> Vec<(String, u32)> {
        self.0.slots().kept()
    }

    /// Counts what another process has in flight as well, from now on.
    pub fn count_other(&self, other: Arc<Foreign>) {
        self.0.others.rcu(|others| {
            let mut others = Vec::clone(others);
            others.push(Arc::clone(&other));
            others
        });
        self.0.shared.store(true, Release);
    }

    /// The others whose requests count.
    pub fn others(&self) -> Arc<Vec<Arc<Foreign>>> {
        self.0.others.load_full()
    }

    /// Counts another process no longer.
    pub fn forget_other(&self, other: &Arc<Foreign>) {
        self.0.others.rcu(|others| {
            let others = others.iter().filter(|it| !Arc::ptr_eq(it, other));
            others.cloned().collect::<Vec<_>>()
        });
        self.0.shared.store(!self.0.others.load().is_empty(), Release);
    }

    /// Counts this process's requests alone: the others have ended, and with them whatever they had in flight.
    pub fn forget_others(&self) {
        self.0.others.store(Arc::default());
        self.0.shared.store(false, Release);
        self.0.slots().keep_none();
    }

    /// Slots of the table.
    pub fn capacity(&self) -> u32 {
        self.0.len
    }

    /// Slots that no instance has.
    pub fn free(&self) -> usize {
        self.0.slots().free()
    }

    /// Counts that went wrong since the start: always zero, unless this program is at fault.
    pub fn faults(&self) -> u64 {
        self.0.faults.load(Relaxed)
    }

    /// This process's requests in flight at all instances, removed ones included.
    pub fn total(&self) -> u64 {
        (0..self.0.len).map(|slot| u64::from(self.0.word(slot).load(Relaxed))).sum()
    }
}

impl Table {
    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What other processes have in flight in a slot; `None` where there are none.
    fn others(&self, slot: u32) -> Option<u32> {
        if !self.shared.load(Acquire) {
            return None;
        }
        let counts = self.others.load();
        Some(counts.iter().fold(0, |sum, other| other.get(slot).saturating_add(sum)))
    }

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

    /// Requests in flight, those of other processes included.
    pub fn get(&self) -> u32 {
        let own = self.word().load(Relaxed);
        self.table.others(self.slot).map_or(own, |others| own.saturating_add(others))
    }

    // The orderings are relaxed where there is one table: the count itself is all that is shared through it.

    /// Adds one unless the count has reached `limit`, in one step; the new count, or `None`.
    ///
    /// Of two processes that add at the same time at the limit's edge, one or both may be refused.
    pub fn increment_below(&self, limit: u32) -> Option<u32> {
        let add = || self.word().fetch_update(SeqCst, Relaxed, |n| (n < limit).then(|| n + 1));
        let own = add().ok()? + 1;
        let Some(others) = self.table.others(self.slot) else { return Some(own) };
        // The order of all these steps is one that both processes agree about: if the other one does not
        // see this one's request, its own is seen here.
        let all = own.saturating_add(others);
        if all > limit {
            self.word().fetch_sub(1, SeqCst);
            return None;
        }
        Some(all)
    }

    /// Adds one if the count still is `seen`.
    pub fn increment_from(&self, seen: u32) -> bool {
        let Some(next) = seen.checked_add(1) else { return false };
        let others = self.table.others(self.slot).unwrap_or(0);
        let Some(own) = seen.checked_sub(others) else { return false };
        if self.word().compare_exchange(own, own + 1, SeqCst, Relaxed).is_err() {
            return false;
        }
        let others = self.table.others(self.slot).unwrap_or(0);
        let still = own.checked_add(1).and_then(|own| own.checked_add(others)) == Some(next);
        if !still {
            self.word().fetch_sub(1, SeqCst);
        }
        still
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
        let left = self.word().load(Relaxed);
        if left != 0 {
            // Whoever inherited this slot would look busy for ever. Rather lose the slot.
            self.table.faults.fetch_add(1, Relaxed);
            tracing::error!(slot = self.slot, left, "an instance ended with requests in flight");
            return;
        }
        self.table.slots().give_back(self.slot);
    }
}

#[cfg(test)]
mod tests;
