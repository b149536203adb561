//! Handles of one engine: what carries body bytes.

use std::sync::Mutex;

use prometheus::{IntCounter, IntGaugeVec};

use super::{families::Families, labelled::ByLabel, lock};

/// Which way a body goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the instance.
    Request,
    /// From the instance to the client.
    Response,
}

impl Direction {
    const ALL: [Direction; 2] = [Direction::Request, Direction::Response];

    /// As in the `direction` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Request => "request",
            Direction::Response => "response",
        }
    }
}

/// Why an engine is not used, as a slug of this program: `disabled`, `no_permission`,
/// `self_test_failed`, ...
pub type Unavailable = &'static str;

/// What is counted per engine.
#[derive(Debug)]
pub struct EngineMetrics {
    name: &'static str,
    bytes: [IntCounter; 2],
    handovers: [IntCounter; 2],
    fallbacks: ByLabel,
    available: IntGaugeVec,
    reason: Mutex<&'static str>,
}

impl EngineMetrics {
    pub(super) fn new(families: &Families, name: &'static str) -> EngineMetrics {
        let by_direction = |family: &prometheus::IntCounterVec| {
            Direction::ALL.map(|direction| family.with_label_values(&[name, direction.as_str()]))
        };
        EngineMetrics {
            name,
            bytes: by_direction(&families.body_bytes),
            handovers: by_direction(&families.handovers),
            // Their slugs belong to the engines; a fall-back is no hot path.
            fallbacks: ByLabel::new(&families.fallbacks, &[name], &[]),
            available: families.engine_available.clone(),
            reason: Mutex::new(""),
        }
    }

    /// The engine's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Counts body bytes carried. Call it per body or per hand-over, not per read: the counter is
    /// shared between threads.
    pub fn carried(&self, direction: Direction, bytes: u64) {
        self.bytes[direction as usize].inc_by(bytes);
    }

    /// A body's rest was handed over to this engine.
    pub fn handed_over(&self, direction: Direction) {
        self.handovers[direction as usize].inc();
    }

    /// Says beforehand for which reasons this engine may fall back: all are shown from the start, so
    /// that a rate or an alert has something to look at before the first time.
    pub fn expect_fallbacks(&self, reasons: impl IntoIterator<Item = &'static str>) {
        for reason in reasons {
            self.fallbacks.show(reason);
        }
    }

    /// This engine handed a body back, or did not take it. `reason` is a slug of this program.
    pub fn fell_back(&self, reason: &'static str) {
        self.fallbacks.inc(reason);
    }

    /// Says whether the engine may be used, and if not, why.
    pub fn available(&self, available: Result<(), Unavailable>) {
        let (value, reason) = match available {
            Ok(()) => (1, "ok"),
            Err(reason) => (0, reason),
        };
        let mut last = lock(&self.reason);
        if *last != reason {
            // One series per engine: the old reason would otherwise stay beside the new one.
            let _ = self.available.remove_label_values(&[self.name, *last]);
            *last = reason;
        }
        self.available.with_label_values(&[self.name, reason]).set(value);
    }

    /// Why it may be used (`ok`) or not; empty while nobody has said.
    pub fn reason(&self) -> &'static str {
        *lock(&self.reason)
    }
}
