//! Which instance keeps a stored response.
//!
//! The Responses API gives each response an id that its instance makes up. Later requests name it, and
//! only that instance knows it. The table here is a memory aid of fixed size: an entry may be
//! overwritten by another, and none outlives the process. What is not in it is found by asking the
//! instances.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use xxhash_rust::xxh3::xxh3_64;

use super::{Choice, NoInstance, Reason, Ticket};
use crate::fleet::{Instance, InstanceId, Variant};

/// Responses that are remembered at most: 2 MiB of memory, taken as it is used.
const SLOTS: usize = 1 << 18;

/// What is remembered of stored responses. Each slot has half of an id's hash above, and the number of
/// the instance below; 0 if it is empty.
pub struct StoredResponses(Box<[AtomicU64]>);

impl Default for StoredResponses {
    fn default() -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect())
    }
}

impl StoredResponses {
    /// Notes that `instance` keeps the response of this id. Another one may be forgotten for it.
    pub fn note(&self, id: &[u8], instance: InstanceId) {
        let (slot, tag) = self.place(id);
        slot.store(tag | number(instance), Relaxed);
    }

    /// Whether `instance` is noted as the one that keeps the response of this id.
    pub fn is_at(&self, id: &[u8], instance: InstanceId) -> bool {
        let (slot, tag) = self.place(id);
        slot.load(Relaxed) == tag | number(instance)
    }

    fn place(&self, id: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64(id);
        (&self.0[hash as usize % self.0.len()], hash & TAG)
    }
}

const TAG: u64 = !(u32::MAX as u64);

/// Instances are numbered from 1 on, and fewer than 2^32 ever exist.
fn number(instance: InstanceId) -> u64 {
    instance & !TAG
}

/// Chooses the instance that keeps what a request is about, for this reason, and counts the request there.
///
/// # Errors
/// It has as many requests as it may take.
pub fn choose_keeper(
    variant: &Variant,
    keeper: &Arc<Instance>,
    reason: Reason,
) -> Result<Choice, NoInstance> {
    let limit = variant.max_in_flight.map_or(u32::MAX, Into::into);
    match keeper.counter().increment_below(limit) {
        Some(_) => Ok(Choice { ticket: Ticket::counted(keeper), reason, home: None }),
        None => Err(NoInstance::AtLimit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_last_is_found() {
        let stored = StoredResponses::default();
        assert!(!stored.is_at(b"resp_1", 1));
        stored.note(b"resp_1", 1);
        stored.note(b"resp_2", 2);
        assert!(stored.is_at(b"resp_1", 1) && stored.is_at(b"resp_2", 2));
        assert!(!stored.is_at(b"resp_1", 2) && !stored.is_at(b"resp_3", 1));
        stored.note(b"resp_2", 3);
        assert!(!stored.is_at(b"resp_2", 2) && stored.is_at(b"resp_2", 3));
    }

    #[test]
    fn its_size_is_fixed_and_collisions_mislead_nobody() {
        let stored = StoredResponses::default();
        let ids = || (0..2 * SLOTS as u64).map(|n| (n, format!("resp_{n:032x}")));
        for (n, id) in ids() {
            stored.note(id.as_bytes(), 1 + n % 7);
        }
        let mut found = 0;
        for (n, id) in ids() {
            for instance in 1..=7 {
                if stored.is_at(id.as_bytes(), instance) {
                    assert_eq!(instance, 1 + n % 7, "{id}");
                    found += 1;
                }
            }
        }
        // Of twice as many as there are slots, 1 - 1/e² of the slots hold the last one that came.
        let share = f64::from(found) / SLOTS as f64;
        assert!((0.86..0.87).contains(&share), "{share}");
    }
}
