//! How the C library's allocator treats the process.

/// Blocks of this size and more have their own pages, which go back to the system when they are freed.
#[cfg(target_env = "gnu")]
const OWN_PAGES_FROM_BYTES: libc::c_int = 256 * 1024;
/// Free memory at the end of the heap beyond this goes back to the system.
#[cfg(target_env = "gnu")]
const TRIM_ABOVE_BYTES: libc::c_int = 1024 * 1024;

/// Gives what large bodies took back to the system once they are done.
///
/// By default glibc learns from the first large block that is freed, up to 32 MiB of size, to take such blocks from
/// its heaps, of which each thread has one: pieces of long-lived data between them then keep all of it resident.
/// A size that is set is not changed any more (mallopt(3), `M_MMAP_THRESHOLD`).
pub(super) fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in
        [(libc::M_MMAP_THRESHOLD, OWN_PAGES_FROM_BYTES), (libc::M_TRIM_THRESHOLD, TRIM_ABOVE_BYTES)]
    {
        // SAFETY: it takes two numbers and changes settings of the allocator alone; before other threads start.
        unsafe { libc::mallopt(what, bytes) };
    }
}
