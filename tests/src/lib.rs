//! What the integration tests share: the gateway as a process, scripted peers on both sides of it,
//! and the means to see what it left behind.
//!
//! The harness is synchronous: a test reads from top to bottom in the order in which things happen
//! on the wire. Nothing sleeps to let something else happen; what has to be waited for is polled by
//! [`wait::eventually`] or read from a socket, both with a deadline.

pub mod bpf;
pub mod capture;
pub mod cgroup;
pub mod chunked;
pub mod engine;
pub mod frames;
pub mod front;
pub mod gate;
pub mod gateway;
pub mod message;
pub mod metrics;
pub mod netns;
pub mod network;
pub mod patient;
pub mod payload;
pub mod peer;
pub mod process;
pub mod python;
pub mod setup;
pub mod traffic;
pub mod upstream;
pub mod wait;
pub mod wire;

pub use engine::Engine;
pub use gate::Gate;
pub use gateway::Gateway;
pub use message::{Head, Message};
pub use network::{Network, Topology};
pub use patient::Patient;
pub use peer::{End, Peer};
pub use setup::Setup;
pub use upstream::{Next, Upstream};
pub use wait::{DEADLINE, eventually, eventually_some};
