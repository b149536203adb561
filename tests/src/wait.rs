//! The one way to wait for something that no socket tells.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails: far above what it takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How soon the instance must see that its client left. The promise is 50 ms; the rest is slack for
/// two busy cores, and still far below any timer that could hide a missing watch.
pub const HANGUP: Duration = Duration::from_millis(750);

const PAUSE: Duration = Duration::from_millis(2);

/// Polls until `condition` holds.
///
/// # Panics
/// When it does not within [`DEADLINE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_some(what, || condition().then_some(()));
}

/// Polls until `probe` yields a value.
///
/// # Panics
/// When it does not within [`DEADLINE`].
#[track_caller]
pub fn eventually_some<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    match within(DEADLINE, probe) {
        Some(value) => value,
        None => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Polls until `probe` yields a value, or `limit` has passed.
pub fn within<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if start.elapsed() > limit {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Polls `measure` until it has not changed for `calm`, and returns it.
///
/// # Panics
/// When it still changes after three times [`DEADLINE`].
#[track_caller]
pub fn settled<T: PartialEq>(what: &str, calm: Duration, mut measure: impl FnMut() -> T) -> T {
    let start = Instant::now();
    let mut value = measure();
    let mut since = Instant::now();
    while since.elapsed() < calm {
        assert!(start.elapsed() < 3 * DEADLINE, "never came to rest: {what}");
        std::thread::sleep(PAUSE);
        let now = measure();
        if now != value {
            value = now;
            since = Instant::now();
        }
    }
    value
}
