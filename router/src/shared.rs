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
    /// Still accepting connections, and closing each after its next answer: load balancers have not all seen yet
    /// that it is not ready.
    LameDuck,
    /// Another process accepts the connections. Those that clients keep are answered once more each.
    HandedOver,
    /// Taking no new connections, and keeping none for another request; open exchanges go on.
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
