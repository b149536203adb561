//! Locks in entries.

use core::ffi::c_void;

use aya_ebpf::helpers::generated as raw;

use crate::atomic;

/// Tries to get a lock. Whoever has it is on another processor, and keeps it for a microsecond or so;
/// only when a hypervisor has taken that processor away can all fail.
const MAX_ATTEMPTS: u32 = 1 << 18;

/// A lock that is held, until dropped.
pub(crate) struct Lock(*mut u64);

struct Spin {
    word: *mut u64,
    taken: u32,
}

impl Lock {
    /// # Safety
    /// `word` must be an aligned word of a map's value that is used as a lock alone.
    #[inline(always)]
    pub(crate) unsafe fn take(word: *mut u64) -> Option<Self> {
        // SAFETY: as the caller promises.
        unsafe {
            if atomic::compare_exchange(word, 0, 1).is_ok() {
                return Some(Self(word));
            }
            let mut spin = Spin { word, taken: 0 };
            raw::bpf_loop(MAX_ATTEMPTS, again as *mut c_void, (&raw mut spin).cast(), 0);
            if spin.taken != 0 { Some(Self(word)) } else { None }
        }
    }
}

impl Drop for Lock {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the word is valid as when it was taken.
        unsafe { atomic::swap(self.0, 0) };
    }
}

unsafe extern "C" fn again(_index: u32, spin: *mut Spin) -> u64 {
    // SAFETY: called by the helper with the pointer given to it.
    unsafe {
        if atomic::load((*spin).word) == 0 && atomic::compare_exchange((*spin).word, 0, 1).is_ok() {
            (*spin).taken = 1;
            return 1;
        }
    }
    0
}
