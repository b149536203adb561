//! Atomic operations on memory of maps.
//!
//! `core::sync::atomic` offers none that return what was there before, because older processors of
//! this target lack them; the kernel has had them since 5.12 (`v3` of the instruction set). They are
//! written as instructions, because the compiler's intrinsics change with its version. Those that
//! return the old value also order all memory accesses around them.

use core::arch::asm;

/// Adds, and returns the old value.
///
/// # Safety
/// `word` is aligned, points into a map's value, and only atomic operations touch it meanwhile.
#[inline(always)]
pub(crate) unsafe fn fetch_add(word: *mut u64, value: u64) -> u64 {
    let mut old = value;
    // SAFETY: As the caller promises.
    unsafe {
        asm!("{v} = atomic_fetch_add((u64 *)({p} + 0), {v})", v = inout(reg) old, p = in(reg) word);
    }
    old
}

/// Clears the bits that are not in `mask`, and returns the old value.
///
/// # Safety
/// `word` is aligned, points into a map's value, and only atomic operations touch it meanwhile.
#[inline(always)]
pub(crate) unsafe fn fetch_and(word: *mut u64, mask: u64) -> u64 {
    let mut old = mask;
    // SAFETY: As the caller promises.
    unsafe {
        asm!("{v} = atomic_fetch_and((u64 *)({p} + 0), {v})", v = inout(reg) old, p = in(reg) word);
    }
    old
}

/// Stores a value, and returns the old one.
///
/// # Safety
/// `word` is aligned, points into a map's value, and only atomic operations touch it meanwhile.
#[inline(always)]
pub(crate) unsafe fn swap(word: *mut u64, value: u64) -> u64 {
    let mut old = value;
    // SAFETY: As the caller promises.
    unsafe {
        asm!("{v} = xchg_64({p} + 0, {v})", v = inout(reg) old, p = in(reg) word);
    }
    old
}

/// Swaps `*word` from `old` to `new`. The error is the value that was there instead.
///
/// # Safety
/// `word` is aligned, points into a map's value, and only atomic operations touch it meanwhile.
#[inline(always)]
pub(crate) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, u64> {
    let mut seen = old;
    // SAFETY: As the caller promises.
    unsafe {
        asm!(
            "r0 = cmpxchg_64({p} + 0, r0, {n})",
            inout("r0") seen, p = in(reg) word, n = in(reg) new,
        );
    }
    if seen == old { Ok(seen) } else { Err(seen) }
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

/// Writes `*word` at once, without any order but that of an operation with a result that follows.
///
/// # Safety
/// `word` is aligned and points into a map's value.
#[inline(always)]
pub(crate) unsafe fn store(word: *mut u64, value: u64) {
    // SAFETY: As the caller promises.
    unsafe { word.write_volatile(value) }
}
