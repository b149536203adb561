//! Times that fit an atomic word.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

/// Milliseconds since about when this process first asked, never 0. The clock never jumps: it is
/// not the time of day.
pub(super) fn now() -> u64 {
    since_start(Instant::now())
}

/// `instant` on the clock of [`now`].
fn since_start(instant: Instant) -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(|| {
        // Earlier, for requests that began, and clocks that tests have stopped, before this moment.
        let now = std::time::Instant::now();
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    });
    millis(instant.into_std().saturating_duration_since(*start)).max(1)
}

/// A length on the clock of [`now`].
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// The time of day of a moment on the clock of [`now`], as far as any clock reaches.
pub(super) fn wall(moment: u64) -> SystemTime {
    let (now, wall) = (now(), SystemTime::now());
    let shifted = match moment.checked_sub(now) {
        Some(left) => wall.checked_add(Duration::from_millis(left)),
        None => wall.checked_sub(Duration::from_millis(now - moment)),
    };
    shifted.unwrap_or(wall)
}
