//! [`Control`]: the resources at this moment, and the one way in which they change.

use std::{
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    ComponentSettled, Identity, Resources, SettleError, Settled, StoreError,
    operations::{self, Context},
    resources::{Change, FileResources, Key, Resource},
    settle,
    store::{self, Store, Write},
};
use crate::{aws::AwsError, config::Config};

/// The control plane of one gateway.
pub struct Control {
    store: Box<dyn Store>,
    identity: Identity,
    current: ArcSwap<Resources>,
    file: ArcSwap<FileResources>,
    revision: watch::Sender<u64>,
    /// News of the store: others may write to it.
    written: watch::Receiver<u64>,
    /// Held while a change is made, so that this gateway's own do not run into each other.
    changing: std::sync::Mutex<()>,
}

/// Why the control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It holds something that this version cannot read.
    #[error(
        "the state at {place} has `{key}`, which cannot be read ({reason}): it was written by another version of the gateway, or by something else; use that version, or begin with a new file"
    )]
    Unreadable {
        /// The store.
        place: String,
        /// Where in it.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Control {
    /// Opens the state that is kept in a file, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, is in use by another process, or holds what cannot be read.
    pub fn open(path: &Path, identity: Identity) -> Result<Self, OpenError> {
        Self::with_store(Box::new(store::FileStore::open(path)?), identity)
    }

    /// Works on a store that is open already.
    ///
    /// # Errors
    ///
    /// When it holds what cannot be read.
    pub fn with_store(store: Box<dyn Store>, identity: Identity) -> Result<Self, OpenError> {
        let written = store.watch();
        let current = load(&*store)?;
        let revision = watch::Sender::new(current.revision);
        Ok(Self {
            store,
            identity,
            current: ArcSwap::from_pointee(current),
            file: ArcSwap::default(),
            revision,
            written,
            changing: std::sync::Mutex::new(()),
        })
    }

    /// One call of the API. All changes that it makes are durable when it returns; it may wait for a disk,
    /// so it is not for a thread that moves bodies.
    ///
    /// # Errors
    ///
    /// What the API answers instead of an output.
    pub fn call(&self, operation: &str, input: &Value) -> Result<Value, AwsError> {
        let operation = operations::find(operation)?;
        operation.check(input)?;
        self.change(|resources, now| {
            let file = self.file.load();
            let context =
                Context { now, identity: &self.identity, resources, file: file.resources() };
            let outcome = operation.run(&context, input)?;
            Ok((outcome.output, outcome.changes))
        })
    }

    /// Wakes whenever resources change; holds the revision.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What exists, without what the configuration file defines.
    pub fn resources(&self) -> Arc<Resources> {
        self.current.load_full()
    }

    /// Lets another process open the state; nothing can be changed here until it is regained.
    pub fn release_store(&self) {
        self.store.release();
    }

    /// Opens the state again that was released.
    pub fn regain_store(&self) {
        self.store.regain();
    }

    /// Whose resources these are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// An endpoint's new state, worked out for a generation of it. To be called where
    /// [`call`](Self::call) may be.
    ///
    /// # Errors
    ///
    /// When the endpoint has another generation by now or is gone, or when the state cannot be stored.
    pub fn settle(&self, endpoint: &str, generation: u64, to: &Settled) -> Result<(), SettleError> {
        self.change(|resources, now| {
            Ok(((), changes(settle::endpoint(resources, endpoint, generation, to, now)?)))
        })
    }

    /// A component's new state, worked out for a generation of it.
    ///
    /// # Errors
    ///
    /// As those of [`settle`](Self::settle).
    pub fn settle_component(
        &self,
        component: &str,
        generation: u64,
        to: &ComponentSettled,
    ) -> Result<(), SettleError> {
        self.change(|resources, now| {
            Ok(((), changes(settle::component(resources, component, generation, to, now)?)))
        })
    }

    /// An endpoint or a component that was being deleted is no more.
    ///
    /// # Errors
    ///
    /// As those of [`settle`](Self::settle); also when it is not being deleted.
    pub fn gone(&self, what: &Key, generation: u64) -> Result<(), SettleError> {
        self.change(|resources, _| Ok(((), changes(settle::gone(resources, what, generation)?))))
    }

    /// What the configuration file defines from now on: visible in the API, never changed by it.
    pub fn set_file(&self, config: &Config) {
        let next = self.file.load().updated(&config.endpoints, now());
        self.file.store(Arc::new(next));
    }

    /// Names that the configuration file defines: where an endpoint of the store has the same one, the
    /// file's counts.
    pub fn file(&self) -> Arc<FileResources> {
        self.file.load_full()
    }

    fn change<T, E: From<StoreError>>(
        &self,
        work_out: impl Fn(&Resources, u64) -> Result<(T, Vec<Change>), E>,
    ) -> Result<T, E> {
        // What changes nothing waits for nobody.
        if !self.is_stale() {
            let (output, changes) = work_out(&self.current.load(), now())?;
            if changes.is_empty() {
                return Ok(output);
            }
        }
        let _one = self.changing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            if self.is_stale() {
                self.publish(load(&*self.store).map_err(unreadable)?);
            }
            let base = self.current.load_full();
            let (output, changes) = work_out(&base, now())?;
            if changes.is_empty() {
                return Ok(output);
            }
            let writes = changes.iter().map(write).collect();
            match self.store.commit(base.revision, writes) {
                Ok(revision) => {
                    let mut next = Resources::clone(&base);
                    changes.iter().for_each(|change| next.apply(change));
                    next.revision = revision;
                    self.publish(next);
                    return Ok(output);
                }
                // Another gateway was faster: what it wrote may change what there is to do.
                Err(StoreError::Conflict { .. }) => {
                    self.publish(load(&*self.store).map_err(unreadable)?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether somebody else wrote to the store.
    fn is_stale(&self) -> bool {
        *self.written.borrow() > self.current.load().revision
    }

    fn publish(&self, next: Resources) {
        let revision = next.revision;
        self.current.store(Arc::new(next));
        self.revision.send_replace(revision);
    }
}

impl From<StoreError> for AwsError {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

fn changes(change: Option<Change>) -> Vec<Change> {
    change.into_iter().collect()
}

fn write(change: &Change) -> Write {
    match change {
        Change::Put(resource) => {
            Write { key: resource.key().to_string(), value: Some(resource.encode()) }
        }
        Change::Delete(key) => Write { key: key.to_string(), value: None },
    }
}

fn load(store: &dyn Store) -> Result<Resources, OpenError> {
    let snapshot = store.snapshot()?;
    let mut resources = Resources { revision: snapshot.revision, ..Resources::default() };
    for (key, value) in &snapshot.entries {
        let unreadable = |reason: String| OpenError::Unreadable {
            place: store.place(),
            key: key.clone(),
            reason,
        };
        let parsed =
            Key::parse(key).ok_or_else(|| unreadable("no such kind of resource".to_owned()))?;
        let resource =
            Resource::decode(&parsed, value).map_err(|error| unreadable(error.to_string()))?;
        resources.apply(&Change::Put(resource));
    }
    Ok(resources)
}

fn unreadable(error: OpenError) -> StoreError {
    match error {
        OpenError::Store(error) => error,
        error @ OpenError::Unreadable { .. } => StoreError::Failed { reason: error.to_string() },
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
