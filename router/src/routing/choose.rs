//! The choice of an instance.

use std::sync::Arc;

use super::{
    Ticket,
    rank::{Distance, PrefixKey},
};
use crate::fleet::{Instance, InstanceId, Strategy, Variant};

/// Why an instance was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is the key's home.
    Home,
    /// The home has as many requests in flight as the threshold allows; this one is less busy.
    Overflow,
    /// All instances are at the threshold; this one is the least loaded.
    Saturated,
    /// The home cannot serve, or has just failed this request; this one is next.
    Failover,
    /// No instance is well; this one is tried all the same.
    LastResort,
    /// It has the fewest requests in flight.
    LeastOutstanding,
    /// Chance.
    Random,
    /// Fewer than two instances can serve, so there is nothing to choose.
    Single,
}

impl Reason {
    /// All reasons, for tables of metrics.
    pub const ALL: [Self; 8] = [
        Self::Home,
        Self::Overflow,
        Self::Saturated,
        Self::Failover,
        Self::LastResort,
        Self::LeastOutstanding,
        Self::Random,
        Self::Single,
    ];

    /// The name used in response headers, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Overflow => "overflow",
            Self::Saturated => "saturated",
            Self::Failover => "failover",
            Self::LastResort => "last-resort",
            Self::LeastOutstanding => "least-outstanding",
            Self::Random => "random",
            Self::Single => "single",
        }
    }
}

/// Why no instance can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoInstance {
    /// There is none, or all are draining or have no known address.
    #[error("no instance can serve: none is configured, or all are draining or unresolved")]
    None,
    /// Those that could were tried.
    #[error("every instance that can serve has failed this request")]
    Exhausted,
    /// All have `max_in_flight` requests.
    #[error("every instance has as many requests in flight as `max_in_flight` allows")]
    AtLimit,
}

impl NoInstance {
    /// The status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::None => 503,
            Self::Exhausted => 502,
            Self::AtLimit => 429,
        }
    }

    /// The name used in headers, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no-instance",
            Self::Exhausted => "instances-failed",
            Self::AtLimit => "at-limit",
        }
    }
}

/// A chosen instance.
#[derive(Debug)]
pub struct Choice {
    /// Counts the request at the instance.
    pub ticket: Ticket,
    /// Why this instance.
    pub reason: Reason,
    /// The key's home, when routing by prefix applies.
    pub home: Option<InstanceId>,
}

/// Chooses the instance of `variant` that serves a request, and counts the request there.
///
/// `key` is `None` for requests that have no prefix. `exclude` names instances that have failed this
/// request already.
///
/// # Errors
/// When no instance can serve it.
pub fn choose(
    variant: &Variant,
    key: Option<PrefixKey>,
    exclude: &[InstanceId],
    rng: &mut fastrand::Rng,
) -> Result<Choice, NoInstance> {
    let _ = (variant, key, exclude, rng);
    todo!()
}
