//! Memory that the kernel programs and the gateway both map, and the events between them.

use crate::framing::Framing;
use core::sync::atomic::AtomicU64;

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
    /// The kernel could not cut off bytes that a retransmission repeated, and dropped the skb: the
    /// stream has a hole, both connections must be closed.
    pub const BROKEN: u32 = 7;
    /// The body is longer than it may be: what is beyond the limit was passed up.
    pub const TOO_LONG: u32 = 8;
}

/// The in-flight counter of one instance, in a cache line of its own.
///
/// User space works on the lower half alone, as an `AtomicU32` at the same address (the machine is
/// little-endian); a program subtracts one from the whole, which borrows nothing, because the
/// counter is not zero while a ticket is out.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct InFlight {
    /// Requests assigned whose response has not ended.
    pub count: AtomicU64,
}

/// Memory that an skb takes beside its payload, in bytes: its descriptor and the slack of its buffer.
pub const SKB_OVERHEAD: u32 = 1024;

/// Elements that the outer array of event queues has: the most worker threads.
pub const MAX_WORKERS: usize = 256;

/// One direction.
///
/// User space writes all fields before it swaps [`Direction::word`] to redirect; from then on they
/// are the program's, until the mode bit is cleared. Only `word`, `ticket` and the fields under
/// "every skb" are written while the mode is pass.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Direction {
    /// See [`handover`](crate::handover). Touched by every skb.
    pub word: AtomicU64,
    /// Slot + 1 of the in-flight counter to release at the end; whoever swaps it to zero releases.
    pub ticket: AtomicU64,
    /// Bytes redirected since the hand-over.
    pub redirected: AtomicU64,
    /// When the last skb was redirected, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: AtomicU64,
    /// Where the body stands.
    pub framing: Framing,
    /// Key of the target in the map of targets.
    pub target: u64,
    /// Most bytes to redirect; the skb that would exceed it is passed up.
    pub most: u64,
    /// One of [`stop`].
    pub stop: AtomicU64,
    /// Most memory, in bytes, that may wait between the redirect and the target's send queue: what
    /// the skbs hold, and [`SKB_OVERHEAD`] for each of them.
    pub backlog_limit: u32,
    /// The target's `write_seq` at the hand-over; set by the program at the first redirected skb.
    pub base: u32,
    /// Which hand-over of this direction this is, to tell events apart.
    pub generation: u32,
    /// Which queue gets the direction's events.
    pub worker: u32,
    /// Skbs redirected since the hand-over.
    pub skbs: u32,
    /// Mean length of the last skbs, in bytes, to tell how many a backlog consists of.
    pub mean_len: u32,
    /// The sequence number that the next skb must begin with. Every skb.
    pub next_seq: u32,
    /// Whether `next_seq` is known: zero until the first skb after insertion. Every skb.
    pub seq_known: u32,
    /// Bytes of retransmissions that were cut off. Every skb.
    pub repeated: u32,
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
