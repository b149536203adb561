//! The splice engine: the kernel passes the packets of a body from one connection to the other, past
//! the gateway's sockets.
//!
//! docs/splice.md describes the states of a pair and what the programs do with each packet.

pub(super) mod membership;
mod pair;
#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    io,
    net::IpAddr,
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hashbrown::{HashMap, HashSet};
use router_ebpf::{
    framing::Framing,
    splice::{
        layout::{Command, answer, ask, stop},
        state::{UNKNOWN, UNTIL_CLOSE, mode},
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Instant,
};

use self::membership::Membership;
use self::pair::{Pair, Woken};
use super::{
    Conn, Handover, IdleLimits,
    events::Events,
    outcome::{Decline, HandoverEnd, HandoverOutcome},
    tcp,
};
use crate::{
    kernel::{
        conntrack::Conntrack,
        splice::{Entry, SWEEP_INTERVAL, Skipped, SpliceObject, acknowledge_now, widen},
    },
    net::{HangupWatch, Watched},
};

/// After a splice fails to reach a peer, its connections stay on sockets this long.
const SPLICE_RETRY_BACKOFF: Duration = Duration::from_secs(600);
/// Most bytes that a peer may have under way to the gateway while its connection is not spliced. The
/// other peer must be ready to take as much when a body is handed over, and most offer 64 KiB at first.
const UNSPLICED_WINDOW: u32 = 48 * 1024;
/// Most bytes of a segment, options included. Loopback takes 64 KiB, of which [`UNSPLICED_WINDOW`] does not hold one, and
/// a receiver acknowledges at once from two on. Four of these are one packet of loopback all the same.
pub(crate) const MAX_SEGMENT: u32 = 16_012;
/// How many bytes the source may have under way to the receiver, if that takes them: so much its socket
/// takes as well, should the splice stop.
const SPLICED_WINDOW: u32 = 1 << 20;
/// What a socket may have received that it has not acknowledged.
const MAX_UNACKNOWLEDGED: u32 = 128 * 1024;

/// What the engine may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Whether a receiver that has closed its sending side may still be sent to.
    pub half_closed_targets: bool,
    /// Whether it is to find out what works: peers on this host are spliced although they might not hear of resets.
    pub tests: bool,
}

/// One worker thread's access to the engine. Cheap to clone.
#[derive(Clone)]
pub struct Splice {
    inner: Rc<Inner>,
}

struct Inner {
    programs: Arc<SpliceObject>,
    watch: HangupWatch,
    worker: u32,
    settings: Settings,
    events: Events,
    /// `None` where the kernel has no connection tracking that can be told anything.
    conntrack: Option<Conntrack>,
    /// Peers that were not reached past their sockets, and when.
    shunned: RefCell<HashMap<IpAddr, Instant>>,
    /// Sources of pairs that do not get anywhere.
    stuck: RefCell<HashSet<u32>>,
}

/// How far a pair is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    /// When its last packet came.
    last_ns: u64,
    forwarded: u64,
    acked: u64,
}

impl Look {
    fn at(entry: &Entry) -> Self {
        let (forwarded, acked) = (entry.forwarded(), entry.acked());
        Self { last_ns: entry.last_ns(), forwarded, acked }
    }

    /// Whether packets came, and moved nothing: they may be repeated because what is forwarded gets lost.
    fn stands_since(&self, before: &Self) -> bool {
        self.last_ns != before.last_ns && *self == Self { last_ns: self.last_ns, ..*before }
    }
}

impl Splice {
    /// # Errors
    /// When the worker's queue of events cannot be made. `worker` must be this thread's own number.
    pub fn new(
        programs: Arc<SpliceObject>,
        watch: HangupWatch,
        worker: u32,
        settings: Settings,
    ) -> io::Result<Self> {
        let events = Events::new(programs.open_events(worker)?);
        Ok(Self {
            inner: Rc::new(Inner {
                programs,
                watch,
                worker,
                settings,
                events,
                conntrack: Conntrack::open().ok(),
                shunned: RefCell::default(),
                stuck: RefCell::default(),
            }),
        })
    }

    /// Dispatches the kernel's events, for ever; must run on the thread that hands over, and once.
    ///
    /// # Errors
    /// When the queue of events cannot be polled.
    pub async fn drive(self) -> io::Result<()> {
        let sweeping = async {
            let mut seen = HashMap::new();
            let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
            sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                sweeps.tick().await;
                let Inner { programs, events, .. } = &*self.inner;
                programs.sweep_closed();
                // In case an event was lost because the queue was full. One look at all pairs: as long as
                // a stream goes on, nothing is done for it alone.
                let mut stuck = self.inner.stuck.borrow_mut();
                let (before, mut now) = (std::mem::take(&mut seen), HashMap::new());
                stuck.clear();
                events.wake_where(|index| {
                    let entry = programs.entry(index);
                    let look = Look::at(&entry);
                    let stands = before.get(&index).is_some_and(|old| look.stands_since(old));
                    now.insert(index, look);
                    if stands {
                        stuck.insert(index);
                    }
                    stands || entry.mode() != mode::LIVE
                });
                seen = now;
            }
        };
        tokio::select! {
            end = self.inner.events.drive() => end,
            () = sweeping => Ok(()),
            end = self.watch_interfaces() => end,
        }
    }

    /// Puts the programs on interfaces that come, for ever. One thread does it for all.
    async fn watch_interfaces(&self) -> io::Result<()> {
        let programs = &self.inner.programs;
        let follow = async {
            // SAFETY: it owns an open descriptor for as long as it lives.
            let news =
                unsafe { AsyncFd::register_with_interest(programs.news()?, Interest::READABLE) }?;
            loop {
                // First for those that came before the news did.
                let changes = programs.refresh()?;
                for (interface, why) in changes.came {
                    tracing::info!(interface, why, "splicing its packets");
                }
                for interface in changes.went {
                    tracing::info!(
                        interface,
                        "splicing its packets no more: it is gone, a port, or excluded"
                    );
                }
                changes.skipped.into_iter().for_each(log_skipped);
                log_drivers(changes.drivers);
                while news.readable().await?.try_io(|news| news.get_ref().take()).is_err() {}
            }
        };
        if self.inner.worker == 0 {
            let Err(error): io::Result<std::convert::Infallible> = follow.await;
            tracing::warn!(%error, "interfaces that come later are not spliced");
        }
        std::future::pending().await
    }

    /// Makes a connection known to the kernel programs, from before its next packet on, so that they
    /// know where it stands when it is to be handed over. `connected` if the gateway opened it.
    ///
    /// A connection for which there is no room is not handed over. True if it was not known, and is now.
    pub fn register(&self, conn: &mut Conn, connected: bool) -> bool {
        if conn.splice.is_some() {
            return false;
        }
        conn.splice =
            Membership::new(&self.inner.programs, &conn.stream, self.inner.worker, connected);
        if conn.splice.is_some() {
            // A FIN would have no number while packets pass the sockets by. When the process is
            // killed, the kernel closes them.
            conn.stream.reset_on_close(true);
        }
        conn.splice.is_some()
    }

    /// Takes a connection back from the programs, unless its numbers have been moved.
    pub fn forget(&self, conn: &mut Conn) {
        if conn.splice.as_ref().is_some_and(|member| !member.has_moved() && !member.is_broken()) {
            conn.splice = None;
            conn.stream.reset_on_close(false);
        }
    }

    /// Lets the kernel move bytes until the body ends or something else happens.
    ///
    /// As [`Sockmap::hand_over`](super::sockmap::Sockmap::hand_over). The in-flight counter is released with
    /// the last byte; the future ends when the target has acknowledged all, because the two sockets
    /// may not be used before.
    pub async fn hand_over(&self, handover: Handover<'_>) -> HandoverOutcome {
        let Handover { from, to, framing, idle, first, limits, release, watch_target, most } =
            handover;
        if framing.is_done() {
            return HandoverOutcome { bytes: 0, released: false, end: HandoverEnd::Ended };
        }
        let handed = self.begin(from, to, framing, release, most);
        to.stream.hold_back(false);
        let mut pair = match handed {
            Ok(pair) => pair,
            Err(reason) => {
                return HandoverOutcome {
                    bytes: 0,
                    released: false,
                    end: HandoverEnd::Declined(reason),
                };
            }
        };
        let own = IdleLimits::new(first, idle);
        let mut woken = pair.wait(from, to, limits.unwrap_or(&own), watch_target).await;
        if pair.entry.stop() == stop::BYPASSED {
            woken = Woken::SourceBroken;
        }
        let quiet = matches!(woken, Woken::Quiet) && pair.part();
        if !quiet {
            pair.give_up();
        }
        let released = pair.settle();
        let bytes = pair.entry.forwarded();
        from.stream.count_handed_over(bytes, 0);
        to.stream.count_handed_over(0, bytes);
        if framing.is_length() {
            framing.skip(bytes);
        } else {
            *framing = pair.entry.framing();
        }
        let end = match woken {
            Woken::Quiet if quiet => pair.ending(),
            Woken::TargetGone => HandoverEnd::TargetGone,
            Woken::SourceBroken => HandoverEnd::SourceBroken,
            Woken::Quiet | Woken::Idle => HandoverEnd::Idle,
        };
        HandoverOutcome { bytes, released, end }
    }

    fn begin(
        &self,
        from: &Conn,
        to: &Conn,
        framing: &Framing,
        release: Option<u32>,
        most: u64,
    ) -> Result<Pair<'_>, Decline> {
        debug_assert!(from.input.is_empty(), "bytes that user space holds would be overtaken");
        let inner = &*self.inner;
        let (Some(source), Some(target)) = (&from.splice, &to.splice) else {
            return Err(Decline::NoRoom);
        };
        if inner.shuns(source.peer()) || inner.shuns(target.peer()) {
            return Err(Decline::Stalled);
        }
        source.has_passed(&from.stream)?;
        target.has_passed(&to.stream)?;
        source.fits(target).inspect_err(|_| source.limit(false))?;
        for (conn, member) in [(from, source), (to, target)] {
            if member.is_local() {
                inner.reach_local(conn, member)?;
            }
        }
        if tcp::send_queue(&from.stream).map_err(|_| Decline::System)? != 0 {
            return Err(Decline::SendQueue);
        }
        let source_watch = inner.watch.watch(&from.stream).map_err(|_| Decline::System)?;
        let target_watch = inner.watch.watch(&to.stream).map_err(|_| Decline::System)?;
        let entry = inner.programs.entry(source.index());
        let generation = entry.generation().wrapping_add(1);
        let (h, _) = entry.bases();
        let (_, a) = inner.programs.entry(target.index()).bases();
        let command = Command {
            what: ask::HAND_OVER,
            source: source.index(),
            receiver: target.index(),
            h: h.wrapping_add(from.stream.bytes_read() as u32),
            a: a.wrapping_add(to.stream.bytes_written() as u32),
            generation,
            length: match framing {
                framing if framing.is_length() => framing.remaining,
                framing if framing.is_until_close() => UNTIL_CLOSE,
                _ => UNKNOWN,
            },
            most: most.min(i64::MAX as u64),
            ticket: release.map_or(0, |slot| u64::from(slot) + 1),
            framing: *framing,
            ..SpliceObject::nothing()
        };
        let mut answer = inner.programs.command(&command);
        if let Ok(answer::WINDOW) = answer {
            // With an acknowledgement the source believes in a smaller window than it had.
            source.limit(true);
            acknowledge_now(from.stream.as_fd());
            answer = inner.programs.command(&command);
        }
        match answer {
            Ok(answer::DONE) => {}
            Ok(answer::BEHIND) => return Err(Decline::Unread),
            Ok(answer::WINDOW) => return Err(Decline::Window),
            Ok(answer::UNKNOWN) => return Err(Decline::Unknown),
            Ok(_) | Err(_) => return Err(Decline::System),
        }
        // No packets come to the socket from now on.
        if command.length > u64::from(UNSPLICED_WINDOW)
            && widen(from.stream.as_fd(), SPLICED_WINDOW + MAX_UNACKNOWLEDGED).is_ok()
        {
            let length = source.most_announced().min(u64::from(SPLICED_WINDOW));
            let command = Command { what: ask::WIDEN, length, ..command };
            let _ = inner.programs.command(&command);
        }
        source.note_moved();
        target.note_moved();
        Ok(Pair {
            inner,
            entry,
            command,
            release,
            source: source_watch,
            target: target_watch,
            asked: Cell::default(),
            unheard: Cell::default(),
            orphaned: Cell::default(),
            peer: target.peer(),
            broken: [source.broken(), target.broken()],
            armed: true,
        })
    }
}

impl Inner {
    /// Sees to it that a firewall lets the packets of a local peer through.
    fn reach_local(&self, conn: &Conn, member: &Membership) -> Result<(), Decline> {
        if self.programs.loses_local_resets() && !self.settings.tests {
            return Err(Decline::Firewall);
        }
        if let Some(conntrack) = &self.conntrack {
            member.untrack(&conn.stream, conntrack).map_err(|_| Decline::Firewall)?;
        }
        Ok(())
    }

    fn shuns(&self, peer: IpAddr) -> bool {
        let mut shunned = self.shunned.borrow_mut();
        // Seldom anybody: what is old goes meanwhile.
        if shunned.is_empty() {
            return false;
        }
        shunned.retain(|_, since| since.elapsed() < SPLICE_RETRY_BACKOFF);
        shunned.contains_key(&peer)
    }

    /// Waits until nothing can be sent to a target any more.
    fn poll_target_gone(&self, watch: &Watched, cx: &mut Context<'_>) -> Poll<()> {
        if self.settings.half_closed_targets {
            watch.poll_broken(cx)
        } else {
            watch.poll(cx).map(|_| ())
        }
    }
}

/// Says on which interfaces packets are spliced, on which they are not, and why.
pub(super) fn log_interfaces(programs: &SpliceObject) {
    programs.skipped().into_iter().for_each(log_skipped);
    for pattern in programs.unmatched() {
        tracing::warn!(pattern, "engine.interfaces names it, and no interface is called so");
    }
    for (interface, why) in programs.chosen() {
        tracing::info!(interface, why, "splicing its packets");
    }
    match programs.attached() {
        none if none.is_empty() => tracing::warn!("no interface is left to splice packets on"),
        names => tracing::info!(interfaces = names.join(" "), "splicing packets"),
    }
}

fn log_skipped(Skipped { name: interface, why, wanted }: Skipped) {
    if wanted {
        tracing::info!(interface, why, "packets of this interface are not spliced");
    } else {
        tracing::warn!(interface, why, "packets of this interface are not spliced");
    }
}

/// Says on which interfaces packets are forwarded in drivers from now on.
pub(super) fn log_drivers(news: Vec<(String, Result<(), String>)>) {
    for (interface, on) in news {
        match on {
            Ok(()) => tracing::info!(interface, "splicing its packets in the driver"),
            Err(why) => {
                tracing::warn!(interface, why, "packets of this interface are spliced without XDP");
            }
        }
    }
}
