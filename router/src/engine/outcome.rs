//! What comes of handing a body to a kernel engine, and the names of its reasons in metrics, logs and status.

/// What became of a body that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverOutcome {
    /// Bytes that the kernel moved; already counted in both streams.
    pub bytes: u64,
    /// Whether the kernel released the in-flight counter; else it is still the caller's.
    pub released: bool,
    /// How it ended.
    pub end: HandoverEnd,
}

/// How a hand-over ended. In each case but `SourceBroken`, `TargetGone` and
/// `Idle` the target has all bytes in its send queue and may be written, shut down or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverEnd {
    /// The body is complete.
    Ended,
    /// User space goes on from where `framing` stands now.
    TakenBack(TakeBack),
    /// Nothing was handed over, user space goes on. Bytes that had arrived meanwhile may be in the
    /// source's `input`.
    Declined(Decline),
    /// The source closed its sending side before the end (or at it, when closing is the end).
    SourceClosed,
    /// The source's connection is broken.
    SourceBroken,
    /// The target's peer closed or reset its connection: close both.
    TargetGone,
    /// Nothing moved for the given time.
    Idle,
}

/// Why the kernel gave a body back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TakeBack {
    /// A packet holds the end of the body and more.
    Crossed,
    /// The target reads too slowly: the kernel would have had to buffer without bound.
    Backlog,
    /// The target is no longer in the kernel's map.
    NoTarget,
    /// The framing is malformed; user space meets the same error.
    Malformed,
    /// A packet holds more chunks than the program may look at.
    TooManyChunks,
    /// The body is longer than it may be; user space finds that as well.
    TooLong,
    /// A packet of a body without a known length came out of order.
    Hole,
    /// The target has something to read, as when a server answers before it has the whole request.
    TargetReadable,
    /// The source's bytes came to its socket: their packets do not pass the engine's programs.
    Bypassed,
    /// What was sent to the target past its socket did not arrive.
    Stalled,
}

/// Why a body was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decline {
    /// More bytes had arrived before the hand-over: try again once they are forwarded.
    Unread,
    /// One of the sockets is no longer in the established state.
    NotEstablished,
    /// All directions are in use.
    NoRoom,
    /// A system call failed.
    System,
    /// One connection is IPv4, the other IPv6.
    Family,
    /// The two connections agreed on different options of TCP.
    Options,
    /// The target does not accept segments as long as the source may send.
    Segments,
    /// The target's window does not reach as far as what the source was promised: try again later.
    Window,
    /// The source has not acknowledged everything that was sent to it: try again later.
    SendQueue,
    /// One of the connections has had no packet in each direction since the engine knows it: try again
    /// later.
    Unknown,
    /// Packets of one of the connections do not pass the engine's programs: they come or go by an
    /// interface that has none, or another program takes them first.
    Interface,
    /// What was sent to the target past its socket did not arrive, not long ago.
    Stalled,
    /// One of the peers is on this host, and a firewall drops what the programs' way of reaching it needs.
    Firewall,
}

/// Every reason for which a kernel engine may fall back, by its name; some are of one engine only.
pub(super) fn fallbacks() -> impl Iterator<Item = &'static str> {
    let taken_back = TakeBack::ALL.iter().map(|reason| reason.as_str());
    taken_back.chain(Decline::ALL.iter().map(|reason| reason.as_str()))
}

/// Gives reasons their names, and a list of all of them that cannot miss one.
macro_rules! named {
    ($kind:ident { $($reason:ident => $name:literal,)* }) => {
        impl $kind {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$reason),*];

            /// The name used in metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

named! { TakeBack {
    Crossed => "crossed",
    Backlog => "backlog",
    NoTarget => "no_target",
    Malformed => "malformed",
    TooManyChunks => "too_many_chunks",
    TooLong => "too_long",
    Hole => "hole",
    TargetReadable => "target_readable",
    Bypassed => "bypassed",
    Stalled => "stalled",
} }

named! { Decline {
    Unread => "unread",
    NotEstablished => "not_established",
    NoRoom => "no_room",
    System => "system",
    Family => "family",
    Options => "options",
    Segments => "segments",
    Window => "window",
    SendQueue => "send_queue",
    Unknown => "unknown",
    Interface => "interface",
    Stalled => "stalled",
    Firewall => "firewall",
} }
