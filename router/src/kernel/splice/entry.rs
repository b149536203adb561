//! What the programs know of one connection, seen from user space.

use std::{
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, SeqCst},
    },
};

use router_ebpf::{
    framing::Framing,
    splice::{
        layout::{ConnEntry, Flow, role},
        state::{Pair, Socket, word},
    },
};

use super::Info;

/// An element in mapped memory. Everything is written by the programs, but for what
/// [`Entry::prepare`] fills in.
#[derive(Clone, Copy)]
pub(crate) struct Entry(NonNull<ConnEntry>);

impl Entry {
    /// # Safety
    /// The element must stay mapped while the value is used.
    pub(super) unsafe fn new(element: NonNull<ConnEntry>) -> Self {
        Self(element)
    }

    /// The 32-bit field at an offset in the element.
    fn u32(&self, offset: usize) -> u32 {
        // SAFETY: the field lies in the mapping, is aligned, and is accessed atomically meanwhile.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().byte_add(offset).cast()) }.load(Acquire)
    }

    /// The 64-bit field at an offset in the element.
    fn u64(&self, offset: usize) -> u64 {
        // SAFETY: the field lies in the mapping, is aligned, and is accessed atomically meanwhile.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().byte_add(offset).cast()) }.load(Acquire)
    }

    fn ticket(&self) -> &AtomicU64 {
        // SAFETY: the field lies in the mapping, and is accessed atomically by both sides.
        unsafe { &(*self.0.as_ptr()).ticket }
    }

    /// What the programs hold while they do something to the pair, if this is its source.
    #[cfg(test)]
    pub(crate) fn pair_lock(&self) -> &AtomicU64 {
        // SAFETY: the field lies in the mapping, is aligned, and is accessed atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.0.as_ptr()).pair_lock) }
    }

    /// Fills an element in for a connection that the programs are about to know.
    pub(super) fn prepare(
        &self,
        index: u32,
        flow: Flow,
        flags: u32,
        info: &Info,
        worker: u32,
        limit: u32,
    ) {
        let at = self.0.as_ptr();
        let socket = Socket {
            scale_own: info.scale_own,
            scale_peer: info.scale_peer,
            limit,
            ..Socket::default()
        };
        let generation = self.u32(offset_of!(ConnEntry, generation));
        // SAFETY: no program can find the element.
        unsafe {
            at.write(ConnEntry {
                lock: 0,
                pair_lock: 0,
                ticket: AtomicU64::new(0),
                last_ns: 0,
                word: 0,
                most: 0,
                link_ns: 0,
                flow,
                role: role::NONE,
                other: 0,
                oif: 0,
                link: [0; 3],
                flags,
                base_rx: 0,
                base_tx: 0,
                mss: 0,
                index,
                worker,
                generation: generation.wrapping_add(1),
                stop: 0,
                socket,
                pair: Pair::new(socket, socket, 0, 0),
            });
        }
    }

    /// Addresses and ports.
    pub(super) fn flow(&self) -> Flow {
        // SAFETY: it does not change while the entry is in use.
        unsafe { (*self.0.as_ptr()).flow }
    }

    /// See [`ConnEntry::flags`].
    pub(crate) fn flags(&self) -> u32 {
        self.u32(offset_of!(ConnEntry, flags))
    }

    /// See [`ConnEntry::base_rx`] and [`ConnEntry::base_tx`].
    pub(crate) fn bases(&self) -> (u32, u32) {
        (self.u32(offset_of!(ConnEntry, base_rx)), self.u32(offset_of!(ConnEntry, base_tx)))
    }

    /// See [`ConnEntry::oif`].
    pub(crate) fn interface(&self) -> u32 {
        self.u32(offset_of!(ConnEntry, oif))
    }

    /// See [`ConnEntry::mss`].
    pub(crate) fn mss(&self) -> u32 {
        self.u32(offset_of!(ConnEntry, mss))
    }

    /// See [`ConnEntry::generation`].
    pub(crate) fn generation(&self) -> u32 {
        self.u32(offset_of!(ConnEntry, generation))
    }

    /// See [`ConnEntry::stop`].
    pub(crate) fn stop(&self) -> u32 {
        self.u32(offset_of!(ConnEntry, stop))
    }

    /// See [`ConnEntry::last_ns`].
    pub(crate) fn last_ns(&self) -> u64 {
        self.u64(offset_of!(ConnEntry, last_ns))
    }

    /// The mode of the pair, one of [`mode`](router_ebpf::splice::state::mode).
    pub(crate) fn mode(&self) -> u64 {
        word::mode(self.u64(offset_of!(ConnEntry, pair.word)))
    }

    /// Bytes that the receiver has acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.u64(offset_of!(ConnEntry, pair.splice.acked))
    }

    /// Bytes forwarded.
    pub(crate) fn forwarded(&self) -> u64 {
        self.u64(offset_of!(ConnEntry, pair.splice.forwarded))
    }

    /// Where the body stands behind them, if it is followed; for a pair that is no longer live.
    pub(crate) fn framing(&self) -> Framing {
        // SAFETY: the programs write it while the pair is live alone, and any bytes are valid.
        unsafe { (*self.0.as_ptr()).pair.splice.framing }
    }

    /// The pair, of a source that nobody sends packets of meanwhile.
    pub(crate) fn pair(&self) -> Pair {
        // SAFETY: any bytes are valid.
        unsafe { (*self.0.as_ptr()).pair }
    }

    /// Takes the ticket back. False when a program has released the counter.
    pub(crate) fn take_ticket(&self) -> bool {
        self.ticket().swap(0, SeqCst) != 0
    }
}
