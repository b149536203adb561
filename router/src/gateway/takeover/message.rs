//! What two gateways say to each other when one takes over from the other.
//!
//! ```text
//! new                               old
//! Hello                        →
//!                              ←    Offer, with listeners and counters, or Refused
//! ReleaseStore                 →        only if the old one has it
//!                              ←    StoreReleased
//! Counters, with its own       →
//!                              ←    Noted
//! Serving                      →
//!                              ←    Draining
//!                              ←    Left, once it has left the interfaces' drivers
//! ```
//!
//! Until it says `Draining`, the old gateway serves as before, and goes on doing so when the connection ends.
//! After that the connection stays open for as long as the old one has exchanges to end.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Rises when a message changes so that older versions would misread it.
pub(super) const PROTOCOL: u32 = 1;

/// One message. Descriptors that belong to it follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Who wants to take over.
    Hello { protocol: u32, version: String, pid: u32 },
    /// What there is to take over. Its descriptors are the listeners, and then two for each table of counters:
    /// its memory, and its process (`pidfd_open(2)`).
    Offer(Offer),
    /// Why nothing is to be had now.
    Refused { why: String },
    /// The control API's state is to be closed, so that the new gateway can open it.
    ReleaseStore,
    /// It is closed.
    StoreReleased,
    /// The counters of the new gateway, or of one that is newer still, with their two descriptors. While the
    /// old one drains, more of them may come.
    Counters(Table),
    /// They count from now on.
    Noted,
    /// The new gateway accepts connections.
    Serving,
    /// The old one accepts none any more.
    Draining,
    /// The old one has no programs in drivers any more.
    Left,
}

/// What an old gateway has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// In the order of their descriptors.
    pub(super) listeners: Vec<Listener>,
    /// The old gateway's counters.
    pub(super) counters: Table,
    /// Which slot each instance has, by the name of its place.
    pub(super) slots: Vec<(String, u32)>,
    /// Counters of gateways that are older still.
    pub(super) others: Vec<Table>,
    /// Whether it has the control API's state open.
    pub(super) has_store: bool,
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listener {
    pub(super) role: Role,
    pub(super) address: SocketAddr,
}

/// Who connects to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::gateway) enum Role {
    /// Clients.
    Clients,
    /// Who looks at metrics, health and status.
    Admin,
    /// Clients of the control API.
    Control,
}

/// How a table of counters lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Table {
    /// Bytes from one slot to the next.
    pub(super) stride: u32,
    /// Slots.
    pub(super) len: u32,
}
