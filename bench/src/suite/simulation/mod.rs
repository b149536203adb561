//! Every rule of choice over the same work, in virtual time: what routing by prefix gains and costs.
//!
//! [`plan`] says what is run, [`results`] runs it, [`report`] writes it down, with [`plots`].

pub mod plan;
pub mod plots;
pub mod report;
pub mod results;
mod runs;

pub use results::{Results, run};
pub use runs::{Job, run_all};
