//! What it costs to pass through a gateway: time, processor, memory.
//!
//! Every target runs alone, freshly started, on loopback or between hosts; the targets take turns
//! within a round, so that what the machine does meanwhile hits all of them. Figures are medians over the rounds.

use std::{cell::RefCell, net::SocketAddr, path::Path, time::Duration};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;

use super::target::{Carried, Programs, Running, Target};
use crate::{
    load::relay::{self, Answers, Load, Requests, Streams},
    machine::{
        cpu::{Sample, Use, Used},
        hosts::Hosts,
        memory::Memory,
    },
    report::{Table, median, number},
};

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which targets.
    pub targets: Vec<Target>,
    /// Times that every target has its turn.
    pub rounds: usize,
    /// Which loads with open streams.
    pub scenarios: Vec<Scenario>,
    /// Events of the answers to short requests: what a hand-over costs, and when it is earned back. 0 for an
    /// answer in one piece.
    pub answers: Vec<u32>,
    /// How long each load is measured.
    pub seconds: Duration,
    /// Streams that are open when memory is looked at.
    pub held: usize,
    /// Streams that are open while the target's own processor time is looked at.
    pub open: usize,
}

/// Between two events of each of the streams that [`Options::open`] asks for.
const OPEN_GAP: Duration = Duration::from_secs(2);

/// A load with open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "kebab-case")]
pub enum Scenario {
    /// 100 streams, an event of 200 bytes every 10 ms.
    Paced100,
    /// 1,000 streams, an event of 200 bytes every 20 ms.
    Paced1000,
    /// 64 streams, a chunk of 16 KiB every 4 ms: bulk at a pace that everyone keeps up with.
    Bulk,
    /// 8 streams of chunks of 16 KiB, as fast as they go.
    Flood,
    /// The same with a content length.
    FloodLength,
}

impl Scenario {
    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Paced100 => "100 streams, a chunk of 200 bytes every 10 ms",
            Self::Paced1000 => "1,000 streams, a chunk of 200 bytes every 20 ms",
            Self::Bulk => "64 streams, a chunk of 16 KiB every 4 ms",
            Self::Flood => "8 streams of 16 KiB chunks, flat out",
            Self::FloodLength => "8 streams of 16 KiB writes with a content length, flat out",
        }
    }

    /// Whether it asks how much goes through, rather than how quickly.
    pub fn is_flood(self) -> bool {
        matches!(self, Self::Flood | Self::FloodLength)
    }

    fn load(self, seconds: Duration) -> Load {
        let (streams, size, gap_us) = match self {
            Self::Paced100 => (100, 200, 10_000),
            Self::Paced1000 => (1_000, 200, 20_000),
            Self::Bulk => (64, 16 << 10, 4_000),
            Self::Flood | Self::FloodLength => (8, 16 << 10, 0),
        };
        let chunked = self != Self::FloodLength;
        let warm_up = Duration::from_millis(500);
        Load { streams, size, gap_us, chunked, warm_up, measure: seconds }
    }
}

/// Processor time per event or request, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Of the whole machine, whatever else it did.
    pub machine_us: f64,
    /// Of client, gateway, backend and the kernel's threads.
    pub own_us: f64,
}

impl Cost {
    fn of(used: Used, events: u64) -> Self {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / events.max(1) as f64;
        Self { machine_us: each(used.machine), own_us: each(used.own) }
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

/// Measures; says on standard error how far it is.
pub fn run(
    programs: &Programs,
    hosts: Option<&Hosts>,
    options: &Options,
    directory: &Path,
) -> Results {
    let mut results = Results::default();
    for round in 0..options.rounds {
        for &target in &options.targets {
            eprintln!("relay: round {} of {}, {}", round + 1, options.rounds, target.name());
            // One that does not work here does not take the others with it.
            let place = Place { programs, hosts, directory };
            if let Err(error) = measure(&place, options, target, round, &mut results) {
                results.errors.push(format!("{}: {error:#}", target.name()));
            }
        }
    }
    results
}

struct Place<'a> {
    programs: &'a Programs,
    hosts: Option<&'a Hosts>,
    directory: &'a Path,
}

fn measure(
    place: &Place<'_>,
    options: &Options,
    target: Target,
    round: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    let &Place { programs, hosts, directory } = place;
    let (backend, address) = programs.backend(hosts, directory)?;
    let running = target.start(programs, hosts, address, directory)?;
    // Memory first, while the processes are fresh.
    results.memory.push(memory(&running, target, round, options.held)?);
    drop(running);

    let running = target.start(programs, hosts, address, directory)?;
    let mut pids = running.pids()?;
    pids.extend([backend.pid(), std::process::id()]);
    let meter = Meter::new(pids);
    for &scenario in &options.scenarios {
        let load = scenario.load(options.seconds);
        let before = running.carried();
        let client = relay::streams(running.address, load, || meter.begin(), || meter.end())?;
        let cost = Cost::of(meter.used()?, client.events);
        // The gateway counts a stream's bytes once it has seen the client leave.
        std::thread::sleep(Duration::from_millis(200));
        let carried = running.carried().zip(before).map(|(now, before)| now.since(before));
        results.streams.push(StreamsRun { target, round, scenario, client, cost, carried });
    }
    if options.open > 0 {
        results.open.push(open(&running, &meter, options, target, round)?);
    }
    for &events in &options.answers {
        let load = Requests {
            connections: 16,
            gap_us: if events == 0 { 10_000 } else { 0 },
            events,
            warm_up: Duration::from_millis(500),
            measure: options.seconds,
        };
        let client = relay::requests(running.address, load, || meter.begin(), || meter.end())?;
        let cost = Cost::of(meter.used()?, client.answers);
        results.requests.push(RequestsRun { target, round, events, client, cost });
    }
    Ok(())
}

fn open(
    running: &Running,
    meter: &Meter,
    options: &Options,
    target: Target,
    round: usize,
) -> anyhow::Result<OpenRun> {
    let pids = running.pids()?;
    let load = Load {
        streams: options.open,
        size: 200,
        gap_us: OPEN_GAP.as_micros() as u64,
        chunked: true,
        // Until every stream has had an event, and with it what is done once for each.
        warm_up: OPEN_GAP * 2,
        measure: options.seconds,
    };
    let before = running.carried();
    let (begin, end) = (RefCell::new(Use::default()), RefCell::new(Use::default()));
    let begins = || {
        *begin.borrow_mut() = Use::of(&pids);
        meter.begin();
    };
    let ends = || {
        meter.end();
        *end.borrow_mut() = Use::of(&pids);
    };
    let client = relay::streams(running.address, load, begins, ends)?;
    let cost = Cost::of(meter.used()?, client.events);
    std::thread::sleep(Duration::from_secs(1));
    let carried = running.carried().zip(before).map(|(now, before)| now.since(before));
    let used = end.borrow().since(&begin.borrow());
    let per_second = |time: Duration| time.as_secs_f64() * 1e3 / client.seconds;
    Ok(OpenRun {
        target,
        round,
        user_ms: per_second(used.user),
        system_ms: per_second(used.system),
        waits: used.waits as f64 / client.seconds,
        cost,
        carried,
        client,
    })
}

fn memory(
    running: &Running,
    target: Target,
    round: usize,
    count: usize,
) -> anyhow::Result<MemoryRun> {
    // What is made once, at the first request, is no stream's.
    warm_up(running.address)?;
    let pids = running.pids()?;
    let before = Memory::of(&pids)?;
    let after = RefCell::new(None);
    let held = relay::hold(running.address, count, || {
        *after.borrow_mut() = Some(Memory::of(&pids));
    })?;
    let after = after.into_inner().context("the streams were looked at")??;
    Ok(MemoryRun {
        target,
        round,
        open: held.open,
        each: (after - before).each(held.open),
        failure: held.first_failure,
    })
}

fn warm_up(address: SocketAddr) -> std::io::Result<()> {
    let load = Requests {
        connections: 8,
        gap_us: 0,
        events: 0,
        warm_up: Duration::from_millis(200),
        measure: Duration::from_millis(1),
    };
    relay::requests(address, load, || {}, || {}).map(drop)
}

/// Takes samples at the edges of what is measured.
struct Meter {
    pids: Vec<u32>,
    begin: RefCell<Option<std::io::Result<Sample>>>,
    end: RefCell<Option<std::io::Result<Sample>>>,
}

impl Meter {
    fn new(pids: Vec<u32>) -> Self {
        Self { pids, begin: RefCell::default(), end: RefCell::default() }
    }

    fn begin(&self) {
        *self.begin.borrow_mut() = Some(Sample::take(&self.pids));
    }

    fn end(&self) {
        *self.end.borrow_mut() = Some(Sample::take(&self.pids));
    }

    fn used(&self) -> anyhow::Result<Used> {
        let begin = self.begin.take().context("no first sample")??;
        let end = self.end.take().context("no second sample")??;
        Ok(end.since(&begin))
    }
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

    /// The tables, one per load.
    pub fn tables(&self, options: &Options) -> Vec<Table> {
        let targets = &options.targets;
        let mut tables: Vec<Table> = options
            .scenarios
            .iter()
            .map(|scenario| self.streams_table(targets, *scenario))
            .collect();
        tables.extend(options.answers.iter().map(|events| self.requests_table(targets, *events)));
        tables.push(self.memory_table(targets));
        if options.open > 0 {
            tables.push(self.open_table(options));
        }
        tables
    }

    fn streams_table(&self, targets: &[Target], scenario: Scenario) -> Table {
        let rate = if scenario.is_flood() { "writes/s" } else { "chunks/s" };
        let machine = if scenario.is_flood() { "CPU/write" } else { "CPU/chunk" };
        let mut head = vec![""];
        if scenario.is_flood() {
            head.push(rate);
        } else {
            head.extend(["p50", "p99", "p99.9", "first byte p50", rate]);
        }
        head.extend([machine, "of which own", "in the kernel", "failures"]);
        let title = format!("{} (times in us)", scenario.title());
        let mut table = Table::new(title, head);
        for &target in targets {
            let figure = |figure: &dyn Fn(&StreamsRun) -> f64| {
                self.streams_median(target, scenario, figure).map_or("–".into(), number)
            };
            let mut row = vec![target.name().to_owned()];
            if !scenario.is_flood() {
                row.extend([
                    figure(&|run| run.client.transit_us.p50),
                    figure(&|run| run.client.transit_us.p99),
                    figure(&|run| run.client.transit_us.p999),
                    figure(&|run| run.client.open_us.p50),
                ]);
            }
            row.extend([
                figure(&|run| run.client.events as f64 / run.client.seconds),
                figure(&|run| run.cost.machine_us),
                figure(&|run| run.cost.own_us),
            ]);
            let runs: Vec<_> = self
                .streams
                .iter()
                .filter(|run| run.target == target && run.scenario == scenario)
                .collect();
            let shares: Vec<f64> =
                runs.iter().filter_map(|run| Some(run.carried?.kernel_share())).collect();
            row.push(match shares.is_empty() {
                true => String::new(),
                false => format!("{:.0}%", median(shares) * 100.0),
            });
            row.push(runs.iter().map(|run| run.client.failures).sum::<u64>().to_string());
            table.row(row);
        }
        table
    }

    fn requests_table(&self, targets: &[Target], events: u32) -> Table {
        let head = [
            "",
            "first byte p50",
            "p90",
            "p99",
            "requests/s",
            "CPU/request",
            "of which own",
            "failures",
        ];
        let title = match events {
            0 => "Requests of 2 KiB on 16 connections that stay open, every 10 ms (times in us)"
                .into(),
            1 => "The same back to back, answered with one chunk (times in us)".into(),
            _ => format!(
                "The same back to back, answered with {events} chunks, one every {} ms (times in us)",
                Requests::EVENT_GAP_US / 1_000
            ),
        };
        let mut table = Table::new(title, head);
        for &target in targets {
            let runs: Vec<_> = self
                .requests
                .iter()
                .filter(|run| run.target == target && run.events == events)
                .collect();
            let figure = |figure: &dyn Fn(&RequestsRun) -> f64| {
                number(median(runs.iter().map(|run| figure(run))))
            };
            table.row([
                target.name().to_owned(),
                figure(&|run| run.client.first_byte_us.p50),
                figure(&|run| run.client.first_byte_us.p90),
                figure(&|run| run.client.first_byte_us.p99),
                figure(&|run| run.client.answers as f64 / run.client.seconds),
                figure(&|run| run.cost.machine_us),
                figure(&|run| run.cost.own_us),
                runs.iter().map(|run| run.client.failures).sum::<u64>().to_string(),
            ]);
        }
        table
    }

    fn memory_table(&self, targets: &[Target]) -> Table {
        let head =
            ["", "open", "RSS", "PSS", "socket buffers", "kernel slab", "slab without direct's"];
        let title = "Memory per open stream (KiB)";
        let mut table = Table::new(title, head);
        let direct = self.memory_median(Target::Direct, |memory| memory.slab);
        for &target in targets {
            let kib = |figure: &dyn Fn(&Memory) -> f64| {
                self.memory_median(target, |memory| figure(memory) / 1024.0)
            };
            let show = |value: Option<f64>| value.map_or("–".into(), number);
            let slab = kib(&|memory| memory.slab);
            let open =
                self.memory.iter().filter(|run| run.target == target).map(|run| run.open).min();
            table.row([
                target.name().to_owned(),
                open.map_or("–".into(), |open| number(open as f64)),
                show(kib(&|memory| memory.rss)),
                show(kib(&|memory| memory.pss)),
                show(kib(&|memory| memory.tcp)),
                show(slab),
                show(slab.zip(direct).map(|(slab, direct)| slab - direct / 1024.0)),
            ]);
        }
        table
    }

    fn open_table(&self, options: &Options) -> Table {
        let head = [
            "",
            "chunks/s",
            "p50",
            "p99",
            "own user ms/s",
            "own kernel ms/s",
            "waits/s",
            "CPU/chunk of all",
            "in the kernel",
            "failures",
        ];
        let title = format!(
            "{} streams, a chunk of 200 bytes every {} s (times in us if nothing else is said)",
            options.open,
            OPEN_GAP.as_secs()
        );
        let mut table = Table::new(title, head);
        for &target in &options.targets {
            let runs: Vec<_> = self.open.iter().filter(|run| run.target == target).collect();
            let figure = |figure: &dyn Fn(&OpenRun) -> f64| match runs.is_empty() {
                true => "–".into(),
                false => number(median(runs.iter().map(|run| figure(run)))),
            };
            let share = |run: &OpenRun| run.carried.map_or(0.0, |it| it.kernel_share() * 100.0);
            table.row([
                target.name().to_owned(),
                figure(&|run| run.client.events as f64 / run.client.seconds),
                figure(&|run| run.client.transit_us.p50),
                figure(&|run| run.client.transit_us.p99),
                figure(&|run| run.user_ms),
                figure(&|run| run.system_ms),
                figure(&|run| run.waits),
                figure(&|run| run.cost.machine_us),
                figure(&share) + "%",
                runs.iter().map(|run| run.client.failures).sum::<u64>().to_string(),
            ]);
        }
        table
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
