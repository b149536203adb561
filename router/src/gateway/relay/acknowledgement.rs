//! When to look for an acknowledgement that nobody announces.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Before the first look: a round trip in a data centre is shorter.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// Between two looks at most.
const MAX_LOOK: Duration = Duration::from_millis(64);

/// Looks further and further apart. Only a request whose body is still coming, on a connection from the
/// pool, has one.
pub(super) struct Acknowledgement {
    sleep: Pin<Box<Sleep>>,
    wait: Duration,
}

impl Default for Acknowledgement {
    fn default() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(FIRST_LOOK)), wait: FIRST_LOOK }
    }
}

impl Acknowledgement {
    /// Ready when it is time for a look.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.sleep.as_mut().poll(cx));
        self.wait = (self.wait * 2).min(MAX_LOOK);
        self.sleep.as_mut().reset(Instant::now() + self.wait);
        Poll::Ready(())
    }
}
