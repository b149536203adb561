//! The control API and what it makes, when the gateway goes down.

mod client;
mod kills;
