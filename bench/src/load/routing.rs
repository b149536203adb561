//! Conversations through a gateway, and what the choice of the instance is worth to them.
//!
//! Many sessions share a few system prompts, some of which are much more popular than others
//! (Zipf); each session has several turns and sends its history along. What counts is how much of
//! the prompts was in the instances' caches, and how soon the first token came.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::LocalSet,
};

use super::wire::{self, Body};
use crate::{report::Quantiles, simulator::workload::Popularity};

/// Who talks, and how much.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Workload {
    /// Different system prompts.
    #[arg(long, default_value_t = 60)]
    pub groups: usize,
    /// Exponent of their popularity; 0 makes all equal.
    #[arg(long, default_value_t = 1.0)]
    pub zipf: f64,
    /// Characters of a system prompt.
    #[arg(long, default_value_t = 6_000)]
    pub system_chars: usize,
    /// Characters of what a user says in a turn.
    #[arg(long, default_value_t = 400)]
    pub user_chars: usize,
    /// Turns of a session.
    #[arg(long, default_value_t = 4)]
    pub turns: u32,
    /// Sessions in total.
    #[arg(long, default_value_t = 400)]
    pub sessions: usize,
    /// Sessions at the same time.
    #[arg(long, default_value_t = 40)]
    pub concurrency: usize,
    /// Milliseconds that a user thinks between turns.
    #[arg(long, default_value_t = 100)]
    pub think_ms: u64,
    /// Tokens of an answer.
    #[arg(long, default_value_t = 32)]
    pub answer_tokens: u32,
    /// Seed of all that is random, so that every strategy meets the same sessions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What came of a workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Requests that were answered in full.
    pub requests: u64,
    /// Requests that were not.
    pub failures: u64,
    /// Why the first of them was not.
    pub first_failure: Option<String>,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Of those, found in a cache.
    pub cached_tokens: u64,
    /// Milliseconds from sending a request to the first token.
    pub first_token_ms: Quantiles,
    /// Milliseconds from sending a request to the end of its answer.
    pub total_ms: Quantiles,
    /// Requests per instance.
    pub instances: BTreeMap<String, u64>,
}

impl Outcome {
    /// Share of the prompt tokens that were in a cache, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// A text of `chars` characters that starts differently for each seed.
fn text(seed: u64, chars: usize) -> String {
    const WORDS: [&str; 12] = [
        "the", "model", "answers", "every", "question", "with", "care", "and", "cites", "its",
        "source", "always",
    ];
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = format!("[{seed:x}]");
    while text.len() < chars {
        text.push(' ');
        text.push_str(WORDS[rng.usize(..WORDS.len())]);
    }
    text.truncate(chars);
    text
}

#[derive(Default)]
struct Record {
    outcome: RefCell<Outcome>,
    first_token: RefCell<Vec<f64>>,
    total: RefCell<Vec<f64>>,
    next_session: Cell<usize>,
}

/// Runs the workload against `address`.
///
/// # Errors
/// When there is no runtime to be had.
pub fn run(address: SocketAddr, workload: &Workload) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let record = Rc::new(Record::default());
    let start = Instant::now();
    LocalSet::new().block_on(&runtime, async {
        let tasks: Vec<_> = (0..workload.concurrency)
            .map(|_| {
                let (record, workload) = (record.clone(), workload.clone());
                tokio::task::spawn_local(async move {
                    loop {
                        let number = record.next_session.get();
                        if number >= workload.sessions {
                            return;
                        }
                        record.next_session.set(number + 1);
                        if let Err(error) = session(address, &workload, number, &record).await {
                            let mut outcome = record.outcome.borrow_mut();
                            outcome.failures += 1;
                            outcome.first_failure.get_or_insert_with(|| error.to_string());
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        io::Result::Ok(())
    })?;
    let mut outcome = record.outcome.take();
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome.first_token_ms = Quantiles::of(&mut record.first_token.borrow_mut());
    outcome.total_ms = Quantiles::of(&mut record.total.borrow_mut());
    Ok(outcome)
}

async fn session(
    address: SocketAddr,
    workload: &Workload,
    number: usize,
    record: &Record,
) -> io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(workload.seed.wrapping_mul(1_000_003) + number as u64);
    let group = Popularity::new(workload.groups, workload.zipf).draw(&mut rng);
    let system = text(group as u64, workload.system_chars);
    let mut messages = vec![json!({"role": "system", "content": system})];
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    for turn in 0..workload.turns {
        if turn > 0 {
            tokio::time::sleep(Duration::from_millis(workload.think_ms)).await;
        }
        let said = text(rng.u64(..), workload.user_chars);
        messages.push(json!({"role": "user", "content": said}));
        let answer = ask(address, workload, &mut stream, &messages, record).await?;
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    Ok(())
}

/// Sends the conversation so far and returns the answer.
async fn ask(
    address: SocketAddr,
    workload: &Workload,
    stream: &mut TcpStream,
    messages: &[Value],
    record: &Record,
) -> io::Result<String> {
    let body = json!({
        "messages": messages,
        "model": "sim-model",
        "max_tokens": workload.answer_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
    .to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let start = Instant::now();
    stream.write_all(request.as_bytes()).await?;
    let (mut buffer, mut payload, mut body) = (Vec::with_capacity(16 << 10), Vec::new(), None);
    let (mut first_token, mut instance) = (None, String::new());
    while body != Some(Body::Done) {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if body.is_none() {
            let Some(head) = wire::head(&buffer)? else { continue };
            if head.status != 200 {
                return Err(io::Error::other(format!("status {}", head.status)));
            }
            instance = header(&buffer[..head.len], "x-sim-name").unwrap_or_default();
            buffer.drain(..head.len);
            body = Some(head.body);
        }
        if let Some(body) = &mut body {
            let used = body.feed(&buffer, |part| {
                payload.extend_from_slice(part);
                Ok(())
            })?;
            buffer.drain(..used);
            if !payload.is_empty() {
                first_token.get_or_insert_with(|| start.elapsed());
            }
        }
    }
    let (answer, prompt, cached) = summary(&String::from_utf8_lossy(&payload));
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    record.first_token.borrow_mut().push(millis(first_token.unwrap_or_default()));
    record.total.borrow_mut().push(millis(start.elapsed()));
    let mut outcome = record.outcome.borrow_mut();
    outcome.requests += 1;
    outcome.prompt_tokens += prompt;
    outcome.cached_tokens += cached;
    *outcome.instances.entry(instance).or_default() += 1;
    Ok(answer)
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// The text of a streamed answer, and the prompt's tokens and cached tokens that it reports.
fn summary(events: &str) -> (String, u64, u64) {
    let (mut answer, mut prompt, mut cached) = (String::new(), 0, 0);
    for data in events.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(data) else { continue };
        answer += event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        let usage = &event["usage"];
        if usage.is_object() {
            prompt = usage["prompt_tokens"].as_u64().unwrap_or(0);
            cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        }
    }
    (answer, prompt, cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_put_together() {
        let events = "data: {\"choices\":[{\"delta\":{\"content\":\"the \"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"sun \"}}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\
            \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
        assert_eq!(summary(events), ("the sun ".into(), 9, 4));
    }
}
