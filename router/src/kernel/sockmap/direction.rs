//! One direction's memory, seen from user space.

use std::{
    ptr::NonNull,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use router_ebpf::{framing::Framing, handover, layout};

/// A direction in mapped memory that one connection holds.
///
/// The plain fields belong to this side while the word's mode is pass, and to the program while it
/// is redirect; [`Direction::hand_over`] and [`Direction::take_back`] are the crossings.
#[derive(Clone, Copy)]
pub(crate) struct Direction(NonNull<layout::Direction>);

/// What the program needs to know of a body.
pub(crate) struct Body {
    pub(crate) framing: Framing,
    /// Key of the target.
    pub(crate) target: u64,
    /// Slot of the in-flight counter to release at the end.
    pub(crate) release: Option<u32>,
    /// Most bytes to move.
    pub(crate) most: u64,
    /// Most bytes that may wait for the target's send queue.
    pub(crate) backlog_limit: u32,
}

/// What the program did with a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Bytes redirected.
    pub(crate) bytes: u64,
    /// Where the body stands behind the last redirected byte.
    pub(crate) framing: Framing,
    /// One of [`layout::stop`]; zero when the program had not stopped by itself.
    pub(crate) stop: u32,
}

impl Direction {
    /// # Safety
    /// The element must stay mapped while the value is used, and no other connection may hold it.
    pub(super) unsafe fn new(element: NonNull<layout::Direction>) -> Self {
        Self(element)
    }

    fn cell(&self, field: impl FnOnce(*mut layout::Direction) -> *mut AtomicU64) -> &AtomicU64 {
        // SAFETY: the field lies in the mapping, and is accessed atomically by both sides.
        unsafe { &*field(self.0.as_ptr()) }
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: only the address is computed.
        self.cell(|at| unsafe { &raw mut (*at).word })
    }

    fn ticket(&self) -> &AtomicU64 {
        // SAFETY: only the address is computed.
        self.cell(|at| unsafe { &raw mut (*at).ticket })
    }

    /// Bytes redirected since the hand-over, so far.
    pub(crate) fn redirected(&self) -> u64 {
        // SAFETY: only the address is computed.
        self.cell(|at| unsafe { &raw mut (*at).redirected }).load(Relaxed)
    }

    /// When the last packet was redirected, or the direction handed over: nanoseconds of
    /// CLOCK_MONOTONIC.
    pub(crate) fn last_ns(&self) -> u64 {
        // SAFETY: only the address is computed.
        self.cell(|at| unsafe { &raw mut (*at).last_ns }).load(Relaxed)
    }

    /// Prepares the direction for a connection that is about to join: nothing seen, events to
    /// `worker`.
    pub(crate) fn prepare(&self, worker: u32) {
        self.word().store(0, SeqCst);
        self.ticket().store(0, SeqCst);
        let at = self.0.as_ptr();
        // SAFETY: the fields are this side's: no source has the direction.
        unsafe {
            (*at).worker = worker;
            (*at).seq_known = 0;
            (*at).repeated = 0;
        }
    }

    /// Whether the program redirects.
    pub(crate) fn redirects(&self) -> bool {
        handover::redirects(self.word().load(SeqCst))
    }

    /// Lets the program redirect, if it has seen exactly the `forwarded` bytes that this side has
    /// read and forwarded since the source joined. False when more have come meanwhile.
    pub(crate) fn hand_over(&self, forwarded: u64, body: &Body, now_ns: u64) -> bool {
        let at = self.0.as_ptr();
        // SAFETY: the mode is pass, so that these fields are this side's.
        unsafe {
            (*at).framing = body.framing;
            (*at).target = body.target;
            (*at).most = body.most;
            (*at).backlog_limit = body.backlog_limit;
            (*at).base = 0;
            (*at).skbs = 0;
            (*at).generation = (*at).generation.wrapping_add(1);
            (&raw mut (*at).redirected).cast::<u64>().write(0);
            (&raw mut (*at).stop).cast::<u64>().write(0);
            (&raw mut (*at).last_ns).cast::<u64>().write(now_ns);
        }
        self.ticket().store(body.release.map_or(0, |slot| u64::from(slot) + 1), SeqCst);
        let swapped = self.word().compare_exchange(
            handover::passing(forwarded),
            handover::redirecting(forwarded),
            SeqCst,
            SeqCst,
        );
        if swapped.is_err() {
            self.ticket().store(0, SeqCst);
        }
        swapped.is_ok()
    }

    /// Ends redirecting. True when the program had not ended it by itself: it may then be at work on
    /// one more packet, until the source's lock has been taken once.
    pub(crate) fn take_back(&self) -> bool {
        handover::redirects(self.word().fetch_and(handover::COUNT, SeqCst))
    }

    /// Takes the ticket back. False when the program has released the counter.
    pub(crate) fn take_ticket(&self) -> bool {
        self.ticket().swap(0, SeqCst) != 0
    }

    /// What was done, once the mode is pass and the program at rest.
    pub(crate) fn report(&self) -> Report {
        let at = self.0.as_ptr();
        // SAFETY: the fields are this side's again, and any bytes are valid for them.
        let (framing, stop) =
            unsafe { ((*at).framing, (&raw mut (*at).stop).cast::<u64>().read() as u32) };
        Report { bytes: self.redirected(), framing, stop }
    }
}
