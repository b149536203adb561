//! The sockmap engine: the kernel moves the rest of a body from one socket to the other.
//!
//! docs/kernel.md describes the protocol between this module and the kernel program.

mod drain;
mod join;
pub(super) mod membership;
#[cfg(test)]
mod tests;

use crate::engine::Conn;
use std::{
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::{Context, Poll},
    time::Duration,
};

use router_ebpf::{framing::Framing, layout::stop};
use tokio::time::{Instant, Sleep};

use self::join::NoSource;
use self::membership::Membership;
use super::{
    Handover, IdleLimits,
    events::Events,
    outcome::{Decline, HandoverEnd, HandoverOutcome, TakeBack},
    tcp,
};
use crate::{
    kernel::sockmap::{Body, Direction, Report, SockmapObject},
    net::{HangupWatch, Side, Watched},
};

/// Longest time between two looks at a direction at which nothing moves: its event may have been lost because
/// the queue was full, or the kernel may have failed to show the program a packet. A look is one system call.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What an engine may do.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most bytes that may wait in the kernel between a redirect and the target's send queue, per
    /// direction. Beyond it user space takes over, and does not read until they are gone.
    pub backlog_bytes: u32,
    /// Whether a target whose peer has closed its sending side may still be sent to.
    pub half_closed_targets: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { backlog_bytes: 384 * 1024, half_closed_targets: false }
    }
}

/// One worker thread's access to the engine. Cheap to clone.
#[derive(Clone)]
pub struct Sockmap {
    inner: Rc<Inner>,
}

struct Inner {
    object: Arc<SockmapObject>,
    watch: HangupWatch,
    worker: u32,
    settings: Settings,
    events: Events,
}

/// Why a wait ended.
enum Woken {
    /// The program stopped by itself.
    Stopped,
    Source(Side),
    TargetGone,
    TargetReadable,
    Idle,
}

impl Sockmap {
    /// # Errors
    /// When the worker's queue of events cannot be made. `worker` must be this thread's own number.
    pub fn new(
        object: Arc<SockmapObject>,
        watch: HangupWatch,
        worker: u32,
        settings: Settings,
    ) -> io::Result<Self> {
        let events = Events::new(object.open_events(worker)?);
        Ok(Self { inner: Rc::new(Inner { object, watch, worker, settings, events }) })
    }

    /// Dispatches the kernel's events, for ever; must run on the thread that hands over, and once.
    ///
    /// # Errors
    /// When the queue of events cannot be polled.
    pub async fn drive(self) -> io::Result<()> {
        self.inner.events.drive().await
    }

    /// Lets the kernel move bytes until the body ends or something else happens.
    ///
    /// Dropping the future leaves all consistent, provided that both connections are dropped next:
    /// an in-flight counter is then the caller's in every case.
    pub async fn hand_over(&self, handover: Handover<'_>) -> HandoverOutcome {
        let Handover { from, to, framing, idle, first, limits, release, watch_target, most } =
            handover;
        if framing.is_done() {
            return HandoverOutcome { bytes: 0, released: false, end: HandoverEnd::Ended };
        }
        let handed = self.begin(from, to, framing, release, most);
        to.stream.hold_back(false);
        let mut handed = match handed {
            Ok(handed) => handed,
            Err(end) => return HandoverOutcome { bytes: 0, released: false, end },
        };
        let own = IdleLimits::new(first, idle);
        let woken = handed.wait(from, to, limits.unwrap_or(&own), watch_target).await;
        if matches!(woken, Woken::Source(Side::Closed)) {
            // The hang-up is seen before the program has looked at the packet that brought it.
            tcp::kick(&from.stream);
        }
        if handed.direction.take_back() {
            tcp::kick(&from.stream);
        }
        let report = handed.direction.report();
        let released = handed.settle();
        from.stream.count_handed_over(report.bytes, 0);
        to.stream.count_handed_over(0, report.bytes);
        *framing = report.framing;

        let mut end = ending(&woken, &report);
        let drain = !matches!(end, HandoverEnd::TargetGone | HandoverEnd::Idle);
        if drain && let Err(failed) = self.drain(to, &handed.target, idle).await {
            end = if end == HandoverEnd::SourceBroken { end } else { failed };
        }
        drop(handed);
        if from.stream.set_reading(true).is_err() {
            end = HandoverEnd::SourceBroken;
        }
        HandoverOutcome { bytes: report.bytes, released, end }
    }

    fn begin(
        &self,
        from: &mut Conn,
        to: &mut Conn,
        framing: &Framing,
        release: Option<u32>,
        most: u64,
    ) -> Result<HandedOver<'_>, HandoverEnd> {
        debug_assert!(from.input.is_empty(), "bytes that user space holds would be overtaken");
        let inner = &*self.inner;
        let target = join::target(&inner.object, to).map_err(HandoverEnd::Declined)?;
        let (index, direction) =
            join::source(&inner.object, from, inner.worker).map_err(|reason| match reason {
                NoSource::Declined(reason) => HandoverEnd::Declined(reason),
                NoSource::Broken => HandoverEnd::SourceBroken,
            })?;
        let system = |_| HandoverEnd::Declined(Decline::System);
        let member = from.sockmap.as_ref().expect("a member");
        let forwarded = member.read_since_joined(&from.stream).expect("a source");
        let body = Body {
            framing: *framing,
            target,
            release,
            most,
            backlog_limit: inner.settings.backlog_bytes,
        };
        let source_watch = inner.watch.watch(&from.stream).map_err(system)?;
        let target_watch = inner.watch.watch(&to.stream).map_err(system)?;
        if !direction.hand_over(forwarded, &body, tcp::now_ns()) {
            return Err(HandoverEnd::Declined(Decline::Unread));
        }
        let handed = HandedOver {
            inner,
            direction,
            index,
            release,
            source: source_watch,
            target: target_watch,
            armed: true,
        };
        // From here on `handed` takes the direction back when it is dropped.
        from.stream.set_reading(false).map_err(|_| HandoverEnd::SourceBroken)?;
        Ok(handed)
    }
}

/// Bytes that are counted as written to a connection but have not reached its socket's send queue.
fn backlog(conn: &Conn) -> io::Result<u64> {
    conn.sockmap.as_ref().map_or(Ok(0), |member| member.backlog(&conn.stream))
}

impl Inner {
    /// Waits until nothing can be sent to a target any more.
    fn poll_target_gone(&self, watch: &Watched, cx: &mut Context<'_>) -> Poll<()> {
        if self.settings.half_closed_targets {
            watch.poll_broken(cx)
        } else {
            watch.poll(cx).map(|_| ())
        }
    }
}

/// A direction that the kernel moves.
struct HandedOver<'a> {
    inner: &'a Inner,
    direction: Direction,
    index: u32,
    release: Option<u32>,
    source: Watched,
    target: Watched,
    armed: bool,
}

impl HandedOver<'_> {
    /// Waits until the program stops, one of the connections hangs up, or nothing has moved for
    /// as long as `limits` say: before the first byte, and after it.
    async fn wait(
        &mut self,
        from: &Conn,
        to: &Conn,
        limits: &IdleLimits,
        watch_target: bool,
    ) -> Woken {
        let look = || limits.get(false).min(limits.get(true)).min(STALL_CHECK_INTERVAL);
        let mut timer = std::pin::pin!(tokio::time::sleep(look()));
        std::future::poll_fn(|cx| {
            let ended = self.poll_ended(cx, to, watch_target);
            if ended.is_ready() {
                return ended;
            }
            let idle = limits.get(self.direction.redirected() != 0);
            self.poll_idle(cx, from, idle, look(), timer.as_mut())
        })
        .await
    }

    fn poll_ended(&self, cx: &mut Context<'_>, to: &Conn, watch_target: bool) -> Poll<Woken> {
        self.inner.events.wait(self.index, cx);
        // After the waker is in place, so that an event in between is not lost.
        if !self.direction.redirects() {
            return Poll::Ready(Woken::Stopped);
        }
        if let Poll::Ready(side) = self.source.poll(cx) {
            return Poll::Ready(Woken::Source(side));
        }
        if self.inner.poll_target_gone(&self.target, cx).is_ready() {
            return Poll::Ready(Woken::TargetGone);
        }
        if watch_target && to.stream.poll_readable(cx).is_ready() {
            return Poll::Ready(Woken::TargetReadable);
        }
        Poll::Pending
    }

    /// Ready when nothing has moved for `idle`. Looks at the source every `look` until that.
    fn poll_idle(
        &self,
        cx: &mut Context<'_>,
        from: &Conn,
        idle: Duration,
        look: Duration,
        mut timer: std::pin::Pin<&mut Sleep>,
    ) -> Poll<Woken> {
        if timer.deadline() > Instant::now() + idle {
            // The limit has become shorter.
            timer.as_mut().reset(Instant::now() + idle);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let quiet = tcp::now_ns().saturating_sub(self.direction.last_ns());
            let quiet = Duration::from_nanos(quiet);
            if quiet >= idle {
                return Poll::Ready(Woken::Idle);
            }
            if quiet >= STALL_CHECK_INTERVAL {
                // Packets may wait for a program that was not told of them. This costs a system call
                // where there are none.
                tcp::kick(&from.stream);
                if !self.direction.redirects() {
                    return Poll::Ready(Woken::Stopped);
                }
            }
            timer.as_mut().reset(Instant::now() + (idle - quiet).min(look));
        }
        Poll::Pending
    }

    /// Ends the program's claim on the in-flight counter, once the mode is pass. True when the
    /// program released it.
    fn settle(&mut self) -> bool {
        self.armed = false;
        self.release.is_some() && !self.direction.take_ticket()
    }
}

impl Drop for HandedOver<'_> {
    fn drop(&mut self) {
        self.inner.events.forget(self.index);
        if !self.armed {
            return;
        }
        // The caller gave up waiting.
        self.direction.take_back();
        if let Some(slot) = self.release
            && !self.direction.take_ticket()
        {
            // The program has released a counter that the caller takes for its own.
            self.inner.object.counter(slot).fetch_add(1, SeqCst);
        }
    }
}

fn ending(woken: &Woken, report: &Report) -> HandoverEnd {
    let reason = match report.stop {
        stop::ENDED => return HandoverEnd::Ended,
        stop::BROKEN => return HandoverEnd::SourceBroken,
        stop::CROSSED => Some(TakeBack::Crossed),
        stop::BACKLOG => Some(TakeBack::Backlog),
        stop::NO_TARGET => Some(TakeBack::NoTarget),
        stop::MALFORMED => Some(TakeBack::Malformed),
        stop::TOO_MANY_CHUNKS => Some(TakeBack::TooManyChunks),
        stop::TOO_LONG => Some(TakeBack::TooLong),
        _ => None,
    };
    match (woken, reason) {
        (Woken::TargetGone, _) => HandoverEnd::TargetGone,
        (Woken::Source(Side::Broken), _) => HandoverEnd::SourceBroken,
        (_, Some(reason)) => HandoverEnd::TakenBack(reason),
        (Woken::Source(Side::Closed), None) => HandoverEnd::SourceClosed,
        (Woken::TargetReadable, None) => HandoverEnd::TakenBack(TakeBack::TargetReadable),
        // The program always says why it stopped.
        (Woken::Idle | Woken::Stopped, None) => HandoverEnd::Idle,
    }
}
