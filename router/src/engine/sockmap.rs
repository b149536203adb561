//! The sockmap engine: the kernel carries the rest of a body from one socket to the other.

use std::{io, sync::Arc, time::Duration};

use router_ebpf::framing::Framing;

use crate::{
    kernel::Kernel,
    net::{Conn, HangupWatch},
};

/// A connection's place in the kernel's maps; leaves them when dropped.
///
/// It must be dropped after the connection's socket, as the order of [`Conn`]'s fields sees to.
#[derive(Debug)]
pub struct Membership {}

/// One worker thread's access to the engine. Cheap to clone.
#[derive(Clone)]
pub struct Sockmap {
    _kernel: Arc<Kernel>,
    _watch: HangupWatch,
}

/// What became of a steered body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// Bytes that the kernel carried; already counted in both streams.
    pub bytes: u64,
    /// Whether the kernel released the in-flight counter; else it is still the caller's.
    pub released: bool,
    /// How it ended.
    pub end: SteerEnd,
}

/// How the steering of one direction ended. In each case but `SourceBroken`, `TargetGone` and
/// `Idle` the target has all bytes in its send queue and may be written, shut down or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerEnd {
    /// The body is complete.
    Ended,
    /// User space carries on from where `framing` stands now.
    HandedBack(HandBack),
    /// Nothing was steered, user space carries on. Bytes that had arrived meanwhile are in the
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandBack {
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
    /// The target has something to read, as when a server answers before it has the whole request.
    TargetReadable,
}

/// Why a body was not steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decline {
    /// More bytes had arrived before the hand-over: try again once they are forwarded.
    Unread,
    /// One of the sockets is no longer in the established state.
    NotEstablished,
    /// All directions are in use.
    NoRoom,
    /// A system call failed.
    System,
}

impl Sockmap {
    /// # Errors
    /// When `worker` is not below [`Options::workers`](crate::kernel::Options), or has an engine
    /// already.
    pub fn new(kernel: Arc<Kernel>, watch: HangupWatch, _worker: u32) -> io::Result<Self> {
        Ok(Self { _kernel: kernel, _watch: watch })
    }

    /// Dispatches the kernel's events, for ever; must run on the thread that steers.
    ///
    /// # Errors
    /// When the queue of events cannot be polled.
    pub async fn drive(self) -> io::Result<()> {
        std::future::pending().await
    }

    /// Lets the kernel carry bytes from `from` to `to` until the body ends or something else happens.
    ///
    /// Everything read from `from` must have been written to `to` in full. `release` is the slot of
    /// the in-flight counter that the kernel releases with the last byte. `idle` limits how long
    /// nothing may move. With `watch_target`, it also ends when `to` becomes readable (a server that
    /// answers early).
    ///
    /// Dropping the future leaves all consistent, provided that both connections are dropped next:
    /// an in-flight counter is then the caller's in every case.
    pub async fn steer(
        &self,
        _from: &mut Conn,
        _to: &mut Conn,
        _framing: &mut Framing,
        _release: Option<u32>,
        _idle: Duration,
        _watch_target: bool,
    ) -> Steered {
        Steered { bytes: 0, released: false, end: SteerEnd::Declined(Decline::System) }
    }
}
