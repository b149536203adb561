//! How long a relay may stand still.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

/// A wait that starts again whenever bytes move, at the price of one timer entry per idle period
/// instead of one per chunk.
pub(super) struct IdleTimer {
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
}

impl IdleTimer {
    pub(super) fn new(limit: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(limit)), limit }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn restart(&mut self, limit: Duration) {
        self.limit = limit;
        self.sleep.as_mut().reset(tokio::time::Instant::now() + limit);
    }

    /// Ready once nothing has moved for the limit since `progress`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, progress: Instant) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let due = progress + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(due.into());
        }
    }
}
