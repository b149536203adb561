//! Memory that the kernel programs and the gateway both map, and the events between them.

use crate::framing::Framing;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Why the program stopped redirecting a direction. Zero while it has not.
pub mod stop {
    /// The body ended, and its last byte was redirected.
    pub const ENDED: u32 = 1;
    /// An skb crosses the end of the body: it was passed up whole.
    pub const CROSSED: u32 = 2;
    /// The target's backlog reached its limit.
    pub const BACKLOG: u32 = 3;
    /// The target is no longer in the map.
    pub const NO_TARGET: u32 = 4;
    /// The body's framing is malformed.
    pub const MALFORMED: u32 = 5;
    /// The skb holds more chunks than the program may look at.
    pub const TOO_MANY_CHUNKS: u32 = 6;
    /// The sender closed its side.
    pub const FIN: u32 = 7;
}

/// The in-flight counter of one instance: requests assigned whose response has not ended.
pub type InFlight = AtomicU32;

/// One steered direction.
///
/// User space writes all fields before it swaps [`Direction::word`] to redirect; the program alone
/// writes them until it swaps back.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Direction {
    /// See [`handover`](crate::handover).
    pub word: AtomicU64,
    /// Index + 1 of the in-flight counter to release at the end; whoever swaps it to zero releases.
    pub ticket: AtomicU64,
    /// Bytes redirected since the hand-over.
    pub redirected: AtomicU64,
    /// When the last skb was redirected, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: AtomicU64,
    /// Where the body stands.
    pub framing: Framing,
    /// Key of the target in the map of targets.
    pub target: u64,
    /// The target's `write_seq` at the hand-over.
    pub base: u32,
    /// Most bytes that may wait between the redirect and the target's send queue.
    pub backlog_limit: u32,
    /// One of [`stop`].
    pub stop: AtomicU32,
    /// Which hand-over of this direction this is, to tell events apart.
    pub generation: u32,
}

/// What the ring buffer carries: a direction stopped redirecting.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Index of the [`Direction`].
    pub direction: u32,
    /// The direction's generation at the hand-over.
    pub generation: u32,
    /// One of [`stop`].
    pub stop: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Bytes redirected since the hand-over.
    pub redirected: u64,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
}
