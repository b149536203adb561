//! One gateway takes over from another one on the same host, while both run.
//!
//! The new one starts beside the old one, and gets its listening sockets, with the connections that wait to be
//! accepted: no client is refused. Only when it serves does the old one stop accepting, and end what it has.
//! Until then, whatever befalls the new one, the old one goes on.

mod asks;
mod channel;
mod counted;
mod message;
mod predecessor;
mod successor;

pub(super) use self::{
    asks::{Asks, Drained},
    counted::Counted,
    message::Role,
    predecessor::{Older, Predecessor},
    successor::{Ask, Estate, Sockets},
};

impl Counted {
    /// For a gateway without predecessors.
    pub(super) fn alone(counters: &crate::fleet::Counters) -> Self {
        Self::new(counters)
    }
}
