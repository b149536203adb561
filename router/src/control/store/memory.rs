//! A store in memory: gone with the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Snapshot, Store, StoreError, Write};

/// Keeps values for as long as the process lives.
#[derive(Debug)]
pub struct MemoryStore {
    held: Mutex<Snapshot>,
    revision: watch::Sender<u64>,
}

impl MemoryStore {
    fn held(&self) -> MutexGuard<'_, Snapshot> {
        // A panic cannot leave a transaction half made: writes are applied at once.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { held: Mutex::default(), revision: watch::Sender::new(0) }
    }
}

impl Store for MemoryStore {
    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(self.held().clone())
    }

    fn commit(&self, base: u64, writes: Vec<Write>) -> Result<u64, StoreError> {
        let mut held = self.held();
        if held.revision != base {
            return Err(StoreError::Conflict { base, actual: held.revision });
        }
        for Write { key, value } in writes {
            match value {
                Some(value) => drop(held.entries.insert(key, value)),
                None => drop(held.entries.remove(&key)),
            }
        }
        held.revision += 1;
        self.revision.send_replace(held.revision);
        Ok(held.revision)
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}
