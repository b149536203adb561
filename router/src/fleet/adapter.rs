//! One adapter on one server.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use serde_json::json;

use super::probe::{self, Get};
use crate::config::AdapterConfig;

/// For a server to load an adapter: it may have to fetch its weights first.
const LOAD_LIMIT: Duration = Duration::from_secs(300);
/// For a server to unload one.
const UNLOAD_LIMIT: Duration = Duration::from_secs(30);
/// Of an answer that is read.
const ANSWER_BYTES: usize = 64 * 1024;
/// Characters of an answer that are repeated.
const SHOWN: usize = 200;

/// No epoch of a server.
const NEVER: u64 = u64::MAX;

/// An adapter as one server has it, or has not.
#[derive(Debug)]
pub(super) struct Adapter {
    name: String,
    config: AdapterConfig,
    /// The server's epoch in which it was loaded last.
    loaded_in: AtomicU64,
    /// How many lists of models the server had given by then.
    lists: AtomicU64,
    /// Why it could not be loaded.
    failure: Mutex<Option<String>>,
}

impl Adapter {
    pub(super) fn new(name: &str, config: &AdapterConfig) -> Self {
        let (loaded_in, lists) = (AtomicU64::new(NEVER), AtomicU64::new(0));
        let (name, config, failure) = (name.to_owned(), config.clone(), Mutex::default());
        Self { name, config, loaded_in, lists, failure }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the same adapter.
    pub(super) fn is(&self, config: &AdapterConfig) -> bool {
        self.config == *config
    }

    pub(super) fn is_loaded(&self, epoch: u64) -> bool {
        self.loaded_in.load(Acquire) == epoch
    }

    pub(super) fn forget(&self) {
        self.loaded_in.store(NEVER, Release);
    }

    /// Takes note that the last of so many lists of a server that lists its adapters does not have it. One that was
    /// asked for after it had been loaded says that it has been lost.
    pub(super) fn note_unlisted(&self, lists: u64) {
        if lists >= self.lists.load(Acquire) + 2 {
            self.forget();
        }
    }

    /// Notes what an attempt in this epoch of the server has come to, when it had given so many lists.
    pub(super) fn note(&self, epoch: u64, lists: u64, done: Result<(), String>) {
        if done.is_ok() {
            self.lists.store(lists, Release);
            self.loaded_in.store(epoch, Release);
        }
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = done.err();
    }

    /// Why it could not be loaded at the last attempt.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the server load it. One that has it already is as good.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub(super) async fn load(
        &self,
        authority: &str,
        addresses: &[std::net::SocketAddr],
    ) -> Result<(), String> {
        let body = json!({ "lora_name": self.name, "lora_path": self.config.weights });
        let said = call(authority, addresses, &self.config.load, LOAD_LIMIT, &body).await?;
        match said {
            (200..300, _) => Ok(()),
            // vLLM: "has already been loaded", SGLang: "is already loaded".
            (400, text) if text.contains("already") => Ok(()),
            (status, text) => Err(format!("{} answers {status}: {text}", self.config.load)),
        }
    }

    /// Has the server unload it.
    ///
    /// # Errors
    /// As those of [`load`](Self::load).
    pub(super) async fn unload(
        &self,
        authority: &str,
        addresses: &[std::net::SocketAddr],
    ) -> Result<(), String> {
        let body = json!({ "lora_name": self.name });
        let said = call(authority, addresses, &self.config.unload, UNLOAD_LIMIT, &body).await?;
        match said {
            // One that it does not have is unloaded.
            (200..300 | 404, _) => Ok(()),
            (status, text) => Err(format!("{} answers {status}: {text}", self.config.unload)),
        }
    }
}

/// A call in JSON: status and text of its answer.
async fn call(
    authority: &str,
    addresses: &[std::net::SocketAddr],
    path: &str,
    time_limit: Duration,
    body: &serde_json::Value,
) -> Result<(u16, String), String> {
    let get = Get { authority, path, headers: &[], time_limit, size_limit: ANSWER_BYTES };
    let answer = probe::post(addresses, &get, &body.to_string()).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&answer.body).chars().take(SHOWN).collect();
    Ok((answer.status, text))
}
