//! Long contexts: many requests that share long beginnings, with a question of their own behind.

use std::sync::Arc;

use serde::Serialize;

use super::{
    From, Session, Turn, Workload,
    popularity::Popularity,
    words::{Language, text},
};
use crate::{
    engine::tokens::TOKEN_CHARS,
    simulator::prompt::{Role, Text},
};

/// What the contexts and the questions are like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LongContext {
    /// Different contexts.
    pub contexts: usize,
    /// Exponent of their popularity; 0 makes all equal.
    pub zipf: f64,
    /// Tokens of a context.
    pub context_tokens: u32,
    /// Tokens of a question, on average; between a half and three halves of it.
    pub question_tokens: u32,
    /// Tokens of an answer, on average; between a half and three halves of it.
    pub answer_tokens: u32,
    /// Of all that is random.
    pub seed: u64,
}

impl Default for LongContext {
    /// 600 contexts of 8,000 tokens are 4.8 million tokens, nearly four times what one host of the default kind keeps,
    /// and half of what seven do.
    fn default() -> Self {
        Self {
            contexts: 600,
            zipf: 0.0,
            context_tokens: 8_000,
            question_tokens: 200,
            answer_tokens: 200,
            seed: 1,
        }
    }
}

/// The workload.
pub struct Long {
    options: LongContext,
    popularity: Popularity,
    contexts: Vec<Arc<Text>>,
    /// A text of which each answer is a piece.
    answers: Vec<Arc<Text>>,
}

impl Long {
    /// With its contexts written.
    pub fn new(options: LongContext) -> Self {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let characters = options.context_tokens as usize * TOKEN_CHARS;
        let contexts = (0..options.contexts)
            .map(|_| Text::new(text(rng.u64(..), Language::draw(&mut rng), characters)))
            .collect();
        let half = options.answer_tokens / 2;
        let answers = (half.max(1)..=(options.answer_tokens + half).max(1))
            .map(|tokens| {
                let characters = tokens as usize * TOKEN_CHARS;
                Text::new(text(rng.u64(..), Language::English, characters))
            })
            .collect();
        let popularity = Popularity::new(options.contexts, options.zipf);
        Self { options, popularity, contexts, answers }
    }
}

impl Workload for Long {
    fn name(&self) -> String {
        match self.options.zipf {
            0.0 => "long context, uniform".into(),
            zipf => format!("long context, Zipf {zipf}"),
        }
    }

    fn session(&self, number: usize) -> Option<Session> {
        let mut rng = fastrand::Rng::with_seed(self.options.seed ^ (number as u64) << 20);
        let group = self.popularity.draw(&mut rng);
        let half = self.options.question_tokens / 2;
        let tokens = rng.u32(half..=self.options.question_tokens + half) as usize;
        let question = text(rng.u64(..), Language::draw(&mut rng), tokens * TOKEN_CHARS);
        let turn = Turn {
            messages: vec![
                (Role::System, Arc::clone(&self.contexts[group])),
                (Role::User, Text::new(question)),
            ],
            answer: Arc::clone(&self.answers[rng.usize(..self.answers.len())]),
            think: 0,
            from: From::Nothing,
        };
        Some(Session { group: group as u64, turns: vec![turn] })
    }
}
