//! The benchmarks; `cargo xtask bench` builds everything in release mode and runs this.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use bench::{
    load::routing::Workload,
    machine::{self, hosts::Hosts},
    report::Table,
    suite::{
        control, decision, fleet_size,
        goals::{self, Goal},
        relay::{self, Scenario},
        routing, simulation,
        target::{Programs, Target},
    },
};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Measures the gateway beside nginx, HAProxy and no gateway at all.
///
/// Prints tables in Markdown and holds them against the project's goals; the same goes to
/// `bench/results/` together with all figures as JSON. Processes that it starts end with it.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// What to measure.
    #[arg(value_enum, default_values_t = [Suite::Decision, Suite::Relay, Suite::Routing])]
    suites: Vec<Suite>,
    /// Targets of the relay benchmark; by default all that there can be.
    #[arg(long, value_enum, value_delimiter = ',')]
    targets: Vec<Target>,
    /// Put client, gateway and server of the relay benchmark on hosts of their own (network
    /// namespaces joined by veth pairs, made and removed by this; takes root) rather than all on
    /// loopback. Packets forwarded by the gateway's host are a target as well then.
    #[arg(long)]
    hosts: bool,
    /// With --hosts: client and server send packets as they are on a wire, each of the size of one and
    /// with its checksum complete.
    #[arg(long, requires = "hosts")]
    plain: bool,
    /// Loads of the relay benchmark; nothing behind it for none of them.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        num_args = 0..,
        default_values_t = Scenario::value_variants().to_vec()
    )]
    scenarios: Vec<Scenario>,
    /// Events of the answers to short requests of the relay benchmark, 0 for an answer in one piece; nothing
    /// behind it for none of them.
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [0, 1, 4, 16])]
    answers: Vec<u32>,
    /// Rounds of the relay and the control benchmark; every target has its turn in each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds that each load of the relay and the control benchmark is measured.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Streams that are open when memory is looked at.
    #[arg(long, default_value_t = 5_000)]
    held: usize,
    /// Streams that are open at a slow pace while the gateway's own processor time is looked at; 0 for
    /// none. At most 25,000, since each takes a port.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=25_000))]
    open: u32,
    /// Operations a second of the control benchmark.
    #[arg(long, default_value_t = 10.0, value_parser = per_second)]
    operations: f64,
    /// Endpoints, of ten inference components each, of the large fleet of the control benchmark.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    endpoints: u32,
    /// Length of the simulation's runs, as a share of the full one.
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    scale: f64,
    /// Folder into which the simulation writes its report, as `routing.md` with pictures.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Where the simulation keeps the conversations that it fetches.
    #[arg(long, default_value = "target/conversations")]
    data: PathBuf,
    /// Fail when a goal is missed, or nothing was measured that a goal speaks of. Takes at least six
    /// rounds: the medians of fewer say little.
    #[arg(long)]
    check: bool,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    #[command(flatten, next_help_heading = "Fleet of the routing benchmark")]
    fleet: routing::Fleet,
    #[command(flatten, next_help_heading = "Conversations of the routing benchmark")]
    workload: Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// The cost of choosing an instance.
    Decision,
    /// The cost of passing through.
    Relay,
    /// The worth of choosing by prefix.
    Routing,
    /// What changes through the control API cost streams.
    Control,
    /// Every rule of choice in virtual time: some ten minutes on two cores.
    Simulation,
}

fn per_second(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=1000.0).contains(&rate) => Ok(rate),
        _ => Err("a number from 0.1 to 1000".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a number above 0, at most 1".into()),
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    machine::raise_open_files()?;
    let mut tables: Vec<Table> = Vec::new();
    let mut goals = Vec::new();
    let mut notes = Vec::new();
    let mut figures = json!({"machine": machine::describe()});
    if cli.suites.contains(&Suite::Decision) {
        eprintln!("decision");
        let cases = decision::run(Duration::from_millis(200))?;
        tables.push(decision::table(&cases));
        goals.extend(goals::decision(&cases));
        figures["decision"] = json!(cases);
        let sizes = fleet_size::run()?;
        tables.push(fleet_size::table(&sizes));
        goals.push(goals::fleet_size(&sizes));
        figures["fleet_size"] = json!(sizes);
    }
    if cli.suites.contains(&Suite::Relay) {
        // (This thread is on the client's host from here on.)
        let hosts = cli.hosts.then(|| Hosts::enter(cli.plain)).transpose()?;
        let mut targets = cli.targets.clone();
        if targets.is_empty() {
            targets = Target::value_variants().to_vec();
            targets.retain(|target| match target {
                Target::Forwarding => cli.hosts,
                Target::SpliceXdp => cli.plain,
                _ => true,
            });
        }
        figures["hosts"] = json!(cli.hosts);
        figures["plain"] = json!(cli.plain);
        let options = relay::Options {
            targets,
            scenarios: cli.scenarios.clone(),
            answers: cli.answers.clone(),
            rounds: rounds(&cli) as usize,
            seconds: Duration::try_from_secs_f64(cli.seconds).context("--seconds")?,
            held: cli.held,
            open: cli.open as usize,
        };
        let directory = tempfile::tempdir()?;
        let results = relay::run(&Programs::find()?, hosts.as_ref(), &options, directory.path());
        tables.extend(results.tables(&options));
        goals.extend(goals::relay(&results));
        notes.extend(results.failures());
        figures["relay"] = json!(results);
    }
    if cli.suites.contains(&Suite::Routing) {
        let directory = tempfile::tempdir()?;
        let programs = Programs::find()?;
        let runs = routing::run(&programs, &cli.fleet, &cli.workload, directory.path())?;
        tables.push(routing::table(&runs, &cli.fleet, &cli.workload));
        for run in &runs {
            let failure = run.outcome.first_failure.as_ref();
            notes.extend(failure.map(|why| format!("routing, {}: {why}", run.strategy)));
        }
        figures["routing"] = json!({"fleet": cli.fleet, "workload": cli.workload, "runs": runs});
    }
    if cli.suites.contains(&Suite::Control) {
        let directory = tempfile::tempdir()?;
        let options = control::Options {
            rounds: rounds(&cli) as usize,
            seconds: Duration::try_from_secs_f64(cli.seconds).context("--seconds")?,
            per_second: cli.operations,
            endpoints: cli.endpoints as usize,
        };
        let results = control::run(&Programs::find()?, &options, directory.path())?;
        tables.push(control::table(&results, &options));
        goals.extend(goals::control(&results));
        figures["control"] = json!({"options": options, "results": results});
    }
    if cli.suites.contains(&Suite::Simulation) {
        let style = "simulation {bar:40} {percent}% {elapsed} left {eta}";
        let bar = ProgressBar::new(1_000).with_style(ProgressStyle::with_template(style)?);
        let watch = |done: f64| bar.set_position((done * 1_000.0) as u64);
        let results = simulation::run(&cli.data, cli.scale, &watch)?;
        bar.finish_and_clear();
        fs::create_dir_all(&cli.out).with_context(|| cli.out.display().to_string())?;
        let report = cli.report.as_ref().unwrap_or(&cli.out);
        simulation::report::write(&results, report)?;
        let json = serde_json::to_string_pretty(&results)?;
        fs::write(cli.out.join("simulation.json"), json)?;
        eprintln!("report in {}", report.join("routing.md").display());
    }
    figures["goals"] = json!(goals);

    let mut text = format!("{}\n\n", machine::describe());
    for table in &tables {
        text += &format!("{table}\n");
    }
    for (title, lines) in
        [("Goals", goals.iter().map(ToString::to_string).collect()), ("Failures", notes)]
    {
        let lines: Vec<String> = lines;
        if !lines.is_empty() {
            text += &format!("### {title}\n\n");
            text += &lines.iter().map(|line| format!("- {line}\n")).collect::<String>();
            text.push('\n');
        }
    }
    print!("{text}");
    fs::create_dir_all(&cli.out).with_context(|| cli.out.display().to_string())?;
    fs::write(cli.out.join("bench.md"), &text)?;
    fs::write(cli.out.join("bench.json"), serde_json::to_string_pretty(&figures)?)?;
    eprintln!("also in {}", cli.out.display());
    if cli.check { check(&goals) } else { Ok(()) }
}

/// The rounds that `--check` needs at least.
const CHECKED_ROUNDS: u32 = 6;

fn rounds(cli: &Cli) -> u32 {
    if cli.check { cli.rounds.max(CHECKED_ROUNDS) } else { cli.rounds }
}

/// # Errors
/// When a goal was missed, or there was none to miss.
fn check(goals: &[Goal]) -> anyhow::Result<()> {
    let missed: Vec<String> =
        goals.iter().filter(|goal| !goal.is_met()).map(|goal| format!("\n  {goal}")).collect();
    match missed.len() {
        _ if goals.is_empty() => bail!("nothing was measured that the goals speak of"),
        0 => Ok(()),
        count => bail!("{count} of {} goals missed:{}", goals.len(), missed.concat()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_check_fails_on_a_missed_goal_and_on_none() {
        let goal = |measured| Goal::new("this vs that", measured, 1.0);
        assert!(check(&[goal(0.9), goal(1.0)]).is_ok());
        let error = check(&[goal(0.9), goal(1.1)]).unwrap_err().to_string();
        assert!(error.starts_with("1 of 2 goals missed:\n  this vs that: 1.1"), "{error}");
        assert!(check(&[]).is_err());
    }

    #[test]
    fn a_check_takes_six_rounds_at_least() {
        let parsed = |args: &[&str]| rounds(&Cli::parse_from([&["atalho-bench"], args].concat()));
        assert_eq!([parsed(&[]), parsed(&["--check"])], [3, 6]);
        assert_eq!(parsed(&["--check", "--rounds", "10"]), 10);
    }

    /// `cargo xtask bench --help` shows this file without building the benchmarks. With `UPDATE_DOCS=1`
    /// in the environment, this writes it instead of comparing.
    #[test]
    fn the_help_of_the_task_is_that_of_the_benchmarks() {
        let mut command = Cli::command().bin_name("cargo xtask bench").term_width(100);
        let help = command.render_long_help().to_string();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("help.txt");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            return fs::write(&file, help).expect("written");
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        assert!(written == help, "UPDATE_DOCS=1 cargo test -p bench --bins writes {file:?}");
    }
}
