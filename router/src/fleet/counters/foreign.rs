//! The counters of other processes that send requests to the same instances.

use std::{
    any::Any,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

/// The counters of another gateway on this host: for as long as both have requests in flight, thresholds
/// hold for what they have together. A slot is the same instance's in all of them.
pub struct Foreign {
    base: NonNull<AtomicU32>,
    stride: usize,
    len: u32,
    /// Keeps the memory mapped.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only read, through atomics, and its owner may move between threads.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Foreign").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Foreign {
    /// Slot `i` is the word at `base + i * stride` bytes.
    ///
    /// # Safety
    /// All slots must be valid for atomic loads and aligned for as long as `owner` lives.
    pub unsafe fn mapped(
        base: NonNull<AtomicU32>,
        stride: usize,
        len: u32,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        assert!(stride.is_multiple_of(align_of::<AtomicU32>()) && stride >= size_of::<AtomicU32>());
        Self { base, stride, len, _owner: owner }
    }

    /// Requests in flight of the other process; none in a slot that it does not have.
    pub(super) fn get(&self, slot: u32) -> u32 {
        if slot >= self.len {
            return 0;
        }
        // SAFETY: the slot is in the table, whose memory the owner keeps valid.
        let word = unsafe { self.base.byte_add(slot as usize * self.stride).as_ref() };
        word.load(Ordering::SeqCst)
    }
}
