//! Whether an instance is well: what checks found, what requests met, what the configuration says.
//!
//! An instance is taken for well until something speaks against it, so that neither a slow health
//! page nor a missing one keeps a fleet from starting. An instance that is dead from the start costs
//! one refused connection, and the request that met it goes to the next instance.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::config::Health as Settings;

/// How a request failed by its instance's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// The connection ended before the response did.
    Reset,
    /// No answer in time.
    Timeout,
    /// What it sent is not HTTP.
    Protocol,
    /// It answered with a status of 500 or more.
    Status,
}

impl FailureKind {
    /// What an answer of this status says about the instance; a 4xx is the client's own fault.
    pub const fn of_status(status: u16) -> Option<Self> {
        if status >= 500 { Some(Self::Status) } else { None }
    }

    /// The name used in status pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Status => "status",
        }
    }

    /// Whether a good health check says that the cause is gone. A server may well answer checks
    /// while all its requests fail.
    const fn cured_by_check(self) -> bool {
        matches!(self, Self::Connect | Self::Reset)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Reset => "connection lost",
            Self::Timeout => "no answer in time",
            Self::Protocol => "malformed answer",
            Self::Status => "5xx answers",
        })
    }
}

/// What speaks against an instance; nothing when it is [available](Self::available).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u32);

impl Status {
    const DOWN: u32 = 1;
    const EJECTED: u32 = 2;
    const DRAINING: u32 = 4;
    const REMOVED: u32 = 8;
    const UNRESOLVED: u32 = 16;

    /// Nothing does: it may get new requests.
    pub const fn available(self) -> bool {
        self.0 == 0
    }

    /// Its health checks fail.
    pub const fn down(self) -> bool {
        self.0 & Self::DOWN != 0
    }

    /// Its requests failed, and it gets none for a while.
    pub const fn ejected(self) -> bool {
        self.0 & Self::EJECTED != 0
    }

    /// It is to get no new requests, or is no longer in the configuration.
    pub const fn leaving(self) -> bool {
        self.0 & (Self::DRAINING | Self::REMOVED) != 0
    }

    /// Its host name has no known address.
    pub const fn unresolved(self) -> bool {
        self.0 & Self::UNRESOLVED != 0
    }

    /// The most important of all that speaks against it, or `up`.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            0 => "up",
            s if s & Self::REMOVED != 0 => "removed",
            s if s & Self::DRAINING != 0 => "draining",
            s if s & Self::UNRESOLVED != 0 => "unresolved",
            s if s & Self::DOWN != 0 => "down",
            _ => "ejected",
        }
    }
}

/// The outcome of one health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It answered with a status below 500.
    Good,
    /// It could not be reached at all.
    Unreachable,
    /// It answered 5xx, or not in time, or not in HTTP.
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
pub(crate) struct HealthState {
    /// Bits of [`Status`]. One load answers "may it serve?" on the way of every request.
    bits: AtomicU32,
    /// When the ejection ends, in [`now`] milliseconds.
    ejected_until: AtomicU64,
    /// When the status became what it is, in [`now`] milliseconds; the end of an ejection is not
    /// noted here.
    changed: AtomicU64,
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
    /// Failed requests in a row.
    failures: u32,
    /// Ejections since the instance last did well: the next one lasts 2^level times the first.
    level: u32,
    /// Good requests in a row since the last ejection.
    successes: u32,
    /// What the last ejection was for.
    cause: Option<FailureKind>,
    /// When a request failed last, in [`now`] milliseconds, and how.
    last_failure: Option<(u64, FailureKind)>,
}

/// Milliseconds since about when this process first asked. The clock never jumps: it is not the
/// time of day.
fn now() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(|| {
        // A little earlier, for clocks that tests have stopped before this moment.
        let now = std::time::Instant::now();
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    });
    let since = Instant::now().into_std().saturating_duration_since(*start);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time of day of a moment in [`now`] milliseconds, as far as any clock reaches.
fn wall(moment: u64) -> SystemTime {
    let (now, wall) = (now(), SystemTime::now());
    let shifted = match moment.checked_sub(now) {
        Some(left) => wall.checked_add(Duration::from_millis(left)),
        None => wall.checked_sub(Duration::from_millis(now - moment)),
    };
    shifted.unwrap_or(wall)
}

impl HealthState {
    pub(crate) fn new(resolved: bool, drain: bool, settings: Arc<Settings>) -> Self {
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
            changed: AtomicU64::new(now()),
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

    pub(crate) fn status(&self) -> Status {
        let bits = self.bits.load(Relaxed);
        // An ejection ends by itself. Nobody has to be awake for it.
        if bits & Status::EJECTED != 0 && now() >= self.ejected_until.load(Relaxed) {
            return Status(bits & !Status::EJECTED);
        }
        Status(bits)
    }

    /// Since when the status is what it is.
    pub(crate) fn since(&self) -> SystemTime {
        let (changed, end) = (self.changed.load(Relaxed), self.ejected_until.load(Relaxed));
        // An ejection ends by itself, and nobody takes that down.
        wall(if end <= now() { changed.max(end) } else { changed })
    }

    /// When requests will be tried again; `None` when it is not ejected.
    pub(crate) fn ejected_until(&self) -> Option<SystemTime> {
        self.status().ejected().then(|| wall(self.ejected_until.load(Relaxed)))
    }

    /// When a request failed last by the instance's fault, and how.
    pub(crate) fn last_failure(&self) -> Option<(SystemTime, FailureKind)> {
        self.history().last_failure.map(|(at, kind)| (wall(at), kind))
    }

    pub(crate) fn available(&self) -> bool {
        self.bits.load(Relaxed) == 0 || self.status().available()
    }

    pub(crate) fn configure(&self, settings: &Arc<Settings>, drain: bool, removed: bool) {
        self.settings.store(Arc::clone(settings));
        self.set(Status::DRAINING, drain);
        self.set(Status::REMOVED, removed);
        if !settings.active {
            // Nobody would ever find it well again.
            let mut history = self.history();
            (history.good, history.bad) = (0, 0);
            self.set(Status::DOWN, false);
        }
    }

    pub(crate) fn set_resolved(&self, resolved: bool) {
        self.set(Status::UNRESOLVED, !resolved);
    }

    pub(crate) fn note_success(&self) {
        if !self.tarnished.load(Relaxed) {
            return;
        }
        let mut history = self.history();
        history.failures = 0;
        if history.level > 0 {
            history.successes += 1;
            if history.successes < self.settings.load().rise {
                return;
            }
            history.level = 0;
        }
        self.tarnished.store(false, Relaxed);
    }

    /// The length of the ejection, when this failure led to one.
    pub(crate) fn note_failure(&self, kind: FailureKind) -> Option<Duration> {
        let mut history = self.history();
        self.tarnished.store(true, Relaxed);
        history.last_failure = Some((now(), kind));
        history.successes = 0;
        // Requests that were on their way when it was ejected say nothing new.
        if self.status().ejected() {
            return None;
        }
        history.failures = history.failures.saturating_add(1);
        let settings = self.settings.load();
        // Coming back from an ejection is on probation.
        let enough = if history.level > 0 { 1 } else { settings.eject_after };
        if settings.eject_after == 0 || history.failures < enough {
            return None;
        }
        let length =
            settings.eject_for.saturating_mul(1 << history.level.min(20)).min(settings.eject_max);
        history.level += 1;
        history.failures = 0;
        history.cause = Some(kind);
        let until = now() + u64::try_from(length.as_millis()).unwrap_or(u64::MAX / 2);
        // What an ejection that has ended by itself left behind would hide that the status changes.
        self.set(Status::EJECTED, false);
        self.ejected_until.store(until, Relaxed);
        self.set(Status::EJECTED, true);
        Some(length)
    }

    pub(crate) fn note_check(&self, check: Check) -> Option<Change> {
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
            self.set(Status::DOWN, false);
            return down.then_some(Change::Up);
        }
        history.good = 0;
        history.bad = history.bad.saturating_add(1);
        let dead_from_the_start = check == Check::Unreachable && !history.ever_good;
        if down || history.bad < settings.fall && !dead_from_the_start {
            return None;
        }
        self.set(Status::DOWN, true);
        Some(Change::Down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn settings() -> Settings {
        Settings {
            eject_after: 3,
            eject_for: Duration::from_secs(5),
            eject_max: Duration::from_secs(60),
            ..crate::config::Config::default().health
        }
    }

    fn state(settings: Settings) -> HealthState {
        HealthState::new(true, false, Arc::new(settings))
    }

    fn fail(state: &HealthState, times: u32) -> Option<u64> {
        let mut ejected = None;
        for _ in 0..times {
            ejected = ejected.or(state.note_failure(FailureKind::Status));
        }
        ejected.map(|length| length.as_secs())
    }

    #[test]
    fn checks_take_out_after_fall_and_bring_back_after_rise() {
        let state = state(settings());
        assert!(state.available(), "an instance is taken for well");
        assert_eq!(state.note_check(Check::Good), None);
        assert_eq!(state.note_check(Check::Unreachable), None);
        assert_eq!(state.note_check(Check::Bad), None);
        assert_eq!(state.note_check(Check::Good), None, "one good check starts the count anew");
        assert_eq!(state.note_check(Check::Bad), None);
        assert_eq!(state.note_check(Check::Bad), None);
        assert!(state.available());
        assert_eq!(state.note_check(Check::Bad), Some(Change::Down));
        assert_eq!((state.available(), state.status().as_str()), (false, "down"));
        assert_eq!(state.note_check(Check::Bad), None);
        assert_eq!(state.note_check(Check::Good), None);
        assert_eq!(state.note_check(Check::Bad), None, "one good check is not enough");
        assert_eq!(state.note_check(Check::Good), None);
        assert_eq!(state.note_check(Check::Good), Some(Change::Up));
        assert!(state.available());
    }

    #[test]
    fn dead_from_the_start_is_out_at_once_and_slow_from_the_start_is_not() {
        let dead = state(settings());
        assert_eq!(dead.note_check(Check::Unreachable), Some(Change::Down));
        assert_eq!(dead.note_check(Check::Unreachable), None);
        assert_eq!(dead.note_check(Check::Good), Some(Change::Up), "in at once when it starts");
        let slow = state(settings());
        assert_eq!(slow.note_check(Check::Bad), None);
        assert!(slow.available());
    }

    #[tokio::test(start_paused = true)]
    async fn ejections_grow_up_to_their_limit_and_end_by_themselves() {
        let state = state(settings());
        assert_eq!(fail(&state, 2), None);
        state.note_success();
        assert_eq!(fail(&state, 2), None, "a success starts the count anew");
        assert_eq!(fail(&state, 1), Some(5));
        for seconds in [5, 10, 20, 40, 60, 60] {
            assert_eq!(state.status().as_str(), "ejected");
            assert_eq!(fail(&state, 10), None, "what was under way says nothing new");
            advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(!state.available());
            advance(Duration::from_millis(2)).await;
            assert!(state.available(), "after {seconds} s");
            // On probation, one failure is enough.
            assert_eq!(fail(&state, 1), Some((seconds * 2).min(60)));
        }
        advance(Duration::from_secs(61)).await;
        state.note_success();
        assert!(state.available());
        state.note_success();
        // `rise` successes, and all is forgiven.
        assert_eq!(fail(&state, 2), None);
        assert_eq!(fail(&state, 1), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn many_ejections_overflow_nothing() {
        let state = state(Settings { eject_max: Duration::from_secs(86_400), ..settings() });
        assert_eq!(fail(&state, 3), Some(5));
        for _ in 0..100 {
            advance(Duration::from_secs(86_401)).await;
            assert!(fail(&state, 1).is_some_and(|seconds| seconds <= 86_400));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn good_checks_cure_a_lost_connection_but_not_failing_answers() {
        let lost = state(settings());
        let failing = state(settings());
        for state in [&lost, &failing] {
            assert_eq!(state.note_check(Check::Good), None);
            assert_eq!(state.note_check(Check::Bad), None);
        }
        for _ in 0..3 {
            lost.note_failure(FailureKind::Connect);
            failing.note_failure(FailureKind::Status);
        }
        for _ in 0..2 {
            assert_eq!((lost.available(), failing.available()), (false, false));
            lost.note_check(Check::Good);
            failing.note_check(Check::Good);
        }
        assert_eq!((lost.available(), failing.available()), (true, false));
    }

    /// Seconds from now, rounded.
    fn seconds_to(moment: SystemTime) -> i64 {
        let now = SystemTime::now();
        match moment.duration_since(now) {
            Ok(left) => left.as_secs_f64().round() as i64,
            Err(past) => -(past.duration().as_secs_f64().round() as i64),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tells_since_when_and_until_when() {
        let state = state(settings());
        let ago = |state: &HealthState| -seconds_to(state.since());
        advance(Duration::from_secs(100)).await;
        assert_eq!(ago(&state), 100, "well from the start");
        assert_eq!((state.ejected_until(), state.last_failure()), (None, None));
        assert_eq!(fail(&state, 3), Some(5));
        assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (0, Some(5)));
        advance(Duration::from_secs(3)).await;
        fail(&state, 1);
        assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (3, Some(2)));
        advance(Duration::from_secs(9)).await;
        assert_eq!((ago(&state), state.ejected_until()), (7, None), "well again by itself");
        assert_eq!(fail(&state, 1), Some(10), "on probation");
        assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (0, Some(10)));
        // The more important reason hides the other one, and is the one that counts.
        advance(Duration::from_secs(4)).await;
        state.note_check(Check::Unreachable);
        assert_eq!((state.status().as_str(), ago(&state)), ("down", 0));
        advance(Duration::from_secs(50)).await;
        let (at, kind) = state.last_failure().expect("there were some");
        assert_eq!((-seconds_to(at), kind), (54, FailureKind::Status));
        state.note_check(Check::Good);
        assert_eq!((state.status().as_str(), ago(&state)), ("up", 0));
    }

    #[test]
    fn ejection_can_be_turned_off() {
        let state = state(Settings { eject_after: 0, ..settings() });
        assert_eq!(fail(&state, 1000), None);
        assert!(state.available());
    }

    #[test]
    fn a_client_s_mistake_is_not_the_instance_s() {
        for status in [200, 301, 400, 401, 404, 408, 422, 429, 499] {
            assert_eq!(FailureKind::of_status(status), None);
        }
        for status in [500, 502, 503, 504, 529, 599] {
            assert_eq!(FailureKind::of_status(status), Some(FailureKind::Status));
        }
    }

    #[test]
    fn turning_checks_off_forgets_what_they_found() {
        let state = state(settings());
        assert_eq!(state.note_check(Check::Unreachable), Some(Change::Down));
        let off = Arc::new(Settings { active: false, ..settings() });
        state.configure(&off, false, false);
        assert!(state.available());
        assert_eq!(state.note_check(Check::Unreachable), None, "a late check changes nothing");
        assert!(state.available());
    }

    #[test]
    fn what_the_configuration_says_and_what_checks_find_do_not_mix() {
        let settings = Arc::new(settings());
        let state = HealthState::new(false, true, Arc::clone(&settings));
        assert_eq!(state.status().as_str(), "draining");
        state.configure(&settings, false, false);
        assert_eq!(state.status().as_str(), "unresolved");
        state.set_resolved(true);
        assert_eq!(state.status().as_str(), "up");
        assert_eq!(state.note_check(Check::Unreachable), Some(Change::Down));
        state.configure(&settings, true, true);
        assert_eq!((state.status().as_str(), state.status().leaving()), ("removed", true));
        assert_eq!(state.note_check(Check::Good), Some(Change::Up));
        assert!(!state.available());
        state.configure(&settings, false, false);
        assert!(state.available());
    }

    #[test]
    fn notes_from_many_threads_leave_a_state_that_recovers() {
        let state = state(Settings { eject_for: Duration::from_millis(10), ..settings() });
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let state = &state;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..10_000 {
                        match rng.u8(..4) {
                            0 => drop(state.note_failure(FailureKind::Reset)),
                            1 => state.note_success(),
                            2 => drop(state.note_check(Check::Bad)),
                            _ => drop(state.note_check(Check::Good)),
                        }
                    }
                });
            }
        });
        for _ in 0..3 {
            state.note_check(Check::Good);
            state.note_success();
        }
        assert!(state.available());
        assert!(!state.tarnished.load(Relaxed));
    }
}
