//! A connection that the kernel programs know.

use std::{
    cell::Cell,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
};

use router_ebpf::splice::layout::{Command, LOOPBACK, ask, flag};

use super::UNSPLICED_WINDOW;
use crate::{
    engine::outcome::Decline,
    kernel::{
        conntrack::Conntrack,
        splice::{Info, SpliceObject},
    },
    net::Stream,
};

/// Bytes of the headers in front of TCP's options.
const HEADERS_V4: u32 = 40;
const HEADERS_V6: u32 = 60;

/// Round-trip times of clients whose requests may have to wait for [`UNSPLICED_WINDOW`], in microseconds. From farther
/// away it would be slow.
const NEAR_RTT_US: u32 = 4_000;

/// A connection's place in the programs' maps; leaves them when dropped.
///
/// Once bytes were spliced, it must be dropped after the connection's socket, as the order of
/// [`Conn`](crate::engine::Conn)'s fields sees to.
pub(crate) struct Membership {
    programs: Arc<SpliceObject>,
    index: u32,
    peer: IpAddr,
    six: bool,
    info: Info,
    /// The connection can only be reset: bytes may be missing.
    broken: Rc<Cell<bool>>,
    /// Whether bytes were spliced, which moved its numbers for good.
    moved: Cell<bool>,
    /// Whether connection tracking lets the connection's numbers be, if it has to.
    untracked: Cell<bool>,
    /// Whether the socket announces no more than [`UNSPLICED_WINDOW`].
    limited: Cell<bool>,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Membership {
    /// Makes a connection known; `None` when there is no room, or the socket is gone.
    pub(super) fn new(
        programs: &Arc<SpliceObject>,
        stream: &Stream,
        worker: u32,
        connected: bool,
    ) -> Option<Box<Self>> {
        let addresses = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
        let info = Info::of(stream.as_fd()).ok()?;
        let limited = connected || info.rtt_us < NEAR_RTT_US;
        let limit = if limited { UNSPLICED_WINDOW } else { 0 };
        let index = programs.register(addresses, &info, worker, connected, limit).ok()?;
        // Packets until now may have passed before the programs knew the connection.
        let info = Info::of(stream.as_fd()).unwrap_or(info);
        Some(Box::new(Self {
            programs: Arc::clone(programs),
            index,
            peer: addresses.1.ip(),
            six: is_six(addresses.0),
            info,
            broken: Rc::new(Cell::new(false)),
            moved: Cell::new(false),
            untracked: Cell::new(false),
            limited: Cell::new(limited),
        }))
    }

    pub(in crate::engine) fn index(&self) -> u32 {
        self.index
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The interface that its packets leave by.
    pub(crate) fn interface(&self) -> u32 {
        self.programs.entry(self.index).interface()
    }

    /// Whether the peer is on this host.
    pub(super) fn is_local(&self) -> bool {
        self.interface() == LOOPBACK
    }

    /// Has connection tracking let the numbers of a connection to a local peer be: see
    /// [`conntrack`](crate::kernel::conntrack).
    pub(super) fn untrack(&self, stream: &Stream, conntrack: &Conntrack) -> io::Result<()> {
        if !self.untracked.get() {
            conntrack.ignore_numbers(stream.local_addr()?, stream.peer_addr()?)?;
            self.untracked.set(true);
        }
        Ok(())
    }

    /// Whether the connection can only be reset.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    pub(super) fn broken(&self) -> Rc<Cell<bool>> {
        self.broken.clone()
    }

    /// Whether the packets of this connection's peer can be passed to `target`'s.
    pub(super) fn fits(&self, target: &Self) -> Result<(), Decline> {
        if self.broken.get() || target.broken.get() {
            return Err(Decline::System);
        }
        if self.six != target.six {
            return Err(Decline::Family);
        }
        let flags = |member: &Self| member.programs.entry(member.index).flags();
        if (flags(self) | flags(target)) & flag::ACCURATE != 0 {
            return Err(Decline::Options);
        }
        let (from, to) = (&self.info, &target.info);
        // Blocks of the target reach the source: not without its consent. Marks of congestion on the
        // source's packets reach the target, which must know of them.
        let unknown = to.sack && !from.sack || from.ecn && !to.ecn;
        if from.timestamps != to.timestamps || unknown {
            return Err(Decline::Options);
        }
        let headers = if to.path == 0 {
            0
        } else if self.six {
            HEADERS_V6
        } else {
            HEADERS_V4
        };
        let mss = self.programs.entry(target.index).mss();
        if from.mss > mss || from.mss + headers > to.path {
            return Err(Decline::Segments);
        }
        Ok(())
    }

    /// The most that the window fields of the socket's packets can say, in bytes.
    pub(super) fn most_announced(&self) -> u64 {
        u64::from(u16::MAX) << self.info.scale_own
    }

    /// Limits the windows that the socket announces, or no longer.
    pub(super) fn limit(&self, limited: bool) {
        if self.limited.replace(limited) != limited {
            let length = if limited { u64::from(UNSPLICED_WINDOW) } else { 0 };
            let source = self.index;
            let command = Command { what: ask::LIMIT, source, length, ..SpliceObject::nothing() };
            let _ = self.programs.command(&command);
        }
    }

    /// Whether the connection has had packets in both directions that the programs have seen.
    pub(super) fn has_passed(&self, stream: &Stream) -> Result<(), Decline> {
        let flags = self.programs.entry(self.index).flags();
        let missing = !flags & (flag::KNOWN | flag::ARRIVED);
        if missing == 0 {
            return Ok(());
        }
        if flags & flag::EARLY != 0 {
            return Err(Decline::Unread);
        }
        let now = Info::of(stream.as_fd()).map_err(|_| Decline::System)?;
        let unseen = missing & flag::KNOWN != 0 && now.sent != self.info.sent
            || missing & flag::ARRIVED != 0 && now.got != self.info.got;
        Err(if unseen { Decline::Interface } else { Decline::Unknown })
    }

    /// Whether bytes were spliced: without the programs, the connection could not go on.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.get()
    }

    /// Notes that bytes are spliced, which moves the connection's numbers for good.
    pub(super) fn note_moved(&self) {
        self.moved.set(true);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.programs.forget(self.index, self.moved.get() && !self.broken.get());
    }
}

fn is_six(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv6()
}
