//! The one way to wait for something that no socket tells.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails: far above what it takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How soon the instance must hear that its client left: the promise of docs/operations.md.
pub const CANCELLATION: Duration = Duration::from_millis(50);

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

/// Gives this thread and a process' threads precedence over what else the machine does, so that times
/// do not tell how busy it is. Only root can do that; without, times may be longer.
pub fn favour(pid: u32) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that runs");
    let threads = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    for thread in threads.chain([0]) {
        // SAFETY: takes numbers alone. Zero is the thread that calls.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, -20) } != 0 {
            eprintln!("measuring without precedence: {}", std::io::Error::last_os_error());
        }
    }
}

/// Expects that what a test has measured a few times took less than `limit`; one time in nine, and once
/// at least, may have met a machine that stood still for a moment.
///
/// # Panics
/// When more took longer.
#[track_caller]
pub fn expect_within(limit: Duration, times: &[Duration]) {
    let late = times.iter().filter(|took| **took >= limit).count();
    assert!(late <= times.len().div_ceil(9), "{late} of {times:?} are longer than {limit:?}");
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
