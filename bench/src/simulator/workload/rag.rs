//! Questions about documents that a search has found (retrieval-augmented generation).

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

/// What is asked, and of what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RagOptions {
    /// Pieces of documents.
    pub documents: usize,
    /// Tokens of a piece.
    pub document_tokens: usize,
    /// Pieces in a prompt.
    pub found: usize,
    /// Things that people ask about, each of which finds the same pieces in the same order, but for the last.
    pub topics: usize,
    /// Exponent of the topics' popularity.
    pub zipf: f64,
    /// Tokens of the instructions in front, the same for all.
    pub instruction_tokens: usize,
    /// Tokens of a question.
    pub question_tokens: usize,
    /// Tokens of an answer.
    pub answer_tokens: usize,
    /// Of all that is random.
    pub seed: u64,
}

impl Default for RagOptions {
    fn default() -> Self {
        Self {
            documents: 4_000,
            document_tokens: 600,
            found: 5,
            topics: 3_000,
            zipf: 0.8,
            instruction_tokens: 200,
            question_tokens: 40,
            answer_tokens: 200,
            seed: 2,
        }
    }
}

/// The workload.
pub struct Rag {
    options: RagOptions,
    instructions: Arc<Text>,
    documents: Vec<Arc<Text>>,
    popularity: Popularity,
    answer: Arc<Text>,
}

impl Rag {
    /// With its documents written.
    pub fn new(options: RagOptions) -> Self {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let mut write = |tokens: usize| {
            Text::new(text(rng.u64(..), Language::draw(&mut rng), tokens * TOKEN_CHARS))
        };
        Self {
            instructions: write(options.instruction_tokens),
            documents: (0..options.documents).map(|_| write(options.document_tokens)).collect(),
            answer: write(options.answer_tokens),
            popularity: Popularity::new(options.topics, options.zipf),
            options,
        }
    }
}

impl Workload for Rag {
    fn name(&self) -> String {
        "RAG".into()
    }

    fn session(&self, number: usize) -> Option<Session> {
        let mut rng = fastrand::Rng::with_seed(self.options.seed ^ (number as u64) << 20);
        let topic = self.popularity.draw(&mut rng);
        let mut of_topic = fastrand::Rng::with_seed(self.options.seed ^ (topic as u64) << 40);
        let mut found: Vec<usize> =
            (0..self.options.found).map(|_| of_topic.usize(..self.documents.len())).collect();
        // The words of the question change what comes last.
        if let Some(last) = found.last_mut() {
            *last = rng.usize(..self.documents.len());
        }
        let pieces: Vec<&str> = found.iter().map(|at| &*self.documents[*at].plain).collect();
        let characters = self.options.question_tokens * TOKEN_CHARS;
        let question = text(rng.u64(..), Language::draw(&mut rng), characters);
        let asked = format!("{}\n\n{question}", pieces.join("\n\n"));
        let turn = Turn {
            messages: vec![
                (Role::System, Arc::clone(&self.instructions)),
                (Role::User, Text::new(asked)),
            ],
            answer: Arc::clone(&self.answer),
            think: 0,
            from: From::Nothing,
        };
        Some(Session { group: topic as u64, turns: vec![turn] })
    }
}
