//! An OpenAI-compatible server that behaves like a GPU host, without one.
//!
//! What a router can observe of an inference server is modelled: the time to the first token
//! depends on how much of the prompt is in the KV cache, the time between tokens on how many
//! requests run, and requests queue when the host is full. What it says is nonsense, but always the
//! same nonsense for the same prompt.
//!
//! [`cache`] and [`scheduler`] are pure; [`runner`] moves them through time; [`prompt`] and
//! [`reply`] know the APIs; [`answer`] joins tokens and reply, with the faults of [`fault`];
//! [`server`] is the HTTP side.

pub mod answer;
pub mod cache;
pub mod fault;
pub mod metrics;
pub mod params;
pub mod prompt;
pub mod reply;
pub mod runner;
pub mod scheduler;
pub mod server;
pub mod tokens;
