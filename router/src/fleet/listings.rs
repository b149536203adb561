//! Answers to `GET /v1/models` that are given again for a while.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Answers that are kept. Each is of one client's credentials, so that nobody gets another one's.
const KEPT: usize = 64;
/// Credentials that are kept with an answer, in bytes. The answer to longer ones is not kept.
const MAX_CREDENTIALS: usize = 16 << 10;

/// An answer to `GET /v1/models`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its status: 200, or what all instances agree on.
    pub status: u16,
    /// Its body, JSON.
    pub body: Vec<u8>,
}

/// Answers of the last seconds. They go with the fleet that they came from.
#[derive(Debug, Default)]
pub struct Listings(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    endpoint: Option<String>,
    credentials: Vec<u8>,
    at: Instant,
    listing: Arc<Listing>,
}

impl Listings {
    /// The answer to a client with these credentials, if there is one that is younger than `age`.
    /// `endpoint` is the one that it asked about, `None` for all.
    pub fn get(
        &self,
        endpoint: Option<&str>,
        credentials: &[u8],
        age: Duration,
    ) -> Option<Arc<Listing>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|kept| {
            kept.endpoint.as_deref() == endpoint
                && kept.credentials == credentials
                && kept.at.elapsed() < age
        })?;
        Some(Arc::clone(&found.listing))
    }

    /// Forgets them all: an instance lists other models than before.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps an answer, in the place of the oldest if there are too many.
    pub fn put(&self, endpoint: Option<&str>, credentials: Vec<u8>, listing: Arc<Listing>) {
        if credentials.len() > MAX_CREDENTIALS {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.endpoint.as_deref() != endpoint || kept.credentials != credentials);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        let endpoint = endpoint.map(str::to_owned);
        kept.push(Kept { endpoint, credentials, at: Instant::now(), listing });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(600);

    fn listing(n: u32) -> Arc<Listing> {
        Arc::new(Listing { status: 200, body: n.to_string().into_bytes() })
    }

    #[test]
    fn an_answer_is_for_the_same_credentials_and_endpoint_while_it_is_young() {
        let kept = Listings::default();
        kept.put(Some("e"), b"one".to_vec(), listing(1));
        kept.put(None, b"one".to_vec(), listing(2));
        assert_eq!(kept.get(Some("e"), b"one", AGE), Some(listing(1)));
        assert_eq!(kept.get(None, b"one", AGE), Some(listing(2)));
        assert_eq!(kept.get(Some("f"), b"one", AGE), None);
        assert_eq!(kept.get(Some("e"), b"two", AGE), None);
        assert_eq!(kept.get(Some("e"), b"", AGE), None);
        assert_eq!(kept.get(None, b"one", Duration::ZERO), None, "too old");
        kept.put(None, b"one".to_vec(), listing(3));
        assert_eq!(kept.get(None, b"one", AGE), Some(listing(3)));
        kept.clear();
        assert_eq!(kept.get(None, b"one", AGE), None);
    }

    #[test]
    fn no_more_are_kept_than_a_few() {
        let kept = Listings::default();
        for n in 0..1000_u32 {
            kept.put(None, n.to_be_bytes().to_vec(), listing(n));
        }
        kept.put(None, vec![0; MAX_CREDENTIALS + 1], listing(0));
        let there = (0..1000_u32).filter(|n| kept.get(None, &n.to_be_bytes(), AGE).is_some());
        assert_eq!(there.collect::<Vec<_>>(), (1000 - KEPT as u32..1000).collect::<Vec<_>>());
    }
}
