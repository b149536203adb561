//! Prompts that share their beginnings, in memory as well: a conversation's next turn is its last one and a
//! little more.

use std::sync::Arc;

use crate::engine::{cache::BlockHasher, prompt::open, scheduler::HashedJob, tokens::tokenize};

/// A piece of text, in the forms that are needed of it again and again.
#[derive(Debug)]
pub struct Text {
    /// As written.
    pub plain: String,
    /// As the inside of a JSON string.
    json: String,
    tokens: Vec<u32>,
}

impl Text {
    /// Of this text.
    pub fn new(plain: impl Into<String>) -> Arc<Self> {
        let plain = plain.into();
        let quoted = serde_json::Value::String(plain.clone()).to_string();
        let mut tokens = Vec::new();
        tokenize(&plain, &mut tokens);
        Arc::new(Self { json: quoted[1..quoted.len() - 1].to_owned(), tokens, plain })
    }

    /// Tokens of the text.
    pub fn tokens(&self) -> u32 {
        self.tokens.len() as u32
    }
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The application.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// As requests name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// What a host computes its hashes with; the same for all hosts of a fleet.
#[derive(Clone, Debug)]
pub struct Dialect {
    /// The model asked for.
    pub model: String,
    /// Tokens of a block.
    pub block_tokens: u32,
}

#[derive(Debug)]
struct Message {
    before: Option<Arc<Message>>,
    role: Role,
    text: Arc<Text>,
    /// Of the blocks that this message fills.
    hashes: Vec<u64>,
    /// Behind this message.
    hasher: BlockHasher,
    /// Tokens of the prompt up to here.
    tokens: u32,
    /// Characters of the prompt's text up to here.
    characters: usize,
}

/// A list of messages. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Prompt {
    last: Option<Arc<Message>>,
    dialect: Arc<Dialect>,
}

impl Prompt {
    /// Without messages.
    pub fn new(dialect: &Arc<Dialect>) -> Self {
        Self { last: None, dialect: Arc::clone(dialect) }
    }

    /// With one message more.
    #[must_use]
    pub fn with(&self, role: Role, text: &Arc<Text>) -> Self {
        let mut hasher = self.hasher();
        let mut mark = Vec::new();
        open(role.as_str(), &mut mark);
        let mut hashes = Vec::new();
        hasher.extend(&mark, &mut hashes);
        hasher.extend(&text.tokens, &mut hashes);
        let message = Message {
            before: self.last.clone(),
            role,
            text: Arc::clone(text),
            hashes,
            hasher,
            tokens: self.last.as_ref().map_or(0, |last| last.tokens)
                + mark.len() as u32
                + text.tokens(),
            characters: self.characters() + text.plain.chars().count(),
        };
        Self { last: Some(Arc::new(message)), dialect: Arc::clone(&self.dialect) }
    }

    /// Tokens of all messages.
    pub fn tokens(&self) -> u32 {
        self.last.as_ref().map_or(0, |last| last.tokens)
    }

    /// Characters of all messages.
    pub fn characters(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.characters)
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> u32 {
        self.dialect.block_tokens
    }

    /// The first characters of all messages together, at least as many as `characters` if there are.
    pub fn text(&self, characters: usize) -> String {
        let mut text = String::new();
        for (_, message) in self.messages() {
            let left = characters.saturating_sub(text.chars().count());
            text.extend(message.plain.chars().take(left));
        }
        text
    }

    /// The messages, first to last.
    pub fn messages(&self) -> Vec<(Role, &Arc<Text>)> {
        let mut messages = Vec::new();
        let mut at = self.last.as_deref();
        while let Some(message) = at {
            messages.push((message.role, &message.text));
            at = message.before.as_deref();
        }
        messages.reverse();
        messages
    }

    /// The request's body, as the SDKs write it: `model` behind `messages`.
    pub fn write_body(&self, output: u32, body: &mut Vec<u8>) {
        body.clear();
        body.extend_from_slice(br#"{"messages":["#);
        for (at, (role, text)) in self.messages().into_iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            for part in [r#"{"role":""#, role.as_str(), r#"","content":""#, &text.json, r#""}"#] {
                body.extend_from_slice(part.as_bytes());
            }
        }
        let rest =
            format!(r#"],"model":"{}","max_tokens":{output},"stream":true}}"#, self.dialect.model);
        body.extend_from_slice(rest.as_bytes());
    }

    /// What a host has to do for an answer with this text.
    pub fn job(&self, answer: &Text) -> HashedJob {
        let mut hasher = self.hasher();
        let mut mark = Vec::new();
        open(Role::Assistant.as_str(), &mut mark);
        let (mut hashes, mut tail) = (self.hashes(), Vec::new());
        hasher.extend(&mark, &mut tail);
        hasher.extend(&answer.tokens, &mut tail);
        hashes.append(&mut tail);
        let prompt = self.last.as_ref().map_or(0, |last| last.tokens) + mark.len() as u32;
        HashedJob { hashes, prompt, output: answer.tokens() }
    }

    /// Hashes of the blocks that the messages fill, first to last.
    pub fn hashes(&self) -> Vec<u64> {
        let mut parts = Vec::new();
        let mut at = self.last.as_deref();
        while let Some(message) = at {
            parts.push(&message.hashes);
            at = message.before.as_deref();
        }
        parts.into_iter().rev().flatten().copied().collect()
    }

    fn hasher(&self) -> BlockHasher {
        self.last.as_ref().map_or_else(
            || BlockHasher::new(&self.dialect.model, "", self.dialect.block_tokens),
            |last| last.hasher.clone(),
        )
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // A long conversation is a long list: it is taken apart in a loop, not by recursion.
        let mut before = self.before.take();
        while let Some(message) = before {
            before = Arc::into_inner(message).and_then(|mut message| message.before.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        prompt::{Api, parse},
        scheduler::Job,
    };

    #[test]
    fn it_has_the_tokens_that_an_engine_reads_from_its_body() {
        let dialect = Arc::new(Dialect { model: "m".into(), block_tokens: 16 });
        let mut prompt = Prompt::new(&dialect);
        let mut rng = fastrand::Rng::with_seed(3);
        let answer = Text::new("an answer of some words");
        for (turn, role) in [Role::System, Role::User, Role::Assistant, Role::Tool, Role::User]
            .into_iter()
            .enumerate()
        {
            let text: String = (0..rng.usize(..200))
                .map(|_| *rng.choice(&['a', ' ', '"', '\\', '\n', 'é', '語', '🙂']).unwrap())
                .collect();
            prompt = prompt.with(role, &Text::new(format!("{turn}{text}")));
            let mut body = Vec::new();
            prompt.write_body(7, &mut body);
            let parsed = parse(Api::Chat, &body).expect("a request");
            assert_eq!((&*parsed.model, parsed.max_tokens, parsed.stream), ("m", Some(7), true));
            let job = Job {
                model: "m".into(),
                salt: String::new(),
                prompt: parsed.tokens,
                output: answer.tokens.clone(),
            };
            let (engine, ours) = (job.hashed(16), prompt.job(&answer));
            assert_eq!(ours.hashes, engine.hashes);
            assert_eq!((ours.prompt, ours.output), (engine.prompt, engine.output));
        }
    }

    #[test]
    fn a_very_long_conversation_ends_without_deep_recursion() {
        let dialect = Arc::new(Dialect { model: "m".into(), block_tokens: 16 });
        let text = Text::new("x");
        let mut prompt = Prompt::new(&dialect);
        for _ in 0..200_000 {
            prompt = prompt.with(Role::User, &text);
        }
        let shared = prompt.clone();
        drop(prompt);
        assert_eq!(shared.characters(), 200_000);
    }
}
