//! Atalho's gateway: everything that runs in user space.
//!
//! [`cli`] → [`gateway`] → [`control`] → [`admin`] → [`shared`] → [`prefix`] → [`routing`] → [`fleet`] → [`engine`] →
//! [`kernel`] → [`net`] → [`config`] → [`aws`] → [`api`] → [`http`] → [`metrics`] → [`log`]: a module may use the
//! ones to its right, never back.

pub mod admin;
pub mod api;
pub mod aws;
pub mod cli;
pub mod config;
pub mod control;
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
#[cfg(test)]
mod testing;
