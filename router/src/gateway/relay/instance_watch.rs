//! What befalls the instance while a request is under way.

use std::{future::Future as _, pin::Pin, task::Context, time::Duration};

use tokio::sync::futures::Notified;

use crate::{
    config::Config,
    fleet::{Instance, health::Mark},
};

/// Follows one instance's [alarm](crate::fleet::health::Alarm) for one request.
///
/// The wait itself is the caller's to pin, so that nothing is allocated. A poll costs a load of two words
/// until something happens. All polls must be of one task: the first one leaves its waker.
pub(super) struct InstanceWatch {
    /// When the request began.
    began: Mark,
    /// What has been waited from; `None` before the first poll.
    waiting: Option<Mark>,
}

impl InstanceWatch {
    pub(super) fn new(instance: &Instance) -> Self {
        Self { began: instance.alarm().mark(), waiting: None }
    }

    /// Has the task woken by what comes next. `next` has to be of the same alarm in all polls.
    pub(super) fn poll<'i>(
        &mut self,
        cx: &mut Context<'_>,
        instance: &'i Instance,
        next: &mut Pin<&mut Notified<'i>>,
    ) {
        let alarm = instance.alarm();
        while self.waiting != Some(alarm.mark()) {
            next.set(alarm.next());
            // What happens from here on wakes.
            self.waiting = Some(alarm.mark());
            if next.as_mut().poll(cx).is_ready() {
                self.waiting = None;
            }
        }
    }

    /// The waits of before are over, and their waker with them.
    pub(super) fn restart(&mut self) {
        self.waiting = None;
    }

    fn now(&self) -> Mark {
        self.waiting.unwrap_or(self.began)
    }

    /// Whether the instance has been found down since the request began.
    pub(super) fn down(&self) -> bool {
        self.now().down_since(self.began)
    }

    /// How long nothing of the response may come.
    pub(super) fn pause_limit(&self, config: &Config) -> Duration {
        let (limit, grace) = (config.timeouts.stream_idle, config.health.refused_grace);
        if self.refuses() && !grace.is_zero() { limit.min(grace) } else { limit }
    }

    /// Whether the instance has refused connections since the request began.
    pub(super) fn refuses(&self) -> bool {
        self.now().refused_since(self.began)
    }
}
