//! What it costs to pass through a gateway: time, processor, memory.
//!
//! Every target runs alone, freshly started, on loopback or between hosts; the targets take turns
//! within a round, so that what the machine does meanwhile hits all of them. Figures are medians over the rounds.

mod results;
mod scenario;
mod tables;

use std::{cell::RefCell, net::SocketAddr, path::Path, time::Duration};

use anyhow::Context;

use super::target::{Programs, Running, Target};
use crate::{
    load::relay::{self, Load, Requests},
    machine::{
        cpu::{Sample, Use, Used},
        hosts::Hosts,
        memory::Memory,
    },
};

pub use results::{Cost, MemoryRun, OpenRun, RequestsRun, Results, StreamsRun};
pub use scenario::Scenario;

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
    let meter = Meter::new(running.pids()?, [backend.pid(), std::process::id()]);
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
        endpoint: None,
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
    gateway: Vec<u32>,
    others: [u32; 2],
    begin: RefCell<Option<std::io::Result<Sample>>>,
    end: RefCell<Option<std::io::Result<Sample>>>,
}

impl Meter {
    fn new(gateway: Vec<u32>, others: [u32; 2]) -> Self {
        Self { gateway, others, begin: RefCell::default(), end: RefCell::default() }
    }

    fn begin(&self) {
        *self.begin.borrow_mut() = Some(Sample::take(&self.gateway, &self.others));
    }

    fn end(&self) {
        *self.end.borrow_mut() = Some(Sample::take(&self.gateway, &self.others));
    }

    fn used(&self) -> anyhow::Result<Used> {
        let begin = self.begin.take().context("no first sample")??;
        let end = self.end.take().context("no second sample")??;
        Ok(end.since(&begin))
    }
}
