//! Atalho's gateway: everything that runs in user space.
//!
//! One request flows left to right through [`http`] → [`prefix`] → [`routing`] → [`fleet`] →
//! [`engine`]; [`gateway`] is the way itself. A module may call the ones to its right, never back.

pub mod admin;
pub mod cli;
pub mod config;
pub mod engine;
pub mod fleet;
pub mod gateway;
pub mod http;
pub mod kernel;
pub mod log;
pub mod metrics;
pub mod net;
pub mod prefix;
pub mod routing;
pub mod shared;
