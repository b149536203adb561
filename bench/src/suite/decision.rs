//! What it costs to decide where a request goes, beside parsing the same body into a tree.
//!
//! Measured is what the gateway does per request: scan the body in pieces of the size that it reads,
//! make the key, choose among seven instances and give the ticket back. Everything is in the
//! processor's caches, for the parser as well.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use router::{
    config::{self, Config},
    fleet::{Counters, Fleet, Variant},
    metrics::Metrics,
    net::READ_BUFFER_BYTES,
    prefix::{self, Api, KeyParts, Scanner},
    routing,
};
use serde::Serialize;

use super::bodies::Shape;
use crate::report::{Table, median, number};

/// The prefix lengths that are measured.
pub const PREFIX_LENGTHS: [usize; 3] = [1_024, 4_096, 65_536];
/// The sizes of bodies that are measured, in bytes.
pub const BODY_SIZES: [usize; 5] = [4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20];
/// Instances to choose from.
const INSTANCES: usize = 7;

/// One body, decided and parsed.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// `openai` or `invoke`.
    pub api: &'static str,
    /// What the body is like.
    pub shape: Shape,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Units of the prefix.
    pub prefix_length: usize,
    /// Microseconds of a decision.
    pub decision_us: Timing,
    /// Microseconds of `serde_json::from_slice::<Value>`, the tree's destruction included.
    pub parse_us: Timing,
}

/// Microseconds of an operation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timing {
    /// The best of many batches.
    pub min: f64,
    /// The middle one.
    pub median: f64,
}

impl Case {
    /// How many times cheaper the decision is.
    pub fn ratio(&self) -> f64 {
        self.parse_us.median / self.decision_us.median
    }
}

/// Measures all sizes and lengths, each for `time`.
///
/// # Errors
/// When the gateway refuses the fleet.
pub fn run(time: Duration) -> anyhow::Result<Vec<Case>> {
    let variant = variant()?;
    let mut cases = Vec::new();
    for (shape, body_bytes) in
        Shape::ALL.into_iter().flat_map(|shape| BODY_SIZES.map(|bytes| (shape, bytes)))
    {
        let body = shape.body(body_bytes);
        let parse_us = timing(time, || {
            let value: serde_json::Value = serde_json::from_slice(&body).expect("made as JSON");
            black_box(value);
        });
        for (name, api) in [("openai", Api::ChatCompletions), ("invoke", Api::Invocations)] {
            // Bytes are bytes: the shape makes no difference to the Invoke API.
            if api == Api::Invocations && shape != Shape::Long {
                continue;
            }
            for prefix_length in PREFIX_LENGTHS {
                let mut rng = fastrand::Rng::with_seed(7);
                let decision_us =
                    timing(time, || decide(&variant, api, prefix_length, &body, &mut rng));
                let case =
                    Case { api: name, shape, body_bytes, prefix_length, decision_us, parse_us };
                cases.push(case);
            }
        }
    }
    Ok(cases)
}

/// One decision.
pub(super) fn decide(
    variant: &Variant,
    api: Api,
    prefix_length: usize,
    body: &[u8],
    rng: &mut fastrand::Rng,
) {
    let mut scanner = Scanner::new(api, prefix_length);
    for piece in black_box(body).chunks(READ_BUFFER_BYTES) {
        if scanner.feed(piece) {
            break;
        }
    }
    let prefix = scanner.finish();
    let key = prefix::key(&KeyParts {
        endpoint: "default",
        variant: &variant.name,
        tenant: prefix.cache_key.as_deref(),
        model: prefix.model.as_deref(),
        kind: prefix.kind,
        prefix: &prefix.text,
    });
    let choice = routing::choose(variant, Some(key), &[], rng).expect("instances that serve");
    black_box(&choice);
}

fn variant() -> anyhow::Result<Arc<Variant>> {
    let backends = (1..=INSTANCES).map(|n| format!("http://10.0.0.{n}:8000"));
    let mut toml =
        String::from("[[endpoint]]\nname = \"default\"\n[[endpoint.variant]]\nname = \"v\"\n");
    for url in backends {
        toml += &format!("[[endpoint.variant.instance]]\nurl = \"{url}\"\n");
    }
    let config: Config = config::parse("bench.toml", &toml)?;
    let fleet = Fleet::build(&Arc::new(config), None, &Counters::heap(64), &Metrics::new())?;
    let endpoint = fleet.default_endpoint().expect("the one endpoint");
    Ok(endpoint.variants[0].clone())
}

/// Runs `work` in batches for about `time`.
fn timing(time: Duration, mut work: impl FnMut()) -> Timing {
    let start = Instant::now();
    work();
    let once = start.elapsed().max(Duration::from_nanos(50));
    // Batches of about a millisecond, so that the clock costs nothing.
    let batch = (Duration::from_millis(1).as_nanos() / once.as_nanos()).clamp(1, 100_000) as u32;
    let mut batches = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || batches.len() < 5 {
        let begin = Instant::now();
        for _ in 0..batch {
            work();
        }
        batches.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(batch));
    }
    let min = batches.iter().copied().fold(f64::INFINITY, f64::min);
    Timing { min, median: median(batches) }
}

/// The table of all cases.
pub fn table(cases: &[Case]) -> Table {
    let head =
        ["API", "body", "prefix", "decision median", "min", "parse median", "parse / decision"];
    let mut table = Table::new("Deciding, and parsing the same body (us)", head);
    for case in cases {
        table.row([
            format!("{}, {}", case.api, case.shape.name()),
            format!("{} KiB", case.body_bytes >> 10),
            number(case.prefix_length as f64),
            number(case.decision_us.median),
            number(case.decision_us.min),
            number(case.parse_us.median),
            number(case.ratio()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_can_be_made() {
        let variant = variant().unwrap();
        decide(
            &variant,
            Api::ChatCompletions,
            1024,
            &Shape::Long.body(4096),
            &mut fastrand::Rng::new(),
        );
    }
}
