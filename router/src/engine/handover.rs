//! What a kernel engine is asked for.

use std::time::Duration;

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
        let (first, release, watch_target, most) = (idle, None, false, u64::MAX);
        Self { from, to, framing, idle, first, release, watch_target, most }
    }
}
