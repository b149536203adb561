//! Simulated engines, load and measurements.
//!
//! [`engine`] is an inference server without a GPU (`atalho-sim`); [`load`] drives a gateway and
//! measures what a client sees (`atalho-load`); [`machine`] is what measurements ask of the machine
//! they run on; [`report`] shows them; [`suite`] holds the comparisons (`atalho-bench`, which is what
//! `cargo xtask bench` runs).

pub mod engine;
pub mod load;
pub mod machine;
pub mod report;
pub mod simulator;
pub mod suite;
