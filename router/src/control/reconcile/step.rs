//! What a round goes by, and what it decides.

use std::time::Duration;

use super::hosts::Looks;
use crate::{
    config::HostPool,
    control::{ComponentSettled, Resources, Settled, resources::Key},
};

/// See [`View::loads`].
pub(super) type Loads<'a> = dyn Fn(&str, &str) -> (usize, Option<String>) + 'a;

/// All that a round goes by.
pub(super) struct View<'a> {
    pub(super) resources: &'a Resources,
    pub(super) pools: &'a [HostPool],
    pub(super) looks: &'a Looks,
    /// How the requests end of an endpoint's deployment that is on its way: how many have, and how
    /// many of them failed.
    pub(super) trials: &'a dyn Fn(&str) -> (u64, u64),
    /// How many copies of an adapter (by endpoint and name) are loaded, and why others are not.
    pub(super) loads: &'a Loads<'a>,
    /// How long an endpoint waits for hosts, unless its configuration says otherwise.
    pub(super) ready_within: Duration,
    /// Milliseconds since 1970.
    pub(super) now: u64,
}

/// A host, or a copy with a server of its own, that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// Its URL.
    pub(super) host: String,
    /// Where it is asked for its health, if not where all are.
    pub(super) path: Option<String>,
}

/// One change of state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Of an endpoint of this generation.
    Endpoint(String, u64, Box<Settled>),
    /// Of an inference component of this generation.
    Component(String, u64, Box<ComponentSettled>),
    /// What was being deleted, of this generation, is no more.
    Gone(Key, u64),
}

/// A reason as the API takes it.
pub(super) fn shortened(mut failure: String) -> String {
    if let Some((at, _)) = failure.char_indices().nth(MAX_FAILURE) {
        failure.truncate(at);
    }
    failure
}

/// Longest `FailureReason`, in characters.
const MAX_FAILURE: usize = 1024;
