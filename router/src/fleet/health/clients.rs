//! Whether an instance has one client or several.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::clock::{millis, now};

/// How long a client that used an instance counts as one of its clients.
const IN_SIGHT: Duration = Duration::from_secs(60);

/// Who has used an instance lately, as far as it matters: one, or several. Cheap enough for the end of
/// every request.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The hash of the latest.
    latest: AtomicU64,
    /// When one came that was not the latest before, in milliseconds; 0 for never.
    changed: AtomicU64,
}

impl Clients {
    /// A request of this client came to an end.
    pub(super) fn saw(&self, client: IpAddr) {
        let client = hash(client);
        let latest = self.latest.load(Relaxed);
        if latest != client {
            self.latest.store(client, Relaxed);
            if latest != 0 {
                self.changed.store(now(), Relaxed);
            }
        }
    }

    /// Whether only one has been seen for a while.
    pub(super) fn alone(&self) -> bool {
        let changed = self.changed.load(Relaxed);
        changed == 0 || now().saturating_sub(changed) >= millis(IN_SIGHT)
    }
}

/// Never 0.
fn hash(client: IpAddr) -> u64 {
    let bits = match client {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => u128::from(v6),
    };
    (bits as u64 ^ (bits >> 64) as u64) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_client_is_alone_when_no_other_came_for_a_while() {
        let clients = Clients::default();
        let saw = |client: u8| {
            clients.saw([10, 0, 0, client].into());
            clients.alone()
        };
        assert!(saw(1) && saw(1));
        assert!(!saw(2) && !saw(1) && !saw(1));
        advance(IN_SIGHT).await;
        assert!(saw(1));
    }
}
