//! Waiting until redirected bytes have reached the target's send queue.
//!
//! Until then the target must not be written, shut down or closed: the first would overtake them, the
//! others would lose them without a word.

use crate::engine::Conn;
use std::{task::Poll, time::Duration};

use tokio::time::Instant;

use super::{HandoverEnd, Sockmap, backlog};
use crate::net::Watched;

/// The kernel empties its queue within microseconds unless the target is slow: so a few looks
/// between other work, then at growing intervals.
const MAX_EARLY_CHECKS: u32 = 3;
const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_millis(32);

impl Sockmap {
    /// Waits until `to` has no backlog, as long as it gets smaller within each `idle`.
    pub(super) async fn drain(
        &self,
        to: &Conn,
        watch: &Watched,
        idle: Duration,
    ) -> Result<(), HandoverEnd> {
        let mut least = u64::MAX;
        let mut moved = Instant::now();
        let mut wait = MIN_WAIT;
        for look in 0u32.. {
            let Ok(backlog) = backlog(to) else { return Err(HandoverEnd::TargetGone) };
            if backlog == 0 {
                return Ok(());
            }
            if backlog < least {
                (least, moved) = (backlog, Instant::now());
            } else if moved.elapsed() >= idle {
                return Err(HandoverEnd::Idle);
            }
            if look < MAX_EARLY_CHECKS {
                tokio::task::yield_now().await;
                continue;
            }
            if self.gone_within(watch, wait).await {
                // A server that answers and closes at once has had all there was for it. The
                // packet with its close came behind the acknowledgement of the last byte.
                return match super::backlog(to) {
                    Ok(0) => Ok(()),
                    _ => Err(HandoverEnd::TargetGone),
                };
            }
            wait = (wait * 2).min(MAX_WAIT);
        }
        unreachable!("the loop has no end")
    }

    /// Whether the target hangs up within the time.
    async fn gone_within(&self, watch: &Watched, time: Duration) -> bool {
        let mut timer = std::pin::pin!(tokio::time::sleep(time));
        std::future::poll_fn(|cx| {
            if self.inner.poll_target_gone(watch, cx).is_ready() {
                return Poll::Ready(true);
            }
            timer.as_mut().poll(cx).map(|()| false)
        })
        .await
    }
}
