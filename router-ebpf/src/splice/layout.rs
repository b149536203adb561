//! Memory that the programs of the splice engine and the gateway both map, what the gateway asks of
//! the programs, and the events between them.

use core::sync::atomic::AtomicU64;

use super::state::{Pair, Socket};
use crate::framing::Framing;

/// Names a connection from the gateway's side: all in network order, IPv4 addresses mapped into IPv6.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The gateway's address.
    pub local: [u32; 4],
    /// The peer's address.
    pub remote: [u32; 4],
    /// The gateway's port and the peer's.
    pub ports: [u16; 2],
}

/// Bits of [`ConnEntry::flags`].
pub mod flag {
    /// The numbers, the interface and the windows are known: the socket has sent a packet.
    pub const KNOWN: u32 = 1;
    /// The gateway opened the connection.
    pub const CONNECTED: u32 = 2;
    /// [`ConnEntry::word`](super::ConnEntry::word) has seen a packet.
    pub const SEEN: u32 = 4;
    /// The socket is closed; the entry stays for what is still under way.
    pub const CLOSED: u32 = 8;
    /// The peer has closed its sending side, or either side has reset the connection.
    pub const ENDED: u32 = 16;
    /// A packet of the peer has passed the programs.
    pub const ARRIVED: u32 = 32;
    /// The connection uses accurate ECN (RFC 9768).
    pub const ACCURATE: u32 = 64;
    /// The socket held bytes out of order when it last could have been [known](KNOWN).
    pub const EARLY: u32 = 128;
}

/// Roles in a pair, in [`ConnEntry::role`].
pub mod role {
    /// Not spliced.
    pub const NONE: u32 = 0;
    /// The peer's bytes are spliced; the pair is in this element.
    pub const SOURCE: u32 = 1;
    /// The peer gets the bytes; the pair is in the element of the source.
    pub const RECEIVER: u32 = 2;
}

/// Why the splice stopped before the end of the body.
pub mod stop {
    /// It did not.
    pub const NONE: u32 = 0;
    /// The gateway asked.
    pub const ASKED: u32 = 1;
    /// A packet holds the end of the body and more.
    pub const CROSSED: u32 = 2;
    /// The body's framing is malformed.
    pub const MALFORMED: u32 = 3;
    /// A packet holds more chunks than the program may look at.
    pub const TOO_MANY_CHUNKS: u32 = 4;
    /// The body is longer than it may be.
    pub const TOO_LONG: u32 = 5;
    /// A packet of a body without a known length came out of order.
    pub const HOLE: u32 = 6;
    /// The source's socket holds bytes that passed the programs by, ahead of what it waits for.
    pub const BYPASSED: u32 = 7;
}

/// How long the way to a peer is taken to be as it was, in nanoseconds: then one
/// packet goes through the kernel's neighbour layer, and what it gets there is noted.
pub const LINK_FRESH: u64 = 1_000_000_000;
/// After how long that is noted anew when a packet goes there anyway.
pub const LINK_RENEW: u64 = LINK_FRESH / 2;
/// Loopback's number, in every network namespace.
pub const LOOPBACK: u32 = 1;
/// Most interfaces that XDP forwards to.
pub const XDP_INTERFACES: u32 = 256;

/// One connection that the programs know.
///
/// The gateway fills an element in before the programs can find it. From then on only the programs
/// write, under the locks, but for `ticket`, which is swapped, and `flags`, to which the gateway adds
/// [`flag::CLOSED`] by a command.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ConnEntry {
    /// Held while the connection's state is looked at or changed.
    pub lock: u64,
    /// Held while [`ConnEntry::pair`] is; taken after `lock`.
    pub pair_lock: u64,
    /// Slot + 1 of the in-flight counter to release at the end; whoever swaps it to zero releases.
    pub ticket: AtomicU64,
    /// When the last packet of the pair was seen, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: u64,
    /// The source's word while the connection is not spliced: see [`word`](super::state::word).
    pub word: u64,
    /// Most bytes to move.
    pub most: u64,
    /// When `link` was noted, in nanoseconds of CLOCK_MONOTONIC; 0 for never.
    pub link_ns: u64,
    /// Addresses and ports.
    pub flow: Flow,
    /// One of [`role`].
    pub role: u32,
    /// The element of the other connection of the pair.
    pub other: u32,
    /// The interface that the socket sends by.
    pub oif: u32,
    /// The Ethernet addresses of what is sent there: of the next host, and our own.
    pub link: [u32; 3],
    /// See [`flag`].
    pub flags: u32,
    /// The number of the first byte that the peer sent.
    pub base_rx: u32,
    /// The number of the first byte that the socket sent.
    pub base_tx: u32,
    /// The longest segment that the peer accepts, options included.
    pub mss: u32,
    /// Which element this is.
    pub index: u32,
    /// Which queue gets the events.
    pub worker: u32,
    /// Which hand-over this is, to tell events apart.
    pub generation: u32,
    /// One of [`stop`].
    pub stop: u32,
    /// The socket, while it is not spliced.
    pub socket: Socket,
    /// The pair, of a source.
    pub pair: Pair,
}

/// What the gateway asks for, in [`Command::what`].
pub mod ask {
    /// Splice the source's bytes to the receiver.
    pub const HAND_OVER: u32 = 1;
    /// Stop at the highest byte forwarded.
    pub const STOP: u32 = 2;
    /// Part the pair, if it is quiet.
    pub const PART: u32 = 3;
    /// Part the pair, whatever is under way.
    pub const BREAK: u32 = 4;
    /// The socket of `source` is closed.
    pub const CLOSED: u32 = 5;
    /// The socket of `source` takes [`super::Command::length`] bytes more than it has got.
    pub const WIDEN: u32 = 6;
    /// The socket of `source` announces no more than [`super::Command::length`] bytes as its window from now on, or
    /// what it likes if that is zero.
    pub const LIMIT: u32 = 7;
    /// Stop where the splice began, if the receiver has acknowledged nothing since.
    pub const RETRACT: u32 = 8;
}

/// How the programs answer.
pub mod answer {
    /// Done.
    pub const DONE: u32 = 0;
    /// One of the connections is spliced already, or not quiet.
    pub const BUSY: u32 = 1;
    /// More has been passed to the source's socket than was forwarded.
    pub const BEHIND: u32 = 2;
    /// The receiver's window does not reach as far as what the source was promised.
    pub const WINDOW: u32 = 3;
    /// One of the sockets has not sent anything yet.
    pub const UNKNOWN: u32 = 4;
    /// No such connection.
    pub const FAILED: u32 = 5;
    /// A lock could not be had, and nothing was done: a hypervisor has taken away the processor that holds it.
    pub const LOCKED: u32 = 6;
}

/// A request of the gateway's, as the data of a test run of the program for commands.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What the kernel takes for an Ethernet header.
    pub ethernet: [u32; 4],
    /// One of [`ask`].
    pub what: u32,
    /// Element of the source.
    pub source: u32,
    /// Element of the receiver.
    pub receiver: u32,
    /// The source's number of the first byte to be spliced.
    pub h: u32,
    /// The number of this byte towards the receiver.
    pub a: u32,
    /// See [`ConnEntry::generation`].
    pub generation: u32,
    /// Bytes left of the body, or [`UNKNOWN`](super::state::UNKNOWN); or see [`ask::WIDEN`], [`ask::LIMIT`].
    pub length: u64,
    /// See [`ConnEntry::most`].
    pub most: u64,
    /// See [`ConnEntry::ticket`].
    pub ticket: u64,
    /// Where the body stands.
    pub framing: Framing,
}

/// What the ring buffer carries: something happened to a pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Element of the source.
    pub source: u32,
    /// Its generation.
    pub generation: u32,
    /// See [`event`](super::verdict::event).
    pub events: u32,
    /// One of [`stop`].
    pub stop: u32,
}
