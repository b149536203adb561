//! Finds the prefix in a request body as it arrives.

use super::api::Api;

/// What the prefix was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixKind {
    /// Text of a prompt, UTF-8.
    Text,
    /// Token ids of a prompt.
    TokenIds,
    /// Bytes of the body.
    Body,
}

/// The prefix of a request, and what else its body says about where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The prefix itself.
    pub text: Vec<u8>,
    /// Its length in units: characters, ids or bytes.
    pub units: usize,
    /// What it was made of.
    pub kind: PrefixKind,
    /// Top-level `model`, when it is a string.
    pub model: Option<Vec<u8>>,
    /// Top-level `prompt_cache_key`, when it is a string.
    pub cache_key: Option<Vec<u8>>,
}

/// Reads a body in pieces and keeps its prefix.
#[derive(Debug)]
pub struct Scanner {
    api: Api,
    prefix_length: usize,
    body: Vec<u8>,
}

impl Scanner {
    /// A scanner for one body. `prefix_length` is in units of the API.
    pub fn new(api: Api, prefix_length: usize) -> Self {
        Self { api, prefix_length, body: Vec::new() }
    }

    /// Takes the next payload bytes; `true` means that no more are needed to decide.
    pub fn feed(&mut self, payload: &[u8]) -> bool {
        let room = self.prefix_length - self.body.len();
        self.body.extend_from_slice(&payload[..payload.len().min(room)]);
        let _ = self.api;
        self.body.len() == self.prefix_length
    }

    /// The prefix of what was fed.
    pub fn finish(self) -> Prefix {
        let units = self.body.len();
        Prefix { text: self.body, units, kind: PrefixKind::Body, model: None, cache_key: None }
    }
}
