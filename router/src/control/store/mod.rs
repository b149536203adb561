//! Where resources are kept: a narrow interface, a file behind it, and memory for tests.
//!
//! What it asks for is what etcd and its like offer too, so that several gateways can share one store later:
//! a snapshot with its revision, a transaction that is made only if the revision is still the one that it
//! was worked out for, and news of changes.

mod file;
mod memory;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tokio::sync::watch;

pub use self::{file::FileStore, memory::MemoryStore};

/// Version of the way in which resources are stored. A store of a higher one is not opened.
pub const FORMAT: u64 = 1;

/// Keeps values by key.
pub trait Store: Send + Sync {
    /// Everything at one moment.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// Makes all of the writes or none, and answers once they are durable: with the revision that they made.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] when the store's revision is not `base`: nothing was written. With
    /// [`StoreError::Failed`] it is not known whether they were; a new snapshot tells.
    fn commit(&self, base: u64, writes: Vec<Write>) -> Result<u64, StoreError>;

    /// Wakes when there is a revision that somebody wrote; holds it.
    fn watch(&self) -> watch::Receiver<u64>;

    /// Closes it, where only one process can have it open at a time, so that another one can. Nothing is read or
    /// written until it is [regained](Self::regain).
    fn release(&self) {}

    /// Opens it again, after the other process has ended.
    fn regain(&self) {}

    /// What people call it: a path, or an address.
    fn place(&self) -> String;
}

/// What a store held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// 0 for an empty store; each transaction raises it.
    pub revision: u64,
    /// All values.
    pub entries: BTreeMap<String, Vec<u8>>,
}

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What is written.
    pub key: String,
    /// Its new value; `None` deletes it.
    pub value: Option<Vec<u8>>,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote since.
    #[error("the store has revision {actual} by now, not {base}")]
    Conflict {
        /// The revision that was expected.
        base: u64,
        /// The one that it has.
        actual: u64,
    },
    /// It cannot be opened.
    #[error("cannot open the state at {place}: {reason}")]
    Open {
        /// What was to be opened.
        place: String,
        /// Why it cannot be, and what to do.
        reason: String,
    },
    /// It cannot be read or written.
    #[error("cannot read or write the state: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}
