//! Atomic operations that return what was there before, on memory of maps.
//!
//! The kernel has had them since 5.12 (processor `v3` of the BPF target). `core::sync::atomic` does
//! not offer them, because older processors of that target lack them; the compiler's intrinsics do.

use core::intrinsics::{self, AtomicOrdering::SeqCst};

/// Swaps `*word` from `old` to `new`. The error is the value that was there instead.
///
/// # Safety
/// `word` is aligned, points into a map's value, and only atomic operations touch it meanwhile.
#[inline(always)]
pub(crate) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, u64> {
    // SAFETY: As the caller promises.
    match unsafe { intrinsics::atomic_cxchg::<_, { SeqCst }, { SeqCst }>(word, old, new) } {
        (seen, true) => Ok(seen),
        (seen, false) => Err(seen),
    }
}

/// Reads `*word` at once: a load of an aligned word is one instruction, which the JIT compilers keep
/// whole. (LLVM's BPF backend knows no relaxed atomic load.)
///
/// # Safety
/// `word` is aligned and points into a map's value.
#[inline(always)]
pub(crate) unsafe fn load(word: *const u64) -> u64 {
    // SAFETY: As the caller promises.
    unsafe { word.read_volatile() }
}
