//! Which instance keeps a stateful session.
//!
//! A model gives a session its id and its end (`X-Amzn-SageMaker-New-Session-Id`), and later requests that name it
//! are for the instance where it is. The table has a fixed size: a set of places for each hash, of which the one
//! whose session ends first makes room for another. No entry outlives the process, since no instance does.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use xxhash_rust::xxh3::Xxh3;

use crate::fleet::InstanceId;

/// Sessions with hashes that begin alike; each has this many places.
const WAYS: usize = 8;
/// Sessions that are remembered at most: 2 MiB of memory, taken as it is used.
const PLACES: usize = 1 << 17;

/// What is remembered of sessions.
pub struct Sessions(Box<[Place]>);

/// A session: part of its hash in both words, and with it its instance in the first, and its end in the second, in
/// seconds since 1970. What two threads write at once into one place does not fit together, and is nobody's.
#[derive(Default)]
struct Place {
    instance: AtomicU64,
    end: AtomicU64,
}

/// A session's hash, by parts.
#[derive(Clone, Copy)]
struct Hash {
    set: usize,
    first: u64,
    second: u64,
}

const LOW: u64 = u32::MAX as u64;

impl Hash {
    fn of(endpoint: &str, id: &[u8], sets: usize) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&(endpoint.len() as u64).to_le_bytes());
        hash.update(endpoint.as_bytes());
        hash.update(id);
        let hash = hash.digest128();
        let (first, second) = (hash as u64 & !LOW, (hash >> 64) as u64 & !LOW);
        Self { set: hash as u32 as usize % sets, first, second }
    }
}

impl Place {
    fn is(&self, hash: Hash) -> bool {
        self.instance.load(Relaxed) & !LOW == hash.first
            && self.end.load(Relaxed) & !LOW == hash.second
    }

    fn end(&self) -> u64 {
        self.end.load(Relaxed) & LOW
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self(std::iter::repeat_with(Place::default).take(PLACES).collect())
    }
}

impl Sessions {
    /// Notes that `instance` keeps the session of this id at an endpoint until `end`.
    pub fn open(&self, endpoint: &str, id: &[u8], instance: InstanceId, end: SystemTime) {
        let (hash, set) = self.set(endpoint, id);
        let known = set.iter().find(|place| place.is(hash));
        let place = known.or_else(|| set.iter().min_by_key(|place| place.end()));
        let Some(place) = place else { return };
        place.instance.store(hash.first | instance & LOW, Relaxed);
        place.end.store(hash.second | seconds(end), Relaxed);
    }

    /// The instance that keeps the session of this id at an endpoint, if it has not ended by `now`. Numbers of
    /// instances fit in 32 bits.
    pub fn find(&self, endpoint: &str, id: &[u8], now: SystemTime) -> Option<InstanceId> {
        let (hash, set) = self.set(endpoint, id);
        set.iter().find_map(|place| {
            let (instance, end) = (place.instance.load(Relaxed), place.end.load(Relaxed));
            let is = instance & !LOW == hash.first && end & !LOW == hash.second;
            (is && end & LOW > seconds(now)).then_some(instance & LOW)
        })
    }

    /// Forgets the session of this id at an endpoint, if it is `instance` that keeps it.
    pub fn close(&self, endpoint: &str, id: &[u8], instance: InstanceId) {
        let (hash, set) = self.set(endpoint, id);
        let kept = |place: &&Place| place.instance.load(Relaxed) == hash.first | instance & LOW;
        if let Some(place) = set.iter().filter(|place| place.is(hash)).find(kept) {
            place.end.store(0, Relaxed);
        }
    }

    fn set(&self, endpoint: &str, id: &[u8]) -> (Hash, &[Place]) {
        let hash = Hash::of(endpoint, id, self.0.len() / WAYS);
        (hash, &self.0[hash.set * WAYS..][..WAYS])
    }
}

/// Since 1970, as far as 32 bits reach (2106).
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().min(LOW))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_is_known_from_its_beginning_to_its_end() {
        let sessions = Sessions::default();
        assert_eq!(sessions.find("e", b"s", at(5)), None);
        sessions.open("e", b"s", 7, at(10));
        assert_eq!(sessions.find("e", b"s", at(9)), Some(7));
        assert_eq!(sessions.find("e", b"s", at(10)), None, "it has ended");
        assert_eq!(sessions.find("f", b"s", at(9)), None, "of another endpoint");
        assert_eq!(sessions.find("es", b"", at(9)), None);
        sessions.open("e", b"s", 8, at(20));
        assert_eq!(sessions.find("e", b"s", at(15)), Some(8), "opened anew");
        sessions.close("e", b"s", 7);
        assert_eq!(sessions.find("e", b"s", at(15)), Some(8), "another one's to close");
        sessions.close("e", b"s", 8);
        assert_eq!(sessions.find("e", b"s", at(15)), None);
        sessions.open("e", b"s", 9, at(u64::from(u32::MAX) * 2));
        assert_eq!(sessions.find("e", b"s", at(15)), Some(9));
    }

    #[test]
    fn its_size_is_fixed_and_those_that_end_first_make_room() {
        let sessions = Sessions::default();
        let ids = |n: u64| format!("session-{n}").into_bytes();
        let count = 4 * PLACES as u64;
        for n in 0..count {
            sessions.open("e", &ids(n), 1 + n % 9, at(100 + n));
        }
        let mut found = 0;
        for n in 0..count {
            if let Some(instance) = sessions.find("e", &ids(n), at(1)) {
                assert_eq!(instance, 1 + n % 9);
                found += 1;
            }
        }
        assert!(found > PLACES * 99 / 100, "{found}");
        // One that ends later than all others is there to stay.
        sessions.open("e", b"long", 3, at(1 << 30));
        for n in 0..count {
            sessions.open("e", &ids(n + count), 1, at(200 + n));
        }
        assert_eq!(sessions.find("e", b"long", at(1)), Some(3));
    }

    #[test]
    fn threads_that_meet_mislead_nobody() {
        let sessions = Sessions::default();
        // All of one set.
        let sets = PLACES / WAYS;
        let ids: Vec<Vec<u8>> = (0u64..)
            .map(|n| format!("s{n}").into_bytes())
            .filter(|id| Hash::of("e", id, sets).set == 0)
            .take(3 * WAYS)
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (sessions, ids) = (&sessions, &ids);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for _ in 0..20_000 {
                        let n = rng.usize(..ids.len());
                        if rng.bool() {
                            sessions.open("e", &ids[n], 1 + n as u64, at(100 + rng.u64(..50)));
                        } else if let Some(found) = sessions.find("e", &ids[n], at(1)) {
                            assert_eq!(found, 1 + n as u64);
                        }
                    }
                });
            }
        });
    }
}
