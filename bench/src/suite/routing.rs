//! What choosing by prefix is worth: the same conversations through every strategy.

use std::{path::Path, process::Command};

use anyhow::Context;
use serde::Serialize;

use super::target::Programs;
use crate::{
    load::routing::{self, Outcome, Workload},
    machine::daemon::{Daemon, free_port},
    report::{Table, number},
};

/// The strategies, as the gateway's command line names them.
const STRATEGIES: [&str; 3] = ["random", "least-outstanding-requests", "prefix-aware"];

/// The fleet.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Fleet {
    /// Simulated engines.
    #[arg(long, default_value_t = 5)]
    pub instances: usize,
    /// Blocks of 16 tokens in the cache of each.
    #[arg(long, default_value_t = 4_096)]
    pub cache_blocks: u32,
    /// The gateway's prefix length.
    #[arg(long, default_value_t = 4_096)]
    pub prefix_length: u32,
    /// The gateway's concurrency threshold.
    #[arg(long, default_value_t = 10)]
    pub concurrency_threshold: u32,
}

/// One strategy.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its name.
    pub strategy: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

/// Runs the workload through each strategy, with fresh engines every time.
///
/// # Errors
/// When an engine or the gateway does not start.
pub fn run(
    programs: &Programs,
    fleet: &Fleet,
    workload: &Workload,
    directory: &Path,
) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for strategy in STRATEGIES {
        eprintln!("routing: {strategy}");
        let outcome = one(programs, fleet, workload, strategy, directory)
            .with_context(|| format!("measuring {strategy}"))?;
        runs.push(Run { strategy, outcome });
    }
    Ok(runs)
}

fn one(
    programs: &Programs,
    fleet: &Fleet,
    workload: &Workload,
    strategy: &str,
    directory: &Path,
) -> anyhow::Result<Outcome> {
    let mut engines = Vec::new();
    let address = free_port()?;
    let mut gateway = Command::new(&programs.atalho);
    gateway
        .args(["serve", "--listen", &address.to_string()])
        .args(["--strategy", strategy])
        .args(["--prefix-length", &fleet.prefix_length.to_string()])
        .args(["--concurrency-threshold", &fleet.concurrency_threshold.to_string()])
        .args(["--engine", "userspace", "--admin", &free_port()?.to_string()]);
    for number in 1..=fleet.instances {
        let name = format!("engine-{number}");
        let mut engine = Command::new(&programs.sim);
        engine
            .args(["--port", "0", "--exit-with-parent", "--name", &name])
            .args(["--cache-blocks", &fleet.cache_blocks.to_string()]);
        let (daemon, engine_address) = Daemon::start_announcing(&name, directory, &mut engine)?;
        gateway.args(["--backend", &format!("http://{engine_address}")]);
        engines.push(daemon);
    }
    let mut daemon = Daemon::start("gateway", directory, &mut gateway)?;
    daemon.wait_until_listening(address)?;
    Ok(routing::run(address, workload)?)
}

/// The table of all strategies.
pub fn table(runs: &[Run], fleet: &Fleet, workload: &Workload) -> Table {
    let title = format!(
        "Routing: {} engines, {} sessions of {} turns over {} system prompts of {} characters (times \
         in ms)",
        fleet.instances, workload.sessions, workload.turns, workload.groups, workload.system_chars
    );
    let head = [
        "",
        "hit rate",
        "first token p50",
        "p90",
        "p99",
        "answer p50",
        "requests/s",
        "share per engine",
        "failures",
    ];
    let mut table = Table::new(title, head);
    for Run { strategy, outcome } in runs {
        let shares = outcome
            .instances
            .values()
            .map(|count| format!("{:.0}%", *count as f64 * 100.0 / outcome.requests.max(1) as f64));
        table.row([
            (*strategy).to_owned(),
            format!("{:.1}%", outcome.hit_rate() * 100.0),
            number(outcome.first_token_ms.p50),
            number(outcome.first_token_ms.p90),
            number(outcome.first_token_ms.p99),
            number(outcome.total_ms.p50),
            number(outcome.requests as f64 / outcome.seconds),
            shares.collect::<Vec<_>>().join(" "),
            outcome.failures.to_string(),
        ]);
    }
    table
}
