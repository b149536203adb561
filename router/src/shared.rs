//! What all threads of the gateway share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::{
    engine::Loaded,
    fleet::Fleet,
    metrics::Metrics,
    routing::{Sessions, StoredResponses},
};

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving.
    Running,
    /// Taking no new connections; open exchanges go on.
    Draining,
    /// Over: what is still open is cut.
    Stopped,
}

/// What all threads share.
pub struct Shared {
    /// The current fleet, with the configuration that it was made of.
    pub fleet: ArcSwap<Fleet>,
    /// The loaded kernel programs, where an engine uses them.
    pub loaded: Option<Loaded>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// Which instances keep stored responses.
    pub stored: StoredResponses,
    /// Which instances keep sessions.
    pub sessions: Sessions,
    /// Where the process stands.
    pub phase: watch::Receiver<Phase>,
}
