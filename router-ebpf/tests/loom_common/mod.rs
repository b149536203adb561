//! What the loom models share: the exploration, and the ticket that only one side may release.

#![allow(dead_code, reason = "each model uses what it needs")]

use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Runs a model under every interleaving with at most `preemptions` forced switches.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// An in-flight counter at one, and the ticket of the request that it counts.
pub(crate) struct Ticket {
    word: AtomicU64,
    in_flight: AtomicU64,
}

impl Ticket {
    /// A ticket that both sides may release from the start, or one that is yet to be [handed out](Self::hand_out).
    pub(crate) fn new(handed_out: bool) -> Self {
        Self { word: AtomicU64::new(u64::from(handed_out)), in_flight: AtomicU64::new(1) }
    }

    /// Lets the other side release it.
    pub(crate) fn hand_out(&self) {
        self.word.store(1, SeqCst);
    }

    /// Takes it back. False when the other side has released it.
    pub(crate) fn take(&self) -> bool {
        self.word.swap(0, SeqCst) != 0
    }

    /// Releases it, unless that has been done. With `only_read`, the ticket is not swapped: a fault that
    /// the models must catch.
    pub(crate) fn release(&self, only_read: bool) {
        let held = if only_read { self.word.load(SeqCst) != 0 } else { self.take() };
        if held {
            self.release_untold();
        }
    }

    /// Counts down for one that was never handed out, or was taken back.
    pub(crate) fn release_untold(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(SeqCst)
    }
}
