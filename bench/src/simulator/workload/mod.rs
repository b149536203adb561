//! Who asks what.

mod arrivals;
mod long;
mod popularity;
pub mod sharegpt;
pub mod words;

use std::sync::Arc;

pub use arrivals::{Arrivals, Load};
pub use long::{Long, LongContext};
pub use popularity::Popularity;
pub use sharegpt::ShareGpt;

use super::{
    Micros,
    prompt::{Role, Text},
};

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Turn {
    /// What is new since the turn that it goes on from, and its answer.
    pub messages: Vec<(Role, Arc<Text>)>,
    /// What the model will say.
    pub answer: Arc<Text>,
    /// Microseconds between the end of the turn before and this one.
    pub think: Micros,
    /// The number of the turn that this one goes on from, in this session; `None` for the one before it.
    pub from: Option<usize>,
}

/// Turns, one after another.
#[derive(Clone, Debug)]
pub struct Session {
    /// Sessions of the same group begin alike.
    pub group: u64,
    /// The turns.
    pub turns: Vec<Turn>,
}

/// Sessions, the same ones each time.
pub trait Workload: Sync {
    /// What it is called in reports.
    fn name(&self) -> String;

    /// Session number `number`; `None` behind the last one.
    fn session(&self, number: usize) -> Option<Session>;
}
