//! Tells requests under way what befalls their instance.
//!
//! It is for requests that wait, on any thread: what happens is counted, and whoever waits is woken.
//! A request that moves bytes pays one load of a word.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tokio::sync::{Notify, futures::Notified};

/// What has befallen one instance.
#[derive(Debug, Default)]
pub struct Alarm {
    downs: AtomicU32,
    refusals: AtomicU32,
    notify: Notify,
}

/// What had befallen an instance at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    downs: u32,
    refusals: u32,
}

impl Mark {
    /// Whether health checks have found the instance down since `earlier`.
    pub const fn down_since(self, earlier: Self) -> bool {
        self.downs != earlier.downs
    }

    /// Whether the instance's port has refused a connection since `earlier`.
    pub const fn refused_since(self, earlier: Self) -> bool {
        self.refusals != earlier.refusals
    }
}

impl Alarm {
    /// What has befallen the instance until now.
    pub fn mark(&self) -> Mark {
        Mark { downs: self.downs.load(SeqCst), refusals: self.refusals.load(SeqCst) }
    }

    /// Completes when the next thing befalls it. What does so between this call and the first poll
    /// counts as well.
    pub fn next(&self) -> Notified<'_> {
        self.notify.notified()
    }

    pub(in crate::fleet) fn went_down(&self) {
        self.downs.fetch_add(1, SeqCst);
        self.notify.notify_waiters();
    }

    pub(in crate::fleet) fn refused(&self) {
        self.refusals.fetch_add(1, SeqCst);
        self.notify.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_and_sees_what_happened() {
        let alarm = Alarm::default();
        let before = alarm.mark();
        let next = alarm.next();
        alarm.refused();
        next.await;
        let after = alarm.mark();
        assert!(after.refused_since(before) && !after.down_since(before));
        let waiting = async {
            let next = alarm.next();
            assert_eq!(alarm.mark(), after);
            next.await;
            alarm.mark()
        };
        let (down, ()) = tokio::join!(waiting, async { alarm.went_down() });
        assert!(down.down_since(after) && !down.refused_since(after));
    }
}
