//! Two connections that are spliced, until they are parted.

use std::{
    cell::Cell,
    net::IpAddr,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    sync::atomic::Ordering::SeqCst,
    task::{Context, Poll},
    time::Duration,
};

use router_ebpf::splice::{
    layout::{Command, answer, ask, stop},
    state::mode,
};
use tokio::time::{Instant, Sleep};

use super::Inner;
use crate::{
    engine::{
        Conn, IdleLimits,
        outcome::{HandoverEnd, TakeBack},
        tcp,
    },
    kernel::splice::{Entry, probe},
    net::{Side, Watched},
};

/// Longest time that a timer runs: longer timers overflow some clocks' arithmetic.
const MAX_TIMER: Duration = Duration::from_secs(24 * 3600);
/// How long the receiver may take to acknowledge anything of what was first forwarded. Longer than any
/// path takes, and than two repetitions of what was lost.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the receiver may take to acknowledge the rest once the last byte was sent to it, and
/// nothing moves.
const LAST_ACK_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a wait for a pair ended.
pub(super) enum Woken {
    /// Everything is acknowledged.
    Quiet,
    SourceBroken,
    TargetGone,
    Idle,
}

/// Why this side asked the programs to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    SourceClosed,
    TargetReadable,
    SourceReadable,
    Retract,
}

/// A pair that is spliced.
pub(super) struct Pair<'a> {
    pub(super) inner: &'a Inner,
    pub(super) entry: Entry,
    pub(super) command: Command,
    pub(super) release: Option<u32>,
    pub(super) source: Watched,
    pub(super) target: Watched,
    pub(super) asked: Cell<Option<Asked>>,
    /// Since when something was forwarded that nothing is acknowledged of.
    pub(super) unheard: Cell<Option<Instant>>,
    /// The source is gone: nobody repeats what the receiver misses.
    pub(super) orphaned: Cell<bool>,
    /// The receiver.
    pub(super) peer: IpAddr,
    /// Set when the connections can only be reset.
    pub(super) broken: [Rc<Cell<bool>>; 2],
    pub(super) armed: bool,
}

impl Pair<'_> {
    /// Waits until everything is acknowledged, one of the connections hangs up, or nothing has moved
    /// for as long as `limits` say: before the first byte, and after it.
    pub(super) async fn wait(
        &mut self,
        from: &Conn,
        to: &Conn,
        limits: &IdleLimits,
        watch_target: bool,
    ) -> Woken {
        let look = limits.get(false).min(limits.get(true)).min(FIRST_ACK_TIMEOUT);
        let mut timer = std::pin::pin!(tokio::time::sleep(look));
        let ends = (from, to);
        std::future::poll_fn(|cx| self.poll(cx, ends, limits, watch_target, timer.as_mut())).await
    }

    /// Takes a body back that does not get anywhere: as soon as something was forwarded, and nothing of
    /// it acknowledged for a while. Says whether it is to be looked after so still.
    fn look_after(&self) -> bool {
        if self.entry.mode() != mode::LIVE || self.entry.acked() != 0 || self.asked.get().is_some()
        {
            return false;
        }
        if self.entry.forwarded() == 0 {
            return true;
        }
        let now = Instant::now();
        let since = self.unheard.get().unwrap_or(now);
        self.unheard.set(Some(since));
        if now - since >= FIRST_ACK_TIMEOUT {
            let retract = Command { what: ask::RETRACT, ..self.command };
            if self.inner.programs.command(&retract).is_ok() && self.entry.mode() == mode::PASS {
                self.asked.set(Some(Asked::Retract));
                self.inner.shunned.borrow_mut().insert(self.peer, Instant::now());
            }
        }
        true
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        (from, to): (&Conn, &Conn),
        limits: &IdleLimits,
        watch_target: bool,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<Woken> {
        self.inner.events.wait(self.command.source, cx);
        // After the waker is in place, so that an event in between is not lost.
        if self.entry.mode() == mode::PASS || self.entry.stop() == stop::BYPASSED {
            return Poll::Ready(Woken::Quiet);
        }
        if self.inner.stuck.borrow_mut().remove(&self.command.source) {
            // The way to one of them may be another now. What the sockets send shows it.
            for conn in [from, to] {
                let _ = probe(conn.stream.as_fd());
            }
        }
        match self.source.poll(cx) {
            // Behind its last byte a reset of an instance ends nothing that the client still hears of: it has
            // been sent everything. A client that leaves wants nothing any more.
            Poll::Ready(Side::Broken) if !watch_target && self.entry.mode() != mode::LIVE => {
                self.orphaned.set(true);
            }
            Poll::Ready(Side::Broken) => return Poll::Ready(Woken::SourceBroken),
            Poll::Ready(Side::Closed) => self.stop(Asked::SourceClosed),
            Poll::Pending => {}
        }
        let gone = self.inner.poll_target_gone(&self.target, cx).is_ready();
        if watch_target && self.asked.get().is_none() && to.stream.poll_readable(cx).is_ready() {
            self.stop(Asked::TargetReadable);
        }
        if self.asked.get().is_none()
            && from.stream.poll_readable(cx).is_ready()
            && self.entry.mode() == mode::LIVE
            && tcp::receive_queue(&from.stream).is_ok_and(|bytes| bytes != 0)
        {
            self.stop(Asked::SourceReadable);
            if self.entry.forwarded() != 0 {
                // It may have what the receiver has already, or what is to come after that.
                return Poll::Ready(Woken::SourceBroken);
            }
        }
        // A receiver may close with the acknowledgement of the last byte.
        if self.entry.mode() == mode::PASS {
            return Poll::Ready(Woken::Quiet);
        }
        if gone {
            return Poll::Ready(Woken::TargetGone);
        }
        let live = self.entry.mode() == mode::LIVE;
        let idle = limits.get(self.entry.forwarded() != 0);
        let limit = match (live, self.orphaned.get()) {
            (true, _) => idle,
            (false, false) => idle.min(LAST_ACK_TIMEOUT),
            (false, true) => idle.min(FIRST_ACK_TIMEOUT),
        };
        if timer.deadline() > Instant::now() + limit {
            timer.as_mut().reset(Instant::now() + limit);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let still = tcp::now_ns().saturating_sub(self.entry.last_ns());
            let still = Duration::from_nanos(still);
            if still >= limit {
                let orphaned = self.orphaned.get();
                return Poll::Ready(if orphaned { Woken::SourceBroken } else { Woken::Idle });
            }
            let looks = self.look_after();
            if self.entry.mode() == mode::PASS {
                return Poll::Ready(Woken::Quiet);
            }
            let look = if looks { limits.get(true).min(FIRST_ACK_TIMEOUT) } else { MAX_TIMER };
            timer.as_mut().reset(Instant::now() + (limit - still).min(look));
        }
        Poll::Pending
    }

    /// Asks the programs to stop at the highest byte forwarded.
    fn stop(&self, why: Asked) {
        if self.asked.get().is_none() {
            self.asked.set(Some(why));
            let _ = self.inner.programs.command(&Command { what: ask::STOP, ..self.command });
        }
    }

    /// Parts the two connections, which are quiet.
    pub(super) fn part(&self) -> bool {
        let done = self.inner.programs.command(&Command { what: ask::PART, ..self.command });
        matches!(done, Ok(answer::DONE))
    }

    /// Parts the two connections, whatever is under way. They can only be reset then.
    pub(super) fn give_up(&self) {
        let _ = self.inner.programs.command(&Command { what: ask::BREAK, ..self.command });
        for broken in &self.broken {
            broken.set(true);
        }
    }

    /// Ends the programs' claim on the in-flight counter. True when they released it.
    pub(super) fn settle(&mut self) -> bool {
        self.armed = false;
        self.release.is_some() && !self.entry.take_ticket()
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.inner.events.forget(self.command.source);
        if !self.armed {
            return;
        }
        // The caller gave up waiting.
        self.give_up();
        if let Some(slot) = self.release
            && !self.entry.take_ticket()
        {
            // A program has released a counter that the caller takes for its own.
            self.inner.programs.counter(slot).fetch_add(1, SeqCst);
        }
    }
}

impl Pair<'_> {
    /// Why it ended, once everything is acknowledged.
    pub(super) fn ending(&self) -> HandoverEnd {
        match self.entry.stop() {
            stop::NONE => HandoverEnd::Ended,
            stop::CROSSED => HandoverEnd::TakenBack(TakeBack::Crossed),
            stop::MALFORMED => HandoverEnd::TakenBack(TakeBack::Malformed),
            stop::TOO_MANY_CHUNKS => HandoverEnd::TakenBack(TakeBack::TooManyChunks),
            stop::TOO_LONG => HandoverEnd::TakenBack(TakeBack::TooLong),
            stop::HOLE => HandoverEnd::TakenBack(TakeBack::Hole),
            _ => match self.asked.get() {
                Some(Asked::SourceClosed) => HandoverEnd::SourceClosed,
                Some(Asked::SourceReadable) => HandoverEnd::TakenBack(TakeBack::Bypassed),
                Some(Asked::Retract) => HandoverEnd::TakenBack(TakeBack::Stalled),
                _ => HandoverEnd::TakenBack(TakeBack::TargetReadable),
            },
        }
    }
}
