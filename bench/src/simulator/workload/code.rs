//! An editor that asks for the next lines while somebody types.

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

/// What is edited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeOptions {
    /// Projects, each with a context that goes in front of all its files.
    pub projects: usize,
    /// Exponent of their popularity.
    pub zipf: f64,
    /// Tokens of a project's context.
    pub context_tokens: usize,
    /// Tokens of a file at the start of a session.
    pub file_tokens: usize,
    /// Tokens that are typed between two requests.
    pub typed_tokens: usize,
    /// Requests of a session.
    pub completions: usize,
    /// Tokens of an answer.
    pub answer_tokens: usize,
    /// Seconds between an answer and the next request.
    pub think_seconds: f64,
    /// Of all that is random.
    pub seed: u64,
}

impl Default for CodeOptions {
    fn default() -> Self {
        Self {
            projects: 200,
            zipf: 0.8,
            context_tokens: 1_500,
            file_tokens: 1_500,
            typed_tokens: 15,
            completions: 30,
            answer_tokens: 25,
            think_seconds: 4.0,
            seed: 4,
        }
    }
}

/// The workload.
pub struct Code {
    options: CodeOptions,
    contexts: Vec<Arc<Text>>,
    popularity: Popularity,
    answer: Arc<Text>,
}

impl Code {
    /// With its projects written.
    pub fn new(options: CodeOptions) -> Self {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let mut write =
            |tokens: usize| Text::new(text(rng.u64(..), Language::Code, tokens * TOKEN_CHARS));
        Self {
            contexts: (0..options.projects).map(|_| write(options.context_tokens)).collect(),
            answer: write(options.answer_tokens),
            popularity: Popularity::new(options.projects, options.zipf),
            options,
        }
    }
}

impl Workload for Code {
    fn name(&self) -> String {
        "code completion".into()
    }

    fn session(&self, number: usize) -> Option<Session> {
        let options = &self.options;
        let mut rng = fastrand::Rng::with_seed(options.seed ^ (number as u64) << 20);
        let project = self.popularity.draw(&mut rng);
        let tokens = options.file_tokens + options.typed_tokens * options.completions;
        let file = text(rng.u64(..), Language::Code, tokens * TOKEN_CHARS);
        let ends: Vec<usize> = file.char_indices().map(|(at, _)| at).collect();
        let turns = (0..options.completions).map(|at| {
            let tokens = options.file_tokens + options.typed_tokens * at;
            let until = &file[..ends[(tokens * TOKEN_CHARS).min(ends.len() - 1)]];
            Turn {
                messages: vec![
                    (Role::System, Arc::clone(&self.contexts[project])),
                    (Role::User, Text::new(until)),
                ],
                answer: Arc::clone(&self.answer),
                think: (options.think_seconds * SECOND as f64 * (0.5 + rng.f64())) as u64,
                from: From::Nothing,
            }
        });
        Some(Session { group: project as u64, turns: turns.collect() })
    }
}
