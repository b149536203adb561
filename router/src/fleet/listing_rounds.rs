//! Rounds in which all instances are asked for their models, before their time.
//!
//! A request for a model that nobody is known to serve waits for the end of a round that began after
//! it came, so that an adapter that was loaded a moment ago is not refused for what a list said before.

use std::time::Duration;

use tokio::sync::{Notify, watch};

/// From the start of one round to that of the next, at least: however many ask for models that do not
/// exist, the instances are not asked more often.
const GAP: Duration = Duration::from_millis(500);
/// How long a request waits for a round. An instance that takes longer does not hold it up.
const PATIENCE: Duration = Duration::from_secs(3);

/// What waits for rounds, and what makes them, meet here. It outlives reloads.
#[derive(Debug)]
pub struct ListingRounds {
    wanted: Notify,
    /// The number of the last one that has begun. Instances that were never asked have taken part in
    /// number 0, and the first that they take part in is 1.
    begun: watch::Sender<u64>,
    news: watch::Sender<News>,
}

/// What may end a wait.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// The last round that every instance has taken part in.
    complete: u64,
    /// Goes up when a list is another than before.
    changes: u64,
}

impl Default for ListingRounds {
    fn default() -> Self {
        let (begun, news) = (watch::Sender::new(1), watch::Sender::new(News::default()));
        Self { wanted: Notify::new(), begun, news }
    }
}

impl ListingRounds {
    /// Asks for a round, without waiting for it.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    /// What `look` finds, looking again whenever a list has changed, until a round that begins from
    /// now on is complete or has taken too long.
    pub async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let (before, mut news) = (self.current(), self.news.subscribe());
        self.want();
        let waiting = async {
            loop {
                let complete = news.borrow_and_update().complete;
                if let Some(found) = look() {
                    return Some(found);
                }
                if complete > before || news.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.ok().flatten()
    }

    /// Begins rounds when they are wanted, for ever.
    pub(super) async fn begin(&self) {
        loop {
            self.wanted.notified().await;
            self.begun.send_modify(|round| *round += 1);
            tokio::time::sleep(GAP).await;
        }
    }

    /// The round that an instance takes part in that is asked now.
    pub(super) fn current(&self) -> u64 {
        *self.begun.borrow()
    }

    /// Waits for a round after this one.
    pub(super) async fn after(&self, round: u64) {
        // The sender is this object's own.
        let _ = self.begun.subscribe().wait_for(|current| *current > round).await;
    }

    /// Tells those who wait that every instance has taken part in `complete`, and whether a list has
    /// changed.
    pub(super) fn tell(&self, complete: u64, changed: bool) {
        self.news.send_if_modified(|news| {
            let modified = changed || complete > news.complete;
            news.complete = news.complete.max(complete);
            news.changes += u64::from(changed);
            modified
        });
    }
}
