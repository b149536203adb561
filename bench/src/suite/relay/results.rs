//! What was measured.

use std::time::Duration;

use serde::Serialize;

use super::Scenario;
use crate::{
    load::relay::{Answers, Streams},
    machine::{cpu::Used, memory::Memory},
    report::median,
    suite::target::{Carried, Target},
};

/// Processor time per event or request, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Of the whole machine, whatever else it did.
    pub machine_us: f64,
    /// Of client, gateway, backend and the kernel's threads together: the machine without its
    /// neighbours. What a gateway does in the kernel on behalf of a client or a backend cannot be told
    /// from their own work.
    pub parties_us: f64,
    /// Of the gateway's processes alone, in user space and in the kernel.
    pub gateway_us: f64,
}

impl Cost {
    pub(super) fn of(used: Used, events: u64) -> Self {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / events.max(1) as f64;
        Self {
            machine_us: each(used.machine),
            parties_us: each(used.parties),
            gateway_us: each(used.gateway),
        }
    }
}

/// One load on one target in one round.
#[derive(Clone, Debug, Serialize)]
pub struct StreamsRun {
    /// The target.
    pub target: Target,
    /// The round, from 0.
    pub round: usize,
    /// The load.
    pub scenario: Scenario,
    /// What the client saw.
    pub client: Streams,
    /// What it cost.
    pub cost: Cost,
    /// Which engine of the gateway carried the bytes. Known once the streams have ended.
    pub carried: Option<Carried>,
}

/// Short requests on one target in one round.
#[derive(Clone, Debug, Serialize)]
pub struct RequestsRun {
    /// The target.
    pub target: Target,
    /// The round, from 0.
    pub round: usize,
    /// Events of each answer; 0 for one in one piece.
    pub events: u32,
    /// What the client saw.
    pub client: Answers,
    /// What it cost.
    pub cost: Cost,
}

/// Memory of one target with many open streams.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRun {
    /// The target.
    pub target: Target,
    /// The round, from 0.
    pub round: usize,
    /// Streams that were open.
    pub open: usize,
    /// Bytes per open stream more than without them. The kernel's part is of the whole machine, so
    /// that of `direct` is to be taken off.
    pub each: Memory,
    /// Why not all could be opened.
    pub failure: Option<String>,
}

/// What a target itself does while many streams are open.
#[derive(Clone, Debug, Serialize)]
pub struct OpenRun {
    /// The target.
    pub target: Target,
    /// The round, from 0.
    pub round: usize,
    /// What the client saw.
    pub client: Streams,
    /// Of the target's processes, in milliseconds per second: in user space, and in the kernel.
    pub user_ms: f64,
    /// See `user_ms`.
    pub system_ms: f64,
    /// Times per second that one of their threads waited.
    pub waits: f64,
    /// What everything cost.
    pub cost: Cost,
    /// Which engine of the gateway carried the bytes.
    pub carried: Option<Carried>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Open streams.
    pub streams: Vec<StreamsRun>,
    /// Short requests.
    pub requests: Vec<RequestsRun>,
    /// Memory.
    pub memory: Vec<MemoryRun>,
    /// Many open streams.
    pub open: Vec<OpenRun>,
    /// What could not be measured, and why.
    pub errors: Vec<String>,
}

impl Results {
    /// The median over the rounds of some figure of `target` under `scenario`; `None` if it was not
    /// measured.
    pub fn streams_median(
        &self,
        target: Target,
        scenario: Scenario,
        figure: impl Fn(&StreamsRun) -> f64,
    ) -> Option<f64> {
        let runs: Vec<f64> = self
            .streams
            .iter()
            .filter(|run| run.target == target && run.scenario == scenario)
            .map(figure)
            .collect();
        (!runs.is_empty()).then(|| median(runs))
    }

    /// The median over the rounds of some figure of short requests that are answered with `events`
    /// events; `None` if it was not measured.
    pub fn requests_median(
        &self,
        target: Target,
        events: u32,
        figure: impl Fn(&RequestsRun) -> f64,
    ) -> Option<f64> {
        let runs: Vec<f64> = self
            .requests
            .iter()
            .filter(|run| run.target == target && run.events == events)
            .map(figure)
            .collect();
        (!runs.is_empty()).then(|| median(runs))
    }

    /// The median over the rounds of the memory of `target` per open stream.
    pub fn memory_median(&self, target: Target, figure: impl Fn(&Memory) -> f64) -> Option<f64> {
        let runs: Vec<f64> = self
            .memory
            .iter()
            .filter(|run| run.target == target)
            .map(|run| figure(&run.each))
            .collect();
        (!runs.is_empty()).then(|| median(runs))
    }

    /// What went wrong, one line each.
    pub fn failures(&self) -> Vec<String> {
        let streams = self.streams.iter().filter_map(|run| {
            let why = run.client.first_failure.as_ref()?;
            Some(format!("{}, {}: {why}", run.target.name(), run.scenario.title()))
        });
        let requests = self.requests.iter().filter_map(|run| {
            Some(format!("{}, requests: {}", run.target.name(), run.client.first_failure.as_ref()?))
        });
        let memory = self.memory.iter().filter_map(|run| {
            Some(format!("{}, open streams: {}", run.target.name(), run.failure.as_ref()?))
        });
        let open = self.open.iter().filter_map(|run| {
            let why = run.client.first_failure.as_ref()?;
            Some(format!("{}, many streams: {why}", run.target.name()))
        });
        streams
            .chain(requests)
            .chain(memory)
            .chain(open)
            .chain(self.errors.iter().cloned())
            .collect()
    }
}
