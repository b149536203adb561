//! What `explain` prints.

use std::fmt::Write;

use serde::Serialize;

use super::input::Request;
use crate::{
    config::Strategy,
    fleet::{Endpoint, Variant},
    prefix::{Api, MEDIA, Prefix, PrefixKind},
};

/// The answer, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    pub(super) path: String,
    pub(super) api: &'static str,
    pub(super) endpoint: String,
    pub(super) variant: String,
    pub(super) strategy: &'static str,
    pub(super) tenant: Option<Sourced>,
    pub(super) model: Option<Sourced>,
    pub(super) prefix: Option<PrefixReport>,
    /// The prefix key, 16 hexadecimal digits.
    pub(super) key: Option<String>,
    /// Best first.
    pub(super) ranking: Vec<Ranked>,
    pub(super) choice: ChoiceReport,
    /// What is wrong with the request, or was left out of account.
    pub(super) notes: Vec<String>,
}

/// A value and where it came from.
#[derive(Debug, Serialize)]
pub(super) struct Sourced {
    pub(super) value: String,
    pub(super) from: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct PrefixReport {
    /// `text`, `token_ids` or `body`.
    kind: &'static str,
    /// Its length in `unit`.
    pub(super) length: usize,
    unit: &'static str,
    /// The most that the variant takes.
    limit: usize,
    /// The prefix, one entry per piece of text in the request (a message, a content part), and one per
    /// media part, as `[media HASH]`; bytes that are no UTF-8 are shown as U+FFFD.
    pub(super) parts: Vec<String>,
    /// Bytes of the body that had to be read before the choice could be made.
    pub(super) body_bytes_read: usize,
    body_bytes: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Ranked {
    pub(super) instance: String,
    pub(super) score: f64,
    pub(super) weight: f64,
    pub(super) draining: bool,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct ChoiceReport {
    /// `None` when it depends on the load or on chance.
    pub(super) instance: Option<String>,
    pub(super) reason: Option<&'static str>,
    pub(super) why: String,
}

impl Explanation {
    pub(super) fn new(request: &Request, api: Api, endpoint: &Endpoint, variant: &Variant) -> Self {
        Explanation {
            path: request.path.clone(),
            api: api.as_str(),
            endpoint: endpoint.name.clone(),
            variant: variant.name.clone(),
            strategy: Strategy::as_str(variant.routing.strategy),
            tenant: None,
            model: None,
            prefix: None,
            key: None,
            ranking: Vec::new(),
            choice: ChoiceReport::default(),
            notes: Vec::new(),
        }
    }

    /// For people. `full` shows the whole prefix.
    pub(super) fn to_text(&self, full: bool) -> String {
        let mut out = String::new();
        // Writing to memory cannot fail.
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "{name:<9} {value}");
        };
        line("request", &format!("{} ({})", self.path, self.api));
        line(
            "endpoint",
            &format!("{}, variant {}, {}", self.endpoint, self.variant, self.strategy),
        );
        let sourced = |value: &Option<Sourced>| match value {
            Some(Sourced { value, from }) => format!("{value} (from {from})"),
            None => "none".into(),
        };
        line("tenant", &sourced(&self.tenant));
        line("model", &sourced(&self.model));
        if let Some(prefix) = &self.prefix {
            line("prefix", &prefix.summary());
            for shown in prefix.shown(full) {
                line("", &shown);
            }
        }
        line("key", self.key.as_deref().unwrap_or("none"));
        for (place, ranked) in self.ranking.iter().enumerate() {
            let name = if place == 0 { "ranking" } else { "" };
            let draining = if ranked.draining { ", draining" } else { "" };
            let score = ranked.score;
            line(
                name,
                &format!(
                    "{}. {}  score {score:.4}, weight {}{draining}",
                    place + 1,
                    ranked.instance,
                    ranked.weight
                ),
            );
        }
        let choice = &self.choice;
        let reason = choice.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let instance = choice.instance.as_deref().unwrap_or("any instance");
        line("choice", &format!("{instance}{reason}"));
        line("", &choice.why);
        for note in &self.notes {
            line("note", note);
        }
        out
    }
}

impl Sourced {
    pub(super) fn new(value: Option<&[u8]>, from: &'static str) -> Option<Sourced> {
        value.map(|value| Sourced { value: String::from_utf8_lossy(value).into_owned(), from })
    }
}

impl PrefixReport {
    pub(super) fn new(prefix: &Prefix, limit: usize, read: usize, body_bytes: usize) -> Self {
        let (kind, unit) = match prefix.kind {
            PrefixKind::Text => ("text", "characters"),
            PrefixKind::TokenIds => ("token_ids", "token ids"),
            PrefixKind::Body => ("body", "bytes"),
        };
        let lossy = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let parts = match prefix.kind {
            PrefixKind::Body => vec![lossy(&prefix.text)],
            // 0xff is in no text, so the scanner puts it between pieces.
            _ => prefix.text.split(|byte| *byte == 0xff).map(piece).collect(),
        };
        Self { kind, length: prefix.units, unit, limit, parts, body_bytes_read: read, body_bytes }
    }

    fn summary(&self) -> String {
        let what = match self.kind {
            "text" if self.parts.iter().any(|part| part.starts_with("[media ")) => {
                "of the prompt, media parts counted as 4096 each"
            }
            "text" => "of the prompt's text",
            "token_ids" => "of the prompt",
            _ => "from the start of the body",
        };
        format!(
            "{} {} {what} (at most {}); decided after {} of {} body bytes",
            self.length, self.unit, self.limit, self.body_bytes_read, self.body_bytes
        )
    }

    /// A line for each part, in quotes; long ones by their ends, unless in `full`.
    fn shown(&self, full: bool) -> Vec<String> {
        const PARTS: usize = 6;
        if full || self.parts.len() <= PARTS {
            return self.parts.iter().map(|part| shown(part, full)).collect();
        }
        let (first, last) = (&self.parts[..PARTS - 1], self.parts.last());
        let left_out = format!("... {} more ...", self.parts.len() - PARTS);
        let ends = first.iter().chain(last).map(|part| shown(part, full));
        let mut lines: Vec<_> = ends.collect();
        lines.insert(PARTS - 1, left_out);
        lines
    }
}

/// A piece of the prompt, which begins with a hash when it is media.
fn piece(part: &[u8]) -> String {
    let text = |part| String::from_utf8_lossy(part).into_owned();
    match part {
        [MEDIA, rest @ ..] => {
            let (hash, rest) = rest.split_at(rest.len().min(32));
            format!("[media {}]{}", text(hash), text(rest))
        }
        part => text(part),
    }
}

fn shown(part: &str, full: bool) -> String {
    const END: usize = 60;
    let count = part.chars().count();
    if full || count <= 3 * END {
        return quoted(part);
    }
    let at = |chars: usize| part.char_indices().nth(chars).map_or(part.len(), |(at, _)| at);
    let (first, last) = (&part[..at(END)], &part[at(count - END)..]);
    format!("{} ... {} characters ... {}", quoted(first), count - 2 * END, quoted(last))
}

/// In quotes. The scanner keeps JSON's escapes; what it does not escape must not reach a terminal.
fn quoted(part: &str) -> String {
    let mut out = String::from('"');
    for c in part.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out.push('"');
    out
}
