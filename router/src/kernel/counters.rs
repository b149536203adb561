//! In-flight counters in memory that other processes may map: those of a gateway without kernel programs,
//! and those of another gateway that serves the same addresses.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{Arc, atomic::AtomicU32},
};

use router_ebpf::layout::InFlight;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::sys::{Access, Mapping};

/// The in-flight counters of this process.
#[derive(Debug)]
pub struct CounterMemory {
    descriptor: OwnedFd,
    memory: Mapping<InFlight>,
    len: u32,
}

/// The counters of another process, to be read.
#[derive(Debug)]
pub struct ForeignCounters {
    memory: Mapping<InFlight>,
    len: u32,
}

impl CounterMemory {
    /// As many counters as `len`, all of them zero, that no kernel program uses.
    ///
    /// # Errors
    /// When there is no memory or no descriptor left.
    pub fn new(len: u32) -> io::Result<Arc<Self>> {
        let descriptor = memfd_create("atalho-in-flight", MemfdFlags::CLOEXEC)?;
        ftruncate(&descriptor, Mapping::<InFlight>::bytes_of(len) as u64)?;
        Self::of(descriptor, len)
    }

    /// Those of a new map, which the kernel programs use.
    pub(super) fn of(descriptor: OwnedFd, len: u32) -> io::Result<Arc<Self>> {
        // SAFETY: a counter is an atomic, for which any bytes are valid.
        let memory = unsafe { Mapping::new(&descriptor, len, Access::Write) }?;
        Ok(Arc::new(Self { descriptor, memory, len }))
    }

    /// The counter in a slot.
    pub(super) fn counter(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: an element of the mapping, which lives as long as `self`; the lower half of the word is
        // the counter.
        unsafe { self.memory.element(slot).cast().as_ref() }
    }

    /// The first counter, bytes from one to the next, and how many there are. All are zero at the start, and
    /// valid as long as this value lives.
    pub fn counters(&self) -> (NonNull<AtomicU32>, usize, u32) {
        (self.memory.base().cast(), size_of::<InFlight>(), self.len)
    }

    /// What another process maps.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl ForeignCounters {
    /// Maps `len` counters of another process, `stride` bytes apart.
    ///
    /// # Errors
    /// When they are laid out otherwise than here, as another version may have them, or cannot be mapped.
    pub fn map(descriptor: &impl AsFd, stride: usize, len: u32) -> io::Result<Arc<Self>> {
        if stride != size_of::<InFlight>() {
            let why = format!("its counters are {stride} bytes apart");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: as above. A file that is too short would be a fault at the first look at it: who sent it
        // is of the same user, and could as well have ended this process.
        let memory = unsafe { Mapping::new(descriptor, len, Access::Read) }?;
        Ok(Arc::new(Self { memory, len }))
    }

    /// The first counter, bytes from one to the next, and how many there are.
    pub fn counters(&self) -> (NonNull<AtomicU32>, usize, u32) {
        (self.memory.base().cast(), size_of::<InFlight>(), self.len)
    }
}
