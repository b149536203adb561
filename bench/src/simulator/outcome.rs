//! What came of a run.

use std::ops::Range;

use serde::Serialize;

use super::{Micros, SECOND};
use crate::report::Quantiles;

/// One request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was asked.
    pub arrived: Micros,
    /// When its first token came.
    pub first_token: Option<Micros>,
    /// When it ended, in whatever way.
    pub ended: Micros,
    /// Whether it was answered in full.
    pub finished: bool,
    /// The host that it was sent to.
    pub host: Option<u32>,
    /// Whether that was not the rule's first choice, since the first choice was busy.
    pub overflow: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of those, found in the host's cache.
    pub cached_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// The group of its session: those begin alike.
    pub group: u64,
    /// Its session.
    pub session: u64,
}

/// All requests of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// Hosts that there were at any time.
    pub hosts: usize,
    /// When the last request ended.
    pub end: Micros,
    /// The requests in the order in which they were asked.
    pub records: Vec<Record>,
}

/// The figures of a run, or of a part of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The policy's name.
    pub policy: String,
    /// Requests that were answered in full.
    pub requests: u64,
    /// Requests that were not.
    pub failures: u64,
    /// Share of prompt tokens that were in a cache, 0 to 1.
    pub hit_rate: f64,
    /// Milliseconds to the first token.
    pub first_token_ms: Quantiles,
    /// Milliseconds to the last token.
    pub total_ms: Quantiles,
    /// Requests answered per second, to the end of the last.
    pub requests_per_second: f64,
    /// Tokens generated per second, to the end of the last.
    pub tokens_per_second: f64,
    /// Share of the requests that each host got.
    pub shares: Vec<f64>,
    /// Share of the requests that were not sent to the rule's first choice, since that was busy.
    pub overflow: f64,
}

impl Outcome {
    /// Of the whole run.
    pub fn summary(&self) -> Summary {
        self.summary_of(0..Micros::MAX)
    }

    /// Of the requests that were asked in a span of time.
    pub fn summary_of(&self, span: Range<Micros>) -> Summary {
        let mut summary = Summary {
            policy: self.policy.clone(),
            shares: vec![0.0; self.hosts],
            ..Summary::default()
        };
        let (mut prompt, mut cached, mut output) = (0_u64, 0_u64, 0_u64);
        let (mut first, mut total) = (Vec::new(), Vec::new());
        let (mut sent, mut overflow, mut last) = (0_u64, 0_u64, 0);
        let millis = |from: Micros, to: Micros| (to - from) as f64 / 1e3;
        for record in self.records.iter().filter(|record| span.contains(&record.arrived)) {
            if let Some(host) = record.host {
                summary.shares[host as usize] += 1.0;
                sent += 1;
                overflow += u64::from(record.overflow);
            }
            last = last.max(record.ended);
            if let Some(moment) = record.first_token {
                first.push(millis(record.arrived, moment));
                prompt += u64::from(record.prompt_tokens);
                cached += u64::from(record.cached_tokens);
            }
            if record.finished {
                summary.requests += 1;
                output += u64::from(record.output_tokens);
                total.push(millis(record.arrived, record.ended));
            } else {
                summary.failures += 1;
            }
        }
        let of = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let seconds = (last.saturating_sub(span.start).max(1)) as f64 / SECOND as f64;
        summary.hit_rate = of(cached, prompt);
        summary.overflow = of(overflow, sent);
        summary.requests_per_second = summary.requests as f64 / seconds;
        summary.tokens_per_second = output as f64 / seconds;
        summary.first_token_ms = Quantiles::of(&mut first);
        summary.total_ms = Quantiles::of(&mut total);
        for share in &mut summary.shares {
            *share /= sent.max(1) as f64;
        }
        summary
    }
}
