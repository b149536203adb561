//! Who asks what.

mod agents;
mod arrivals;
mod code;
mod long;
mod popularity;
mod rag;
pub mod sharegpt;
pub mod words;

use std::sync::Arc;

pub use agents::{AgentOptions, Agents};
pub use arrivals::{Arrivals, Load};
pub use code::{Code, CodeOptions};
pub use long::{Long, LongContext};
pub use popularity::Popularity;
pub use rag::{Rag, RagOptions};
pub use sharegpt::ShareGpt;

use super::{
    Micros,
    prompt::{Prompt, Role, Text},
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
    /// What its messages follow.
    pub from: From,
}

/// What a turn's messages follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Nothing: it is a prompt of its own.
    Nothing,
    /// The turn before it and its answer, if there is one.
    Last,
    /// The turn of this number in its session, and its answer.
    Turn(usize),
}

impl From {
    /// That prompt, of those behind each turn so far.
    pub fn prompt(self, prompts: &[Prompt]) -> Option<Prompt> {
        match self {
            Self::Nothing => None,
            Self::Last => prompts.last().cloned(),
            Self::Turn(number) => prompts.get(number).cloned(),
        }
    }
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
