//! The kernel programs: loading them, and the memory and events shared with them.
//!
//! The only place that knows the eBPF loader. Nothing is pinned: all is gone when the process is,
//! however it ends.

pub mod guard;
mod object;

use std::{io, ptr::NonNull, sync::Arc, sync::atomic::AtomicU32};

/// How much the kernel programs may hold.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Directions that may be steered at the same time; each takes 128 bytes of kernel memory.
    /// A connection counts from its first steering until it closes.
    pub directions: u32,
    /// In-flight counters; each takes 4 bytes.
    pub counters: u32,
    /// Worker threads; each has its own queue of events.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { directions: 65_536, counters: 8_192, workers: 1 }
    }
}

/// Why the kernel programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The binary carries no eBPF object.
    #[error("built without kernel programs; run `cargo xtask build`")]
    NotBuilt,
    /// The kernel lacks something, or has faults that lose bytes.
    #[error("{0}")]
    Kernel(String),
    /// The process may not load programs.
    #[error("{0}")]
    Permission(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// The loaded programs and their maps, shared by all threads. Dropping it unloads them.
#[derive(Debug)]
pub struct Kernel {
    counters: (NonNull<AtomicU32>, usize),
}

// SAFETY: the pointer names mapped memory that lives as long as the value, and is accessed only
// through atomics.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Loads the programs embedded in this binary.
    ///
    /// # Errors
    /// When the kernel is too old, the process lacks capabilities, or the binary has no object.
    pub fn load(_options: &Options) -> Result<Arc<Self>, LoadError> {
        Err(LoadError::NotBuilt)
    }

    /// The in-flight counters that the programs release: valid as long as this value lives.
    pub fn counters(&self) -> (NonNull<AtomicU32>, usize) {
        self.counters
    }
}
