//! Simulated engines, load and measurements.
//!
//! [`engine`] is an inference server without a GPU (`atalho-sim`); [`machine`] is what measurements
//! ask of the machine they run on.

pub mod engine;
pub mod machine;
