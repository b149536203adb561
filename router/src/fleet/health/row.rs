//! Failures in a row, counted by whose they are.

use std::time::Duration;

use tokio::time::Instant;

use super::{Blame, FailureKind};

/// Failures that are remembered one by one. Of more in a row, each counts.
const REMEMBERED: usize = 64;

/// The failed requests of an instance since the last that succeeded.
///
/// One prompt that its engine fails at, or one client that sends many such, must not take a fleet
/// apart. So a failure that may be the request's own counts only if neither its prefix nor its
/// client has been counted within a while. A client that has the instance for itself is as good a
/// witness as any, though: its failures count with each new prefix.
#[derive(Debug, Default)]
pub(super) struct Row {
    count: u32,
    counted: Vec<(Blame, Instant)>,
}

impl Row {
    /// Failures that count.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.counted.clear();
    }

    /// Adds a failure. `alone` says that no other client has used the instance lately, and `again`
    /// after how long the same prefix or client counts once more.
    pub(super) fn add(&mut self, kind: FailureKind, blame: Blame, alone: bool, again: Duration) {
        if kind.may_be_the_request_s() {
            let now = Instant::now();
            let same = |other: &Blame| {
                let prefix = blame.prefix.is_some() && blame.prefix == other.prefix;
                prefix || !alone && blame.client == other.client
            };
            let recent = |since: &Instant| now.saturating_duration_since(*since) < again;
            if self.counted.iter().any(|(other, since)| same(other) && recent(since)) {
                return;
            }
            if self.counted.len() < REMEMBERED {
                self.counted.push((blame, now));
            }
        }
        self.count = self.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const AGAIN: Duration = Duration::from_secs(5);

    fn blame(prefix: u64, client: u8) -> Blame {
        Blame { prefix: (prefix != 0).then_some(prefix), client: [10, 0, 0, client].into() }
    }

    fn count(alone: bool, failures: &[(FailureKind, Blame)]) -> u32 {
        let mut row = Row::default();
        failures.iter().for_each(|(kind, blame)| row.add(*kind, *blame, alone, AGAIN));
        row.count()
    }

    #[test]
    fn a_prefix_and_a_client_count_once() {
        use FailureKind::{Connect, Reset, Status};
        let many = |kind, f: fn(u8) -> Blame| -> Vec<_> { (1..=9).map(|n| (kind, f(n))).collect() };
        assert_eq!(count(false, &many(Reset, |n| blame(7, n))), 1, "one prompt of many clients");
        assert_eq!(count(false, &many(Status, |n| blame(n.into(), 1))), 1, "one client's prompts");
        assert_eq!(count(false, &many(Status, |n| blame(n.into(), n))), 9, "everybody's");
        assert_eq!(count(true, &many(Status, |n| blame(n.into(), 1))), 9, "the only client's");
        assert_eq!(count(true, &many(Status, |_| blame(7, 1))), 1, "its one prompt");
        assert_eq!(count(true, &many(Status, |_| blame(0, 1))), 9, "without a prefix");
        assert_eq!(count(false, &many(Connect, |_| blame(7, 1))), 9, "never a request's fault");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_counts_once_more_after_a_while() {
        let mut row = Row::default();
        for expected in 1..=3 {
            for _ in 0..10 {
                row.add(FailureKind::Status, blame(7, 1), false, AGAIN);
            }
            assert_eq!(row.count(), expected);
            advance(AGAIN).await;
        }
    }

    #[test]
    fn a_long_row_stays_small_and_goes_on_counting() {
        let mut row = Row::default();
        for n in 0..100_000_u32 {
            let client = std::net::Ipv4Addr::from(n).into();
            let blame = Blame { prefix: Some(n.into()), client };
            row.add(FailureKind::Status, blame, false, AGAIN);
        }
        assert_eq!((row.count(), row.counted.len()), (100_000, REMEMBERED));
    }
}
