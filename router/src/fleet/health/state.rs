//! The state of one instance's health, which requests and checks change.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;

use super::{
    Alarm, Blame, FailureKind, Peers, Status,
    clients::Clients,
    clock::{millis, now, wall},
    row::Row,
};
use crate::config::Health as Settings;

/// The outcome of one health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It answered with a status below 500.
    Good,
    /// It could not be reached at all.
    Unreachable,
    /// It answered not in time.
    Slow,
    /// It answered 5xx, or not in HTTP.
    Bad,
}

/// What a check changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The instance is back.
    Up,
    /// The instance is out.
    Down,
}

/// The health of one instance.
#[derive(Debug)]
pub(in crate::fleet) struct HealthState {
    /// Bits of [`Status`]. One load answers "may it serve?" on the way of every request.
    bits: AtomicU32,
    /// When the ejection ends, in [`now`] milliseconds.
    ejected_until: AtomicU64,
    /// When it is no longer taken for overloaded.
    overloaded_until: AtomicU64,
    /// When the status became what it is; the end of an ejection or overload is not noted here.
    changed: AtomicU64,
    /// When a request last succeeded; 0 for never.
    succeeded_at: AtomicU64,
    /// When a request last got its first body byte; 0 for never.
    answered_at: AtomicU64,
    clients: Clients,
    alarm: Alarm,
    /// Whether a success has anything to clear.
    tarnished: AtomicBool,
    history: Mutex<History>,
    settings: ArcSwap<Settings>,
}

#[derive(Debug, Default)]
struct History {
    /// Good checks in a row.
    good: u32,
    /// Bad checks in a row.
    bad: u32,
    /// Whether any check was good.
    ever_good: bool,
    /// Whether it is out because its health page is slow, and for no better reason.
    down_slow: bool,
    /// Failed requests in a row.
    row: Row,
    /// Requests in a row that nothing was heard of until they were given up.
    unanswered: Row,
    /// Ejections since the instance last did well: the next one lasts 2^level times the first.
    level: u32,
    /// Good requests in a row since the last ejection.
    successes: u32,
    /// What the last ejection was for.
    cause: Option<FailureKind>,
    /// When a request failed last, and how.
    last_failure: Option<(u64, FailureKind)>,
}

impl HealthState {
    pub(in crate::fleet) fn new(resolved: bool, drain: bool, settings: Arc<Settings>) -> Self {
        let mut bits = 0;
        if !resolved {
            bits |= Status::UNRESOLVED;
        }
        if drain {
            bits |= Status::DRAINING;
        }
        Self {
            bits: AtomicU32::new(bits),
            ejected_until: AtomicU64::new(0),
            overloaded_until: AtomicU64::new(0),
            changed: AtomicU64::new(now()),
            succeeded_at: AtomicU64::new(0),
            answered_at: AtomicU64::new(0),
            clients: Clients::default(),
            alarm: Alarm::default(),
            tarnished: AtomicBool::new(false),
            history: Mutex::default(),
            settings: ArcSwap::new(settings),
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, bit: u32, on: bool) {
        let before = self.status();
        if on {
            self.bits.fetch_or(bit, Relaxed);
        } else {
            self.bits.fetch_and(!bit, Relaxed);
        }
        if before.as_str() != self.status().as_str() {
            self.changed.store(now(), Relaxed);
        }
    }

    /// Sets what ends by itself.
    fn set_until(&self, bit: u32, end: &AtomicU64, length: Duration) {
        // What has ended by itself left its bit behind, which would hide that the status changes.
        self.set(bit, false);
        end.store(now() + millis(length), Relaxed);
        self.set(bit, true);
    }

    pub(in crate::fleet) fn status(&self) -> Status {
        let mut bits = self.bits.load(Relaxed);
        // What is for a while ends by itself. Nobody has to be awake for it.
        if bits & (Status::EJECTED | Status::OVERLOADED) != 0 {
            let now = now();
            if now >= self.ejected_until.load(Relaxed) {
                bits &= !Status::EJECTED;
            }
            if now >= self.overloaded_until.load(Relaxed) {
                bits &= !Status::OVERLOADED;
            }
        }
        Status(bits)
    }

    /// Since when the status is what it is.
    pub(in crate::fleet) fn since(&self) -> SystemTime {
        let now = now();
        let mut since = self.changed.load(Relaxed);
        // What ends by itself is taken down by nobody.
        for end in [&self.ejected_until, &self.overloaded_until] {
            let end = end.load(Relaxed);
            if end <= now {
                since = since.max(end);
            }
        }
        wall(since)
    }

    /// When requests will be tried again; `None` when it is not ejected.
    pub(in crate::fleet) fn ejected_until(&self) -> Option<SystemTime> {
        self.status().ejected().then(|| wall(self.ejected_until.load(Relaxed)))
    }

    /// When a request failed last by the instance's fault, and how.
    pub(in crate::fleet) fn last_failure(&self) -> Option<(SystemTime, FailureKind)> {
        self.history().last_failure.map(|(at, kind)| (wall(at), kind))
    }

    pub(in crate::fleet) fn available(&self) -> bool {
        self.bits.load(Relaxed) == 0 || self.status().available()
    }

    pub(in crate::fleet) fn configure(&self, settings: &Arc<Settings>, drain: bool, removed: bool) {
        self.settings.store(Arc::clone(settings));
        self.set(Status::DRAINING, drain);
        self.set(Status::REMOVED, removed);
        if !settings.active {
            // Nobody would ever find it well again.
            let mut history = self.history();
            (history.good, history.bad, history.down_slow) = (0, 0, false);
            self.set(Status::DOWN, false);
        }
    }

    pub(in crate::fleet) fn set_resolved(&self, resolved: bool) {
        self.set(Status::UNRESOLVED, !resolved);
    }

    /// A request succeeded. It is better evidence than a health page that is slow.
    pub(in crate::fleet) fn note_success(&self, client: IpAddr) -> Option<Change> {
        self.clients.saw(client);
        let now = now();
        self.succeeded_at.store(now, Relaxed);
        self.answered_at.store(now, Relaxed);
        if !self.tarnished.load(Relaxed) {
            return None;
        }
        let mut history = self.history();
        self.clear_suspicion(&mut history);
        history.row.clear();
        let up = std::mem::take(&mut history.down_slow);
        if up {
            history.bad = 0;
            self.set(Status::DOWN, false);
        }
        let change = up.then_some(Change::Up);
        if history.level > 0 {
            history.successes += 1;
            if history.successes < self.settings.load().rise {
                return change;
            }
            history.level = 0;
        }
        self.tarnished.store(false, Relaxed);
        change
    }

    /// A response's first body byte came. True when that ends a suspicion.
    pub(in crate::fleet) fn note_answering(&self) -> bool {
        self.answered_at.store(now(), Relaxed);
        self.tarnished.load(Relaxed) && self.clear_suspicion(&mut self.history())
    }

    fn clear_suspicion(&self, history: &mut History) -> bool {
        history.unanswered.clear();
        let was = self.bits.load(Relaxed) & Status::SUSPECT != 0;
        if was {
            self.set(Status::SUSPECT, false);
        }
        was
    }

    /// A request was given up, by its client or for its time limit, before the first byte of an
    /// answer came, having `waited`. True when that makes the instance suspect.
    pub(in crate::fleet) fn note_unanswered(
        &self,
        waited: Duration,
        blame: Blame,
        peers: &Peers,
    ) -> bool {
        self.clients.saw(blame.client);
        let settings = self.settings.load();
        // Others were answered meanwhile, or it was not waited for long enough to tell anything.
        let sent_at = now().saturating_sub(millis(waited));
        let answered_at = self.answered_at.load(Relaxed);
        let answered = answered_at != 0 && answered_at >= sent_at;
        if answered || waited < settings.suspect_wait {
            return false;
        }
        let mut history = self.history();
        self.tarnished.store(true, Relaxed);
        let again = settings.eject_for;
        history.unanswered.add(FailureKind::Timeout, blame, self.clients.alone(), again);
        let enough = settings.suspect_after;
        let suspect = self.bits.load(Relaxed) & Status::SUSPECT != 0;
        if enough == 0 || suspect || history.unanswered.count() < enough {
            return false;
        }
        peers.eject_one(settings.max_ejection_percent, || self.set(Status::SUSPECT, true))
    }

    /// What it does to the requests that wait for it.
    pub(in crate::fleet) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The instance answered that it has too much to do, and perhaps for how long.
    pub(in crate::fleet) fn note_overload(&self, asked: Option<Duration>) {
        let settings = self.settings.load();
        if settings.overload_for.is_zero() {
            return;
        }
        let length = asked.unwrap_or_default().max(settings.overload_for);
        let length = length.min(settings.overload_max);
        self.set_until(Status::OVERLOADED, &self.overloaded_until, length);
    }

    /// A request failed by the instance's fault. The length of the ejection, when that led to one.
    pub(in crate::fleet) fn note_failure(
        &self,
        kind: FailureKind,
        blame: Blame,
        peers: &Peers,
    ) -> Option<Duration> {
        self.clients.saw(blame.client);
        let mut history = self.history();
        self.tarnished.store(true, Relaxed);
        history.last_failure = Some((now(), kind));
        history.successes = 0;
        // Requests that were on their way when it was ejected say nothing new.
        if self.status().ejected() {
            return None;
        }
        let settings = self.settings.load();
        history.row.add(kind, blame, self.clients.alone(), settings.eject_for);
        // Coming back from an ejection is on probation.
        let enough = if history.level > 0 { 1 } else { settings.eject_after };
        if settings.eject_after == 0 || history.row.count() < enough {
            return None;
        }
        let length =
            settings.eject_for.saturating_mul(1 << history.level.min(20)).min(settings.eject_max);
        let ejected = peers.eject_one(settings.max_ejection_percent, || {
            self.set_until(Status::EJECTED, &self.ejected_until, length);
        });
        if !ejected {
            return None;
        }
        history.level += 1;
        history.row.clear();
        history.cause = Some(kind);
        Some(length)
    }

    pub(in crate::fleet) fn note_check(&self, check: Check) -> Option<Change> {
        let mut history = self.history();
        let settings = self.settings.load();
        if !settings.active {
            // A check that was on its way when checks were turned off.
            return None;
        }
        let down = self.bits.load(Relaxed) & Status::DOWN != 0;
        if check == Check::Good {
            history.bad = 0;
            history.good = history.good.saturating_add(1);
            // One that comes up for the first time has not been seen to flap.
            let first = !std::mem::replace(&mut history.ever_good, true);
            if !first && history.good < settings.rise {
                return None;
            }
            let cured = history.cause.is_some_and(FailureKind::cured_by_check);
            if cured && self.status().ejected() {
                self.set(Status::EJECTED, false);
            }
            history.down_slow = false;
            self.set(Status::DOWN, false);
            return down.then_some(Change::Up);
        }
        history.good = 0;
        if check == Check::Slow && self.succeeded_within(settings.interval * settings.fall) {
            return None;
        }
        history.bad = history.bad.saturating_add(1);
        let dead_from_the_start = check == Check::Unreachable && !history.ever_good;
        if down {
            history.down_slow &= check == Check::Slow;
            return None;
        }
        if history.bad < settings.fall && !dead_from_the_start {
            return None;
        }
        history.down_slow = check == Check::Slow;
        // So that a success looks whether it changes anything.
        self.tarnished.store(true, Relaxed);
        self.set(Status::DOWN, true);
        self.alarm.went_down();
        Some(Change::Down)
    }

    /// Whether a request has succeeded lately.
    fn succeeded_within(&self, time: Duration) -> bool {
        let succeeded = self.succeeded_at.load(Relaxed);
        succeeded != 0 && now().saturating_sub(succeeded) < millis(time)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
