//! A fleet in virtual time: an hour of seven hosts takes seconds.
//!
//! The hosts are the [scheduler](crate::engine::scheduler) and the cache of the simulated engines, which also serve
//! over real sockets; the choice of a host is the gateway's own scanner, key and routing code, or another
//! router's rule, written anew from its public description. A [workload] says who asks what and when; a
//! [policy] chooses the host; [`run`](run::run) moves both through time; an [outcome] is what came of it.
//!
//! What is not modelled: the network and the gateway's own time (both far below a step of a host), clients that
//! give up, and pre-emption of requests by a host that runs out of blocks (see the scheduler).

pub mod host;
pub mod outcome;
pub mod policy;
pub mod prompt;
pub mod run;
#[cfg(test)]
mod tests;
pub mod workload;

/// Microseconds since the start of the simulation.
pub type Micros = u64;

/// Microseconds of a second.
pub const SECOND: Micros = 1_000_000;
