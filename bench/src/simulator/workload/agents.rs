//! Agents: a long description of tools, a task, and then a model that calls tools until it is done.

use std::sync::Arc;

use serde::Serialize;

use super::{
    From, Session, Turn, Workload,
    popularity::Popularity,
    words::{Language, text},
};
use crate::{
    engine::tokens::TOKEN_CHARS,
    simulator::{
        SECOND,
        prompt::{Role, Text},
    },
};

/// What agents do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentOptions {
    /// Kinds of agents, each with a system prompt of its own.
    pub kinds: usize,
    /// Exponent of their popularity.
    pub zipf: f64,
    /// Tokens of a system prompt.
    pub system_tokens: usize,
    /// Tokens of a task.
    pub task_tokens: usize,
    /// Calls of tools for a task, between a third of it and five thirds.
    pub calls: usize,
    /// Tokens of what the model says for a call.
    pub call_tokens: usize,
    /// Tokens of what a tool returns, up to twice this.
    pub result_tokens: usize,
    /// Share of the calls that go back to an earlier one and try something else from there.
    pub branches: f64,
    /// Seconds that a tool takes, on average.
    pub tool_seconds: f64,
    /// Of all that is random.
    pub seed: u64,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            kinds: 12,
            zipf: 1.0,
            system_tokens: 4_000,
            task_tokens: 150,
            calls: 12,
            call_tokens: 80,
            result_tokens: 500,
            branches: 0.1,
            tool_seconds: 2.0,
            seed: 5,
        }
    }
}

/// The workload.
pub struct Agents {
    options: AgentOptions,
    systems: Vec<Arc<Text>>,
    popularity: Popularity,
    calls: Vec<Arc<Text>>,
}

impl Agents {
    /// With its system prompts written.
    pub fn new(options: AgentOptions) -> Self {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let mut write =
            |tokens: usize| Text::new(text(rng.u64(..), Language::English, tokens * TOKEN_CHARS));
        Self {
            systems: (0..options.kinds).map(|_| write(options.system_tokens)).collect(),
            calls: (0..64).map(|_| write(options.call_tokens)).collect(),
            popularity: Popularity::new(options.kinds, options.zipf),
            options,
        }
    }
}

impl Workload for Agents {
    fn name(&self) -> String {
        "agents".into()
    }

    fn session(&self, number: usize) -> Option<Session> {
        let options = &self.options;
        let mut rng = fastrand::Rng::with_seed(options.seed ^ (number as u64) << 20);
        let kind = self.popularity.draw(&mut rng);
        let steps = options.calls / 3 + rng.usize(..=options.calls * 4 / 3);
        let turns = (0..=steps).map(|step| {
            let said = |rng: &mut fastrand::Rng, tokens: usize| {
                let language = Language::draw(rng);
                Text::new(text(rng.u64(..), language, tokens * TOKEN_CHARS))
            };
            let (messages, from) = if step == 0 {
                let task = (Role::User, said(&mut rng, options.task_tokens));
                (vec![(Role::System, Arc::clone(&self.systems[kind])), task], From::Nothing)
            } else {
                let tokens = rng.usize(1..=2 * options.result_tokens);
                let from = match rng.f64() < options.branches {
                    true => From::Turn(rng.usize(..step)),
                    false => From::Last,
                };
                (vec![(Role::Tool, said(&mut rng, tokens))], from)
            };
            let tool = options.tool_seconds * SECOND as f64 * -(1.0 - rng.f64()).ln();
            let answer = Arc::clone(&self.calls[rng.usize(..self.calls.len())]);
            Turn { messages, answer, think: tool as u64, from }
        });
        Some(Session { group: kind as u64, turns: turns.collect() })
    }
}
