//! Turns the tokens of a generation into the body of an answer, and lets faults strike in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use super::{
    fault::{Fault, FaultKind, Limit},
    reply::{Reply, Usage},
    runner::Generation,
    scheduler::Progress,
    tokens::word,
};

/// A fault cut the answer off.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut off by a fault")]
pub struct Cut;

/// The events of a streamed answer.
pub struct Events {
    reply: Reply,
    generation: Generation,
    /// The first token, for which the head of the answer waited.
    first: Option<Progress>,
    prompt_tokens: u32,
    fingerprint: u64,
    text: String,
    usage: Usage,
    closed: bool,
}

impl Events {
    /// Waits for the first token.
    pub async fn start(
        reply: Reply,
        mut generation: Generation,
        prompt_tokens: u32,
        fingerprint: u64,
    ) -> Self {
        let first = generation.next().await;
        Self {
            reply,
            generation,
            first,
            prompt_tokens,
            fingerprint,
            text: String::new(),
            usage: Usage { prompt: prompt_tokens, ..Usage::default() },
            closed: false,
        }
    }

    /// One event per token, the opening ones together with the first; then the closing ones.
    async fn next(&mut self) -> Option<Bytes> {
        let progress = match self.first.take() {
            Some(first) => Some(first),
            None => self.generation.next().await,
        };
        let Some(progress) = progress else {
            return (!std::mem::replace(&mut self.closed, true))
                .then(|| self.reply.closing(&self.text, self.usage).into());
        };
        self.usage = usage(self.prompt_tokens, progress);
        let word = word(self.fingerprint, progress.generated.saturating_sub(1));
        self.text.push_str(word);
        let event = self.reply.token(word, &self.text, self.usage);
        Some(match progress.generated {
            1 => (self.reply.opening(self.usage) + &event).into(),
            _ => event.into(),
        })
    }
}

/// The whole text of a generation, once it has ended.
pub async fn whole(
    mut generation: Generation,
    prompt_tokens: u32,
    fingerprint: u64,
) -> (String, Usage) {
    let (mut text, mut counts) =
        (String::new(), Usage { prompt: prompt_tokens, ..Usage::default() });
    while let Some(progress) = generation.next().await {
        counts = usage(prompt_tokens, progress);
        if progress.generated > 0 {
            text.push_str(word(fingerprint, progress.generated - 1));
        }
    }
    (text, counts)
}

fn usage(prompt: u32, progress: Progress) -> Usage {
    Usage { prompt, cached: progress.cached_tokens, generated: progress.generated }
}

/// Where the pieces of a body come from.
pub enum Source {
    /// A stream of events.
    Events(Box<Events>),
    /// A plain answer; `None` once it has been sent.
    Plain(Option<Bytes>),
}

/// A body under a fault.
pub struct Sending {
    source: Source,
    fault: Fault,
    events: u64,
    bytes: u64,
    strike: bool,
    reset: Arc<AtomicBool>,
}

impl Sending {
    /// Sends `source` until `fault` strikes. `reset` tells the connection's owner to reset it.
    pub fn new(source: Source, fault: Fault, reset: Arc<AtomicBool>) -> Self {
        Self { source, fault, events: 0, bytes: 0, strike: false, reset }
    }

    /// The next piece of the body.
    pub async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        let limit = match self.fault.kind {
            FaultKind::None | FaultKind::Slow => None,
            _ => Some(self.fault.limit()),
        };
        if self.strike || limit.is_some_and(|limit| self.reached(limit)) {
            return Some(Err(strike(self.fault.kind, &self.reset).await));
        }
        if self.fault.kind == FaultKind::Slow {
            let delay = self.fault.delay_ms.unwrap_or(100);
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let mut piece = match &mut self.source {
            Source::Events(events) => events.next().await?,
            Source::Plain(body) => body.take()?,
        };
        if let Some(Limit::Bytes(limit)) = limit {
            let left = limit - self.bytes;
            if piece.len() as u64 >= left {
                piece.truncate(left as usize);
                self.strike = true;
            }
        }
        self.events += 1;
        self.bytes += piece.len() as u64;
        Some(Ok(piece))
    }

    fn reached(&self, limit: Limit) -> bool {
        match limit {
            Limit::Head => true,
            Limit::Events(events) => self.events >= events,
            Limit::Bytes(bytes) => self.bytes >= bytes,
        }
    }
}

/// Lets a fault strike; returns only if the connection is to be closed.
pub async fn strike(kind: FaultKind, reset: &AtomicBool) -> Cut {
    // The connection writes what it has while its body is pending.
    tokio::task::yield_now().await;
    match kind {
        FaultKind::Die => std::process::exit(70),
        FaultKind::Stall => std::future::pending().await,
        FaultKind::Reset => reset.store(true, Ordering::Relaxed),
        _ => {}
    }
    Cut
}
