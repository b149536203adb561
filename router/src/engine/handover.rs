//! What a kernel engine is asked for.

use std::{cell::Cell, time::Duration};

use router_ebpf::framing::Framing;

use super::Conn;

/// What the kernel is to move, and how far.
#[derive(Debug)]
pub struct Handover<'a> {
    /// Whose peer sends. Everything read from it must have been written to `to` in full.
    pub from: &'a mut Conn,
    /// Whose peer receives.
    pub to: &'a mut Conn,
    /// Where the body stands; moved on.
    pub framing: &'a mut Framing,
    /// How long nothing may move.
    pub idle: Duration,
    /// How long it may take until something moves at all.
    pub first: Duration,
    /// Limits in the place of those two, which may change meanwhile.
    pub limits: Option<&'a IdleLimits>,
    /// The slot of the in-flight counter that the kernel releases with the last byte.
    pub release: Option<u32>,
    /// Whether it also ends when `to` becomes readable, as when a server answers early.
    pub watch_target: bool,
    /// Bytes that the kernel may move, for bodies of unknown length that have a limit. User space gets what
    /// would exceed it.
    pub most: u64,
}

impl<'a> Handover<'a> {
    /// All of the rest of a body, and no more than that.
    pub fn new(
        from: &'a mut Conn,
        to: &'a mut Conn,
        framing: &'a mut Framing,
        idle: Duration,
    ) -> Self {
        Self {
            from,
            to,
            framing,
            idle,
            first: idle,
            limits: None,
            release: None,
            watch_target: false,
            most: u64::MAX,
        }
    }
}

/// How long nothing may move. Whoever changes a limit while it is in use has the task woken.
#[derive(Debug)]
pub struct IdleLimits {
    /// Before the first byte has moved.
    pub first: Cell<Duration>,
    /// After that.
    pub later: Cell<Duration>,
}

impl IdleLimits {
    /// `first` before the first byte has moved, `later` after that.
    pub fn new(first: Duration, later: Duration) -> Self {
        Self { first: Cell::new(first), later: Cell::new(later) }
    }

    pub(super) fn get(&self, moved: bool) -> Duration {
        if moved { self.later.get() } else { self.first.get() }
    }
}
