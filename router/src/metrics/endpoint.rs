//! Handles of one endpoint.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec};

use super::{families::Families, labelled::ByLabel};

/// Why a decision may be made with less than a body might have told, as the scanner names it.
const SHORTFALLS: &[&str] =
    &["decision_bytes", "unknown_coding", "corrupt_coding", "expansion", "not_json"];

/// What may become of a copy for a shadow variant.
const COPIES: &[&str] = &["answered", "failed", "too_large", "too_many"];

/// What is counted per endpoint. Kept for the life of the process: the configuration has few.
#[derive(Debug)]
pub struct EndpointMetrics {
    name: String,
    errors: IntCounterVec,
    shortfalls: ByLabel,
    copies: ByLabel,
    decision: Histogram,
    added: Histogram,
}

impl EndpointMetrics {
    pub(super) fn new(families: &Families, name: &str) -> EndpointMetrics {
        EndpointMetrics {
            name: name.to_owned(),
            errors: families.errors.clone(),
            shortfalls: ByLabel::new(&families.shortfalls, &[name], SHORTFALLS),
            copies: ByLabel::new(&families.copies, &[name], COPIES),
            decision: families.decision.with_label_values(&[name]),
            added: families.added.with_label_values(&[name]),
        }
    }

    /// Counts an error reply that the gateway made. `reason` is the slug in `x-atalho-error`.
    pub fn error(&self, status: u16, reason: &'static str) {
        super::families::count_error(&self.errors, &self.name, status, reason);
    }

    /// Counts a decision that was made with less than the body might have told.
    pub fn shortfall(&self, why: &'static str) {
        self.shortfalls.inc(why);
    }

    /// Counts a copy for a shadow variant, or one that was not made.
    pub fn copied(&self, outcome: &'static str) {
        self.copies.inc(outcome);
    }

    /// Time spent on choosing an instance, without waiting for the client's bytes.
    pub fn decision(&self, spent: Duration) {
        self.decision.observe(spent.as_secs_f64());
    }

    /// Time the gateway added, on the way to the instance and back together.
    pub fn added(&self, spent: Duration) {
        self.added.observe(spent.as_secs_f64());
    }
}
