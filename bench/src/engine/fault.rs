//! What can be made to go wrong, for tests.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// The kind of failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum FaultKind {
    /// All is well.
    #[default]
    None,
    /// The process exits, without a word to anyone.
    Die,
    /// Nothing more is sent; the connection stays open.
    Stall,
    /// The connection is reset.
    Reset,
    /// The connection is closed in the middle of the answer.
    Close,
    /// Every event waits `delay_ms` before it is sent.
    Slow,
    /// The request is answered with `status` at once.
    Error500,
    /// `/health` and `/ping` answer 503; requests are served.
    Unhealthy,
}

/// A failure and when it strikes. Only inference requests are concerned, not models or metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Faults (also at run time: POST /sim/fault)")]
pub struct Fault {
    /// What goes wrong.
    #[arg(long = "fault", value_enum, default_value_t = FaultKind::None)]
    pub kind: FaultKind,
    /// Strike after this many events of the answer (0: before its head).
    #[arg(long = "fault-after-tokens")]
    pub after_tokens: Option<u64>,
    /// Strike after this many bytes of the answer's body, even inside an event.
    #[arg(long = "fault-after-bytes")]
    pub after_bytes: Option<u64>,
    /// Strike this many requests, then be well again. Without it, every request.
    #[arg(long = "fault-times")]
    pub times: Option<u64>,
    /// For `slow`: milliseconds before each event [default: 100].
    #[arg(long = "fault-delay-ms")]
    pub delay_ms: Option<u64>,
    /// For `error500`: the status [default: 500].
    #[arg(long = "fault-status", value_parser = clap::value_parser!(u16).range(400..600))]
    pub status: Option<u16>,
}

/// How far an answer may go before a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Before the head of the answer.
    Head,
    /// After so many events.
    Events(u64),
    /// After so many bytes of the body.
    Bytes(u64),
}

impl Fault {
    /// Where the fault strikes.
    pub fn limit(&self) -> Limit {
        match (self.after_bytes, self.after_tokens) {
            (Some(bytes), _) => Limit::Bytes(bytes),
            (None, None | Some(0)) => Limit::Head,
            (None, Some(events)) => Limit::Events(events),
        }
    }
}

/// The fault in force.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Fault>);

impl Faults {
    /// Starts with `fault` in force.
    pub fn new(fault: Fault) -> Self {
        Self(Mutex::new(fault))
    }

    /// Puts `fault` in force for the requests that come.
    pub fn set(&self, fault: Fault) {
        *self.lock() = fault;
    }

    /// What is in force, without using it up.
    pub fn current(&self) -> Fault {
        *self.lock()
    }

    /// The fault for one request; counts against `times`.
    pub fn take(&self) -> Fault {
        let mut fault = self.lock();
        if matches!(fault.kind, FaultKind::None | FaultKind::Unhealthy) {
            return Fault::default();
        }
        let taken = *fault;
        if let Some(times) = &mut fault.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                *fault = Fault::default();
            }
        }
        taken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Fault> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_as_often_as_asked() {
        let fault: Fault =
            serde_json::from_str(r#"{"kind": "reset", "after_tokens": 3, "times": 2}"#).unwrap();
        let faults = Faults::new(fault);
        assert_eq!(faults.take().kind, FaultKind::Reset);
        assert_eq!(faults.take().limit(), Limit::Events(3));
        assert_eq!(faults.take().kind, FaultKind::None);
    }

    #[test]
    fn an_unknown_field_is_refused() {
        assert!(serde_json::from_str::<Fault>(r#"{"kind": "die", "after": 3}"#).is_err());
    }
}
