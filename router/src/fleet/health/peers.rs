//! The instances of one variant, which passive checks may take out only so many of.

use std::sync::{Mutex, PoisonError, Weak};

use super::Status;

/// What has a [`Status`]: an instance.
pub(in crate::fleet) trait HasStatus: std::fmt::Debug + Send + Sync {
    /// Whether it is well now.
    fn status(&self) -> Status;
}

/// The instances of one variant.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Peers(Mutex<Vec<Weak<dyn HasStatus>>>);

impl Peers {
    /// Takes over who belongs to the variant.
    pub(in crate::fleet) fn set<M: HasStatus + 'static>(
        &self,
        members: impl IntoIterator<Item = Weak<M>>,
    ) {
        let members = members.into_iter().map(|member| member as Weak<dyn HasStatus>).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Runs `eject` if one more instance that is ejected or suspect leaves enough others: at most
    /// `percent` of those that can be reached are so at the same time. What health checks find is
    /// not bounded.
    pub(in crate::fleet) fn eject_one(&self, percent: u32, eject: impl FnOnce()) -> bool {
        let members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut ejected, mut reachable) = (0_u64, 0_u64);
        for instance in members.iter().filter_map(Weak::upgrade) {
            let status = instance.status();
            reachable += u64::from(status.reachable());
            ejected += u64::from(status.reachable() && (status.ejected() || status.suspect()));
        }
        let allowed = (ejected + 1) * 100 <= reachable * u64::from(percent);
        if allowed {
            eject();
        }
        allowed
    }
}
