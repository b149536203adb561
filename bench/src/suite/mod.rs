//! The comparisons.
//!
//! [`decision`] is what choosing an instance costs; [`relay`] is what passing through a gateway
//! costs, beside nginx and HAProxy; [`control`] is what changes cost those who do not ask for them; [`routing`] is what choosing by prefix is worth. [`goals`] holds
//! the results against what the project promises.

pub mod bodies;
pub mod control;
pub mod decision;
pub mod fleet_size;
pub mod goals;
pub mod relay;
pub mod routing;
pub mod simulation;
pub mod target;
