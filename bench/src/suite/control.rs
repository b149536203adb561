//! Whether changes through the control API delay streams.
//!
//! The same streams are measured in turns: twice alone, which tells what is noise, and once while a client of the
//! control API makes, weighs, describes, updates and deletes endpoints and inference components; in a small fleet and in
//! one of thousands of components, all of which each change makes anew. Everything is made through the control API.

use std::{
    fs, net::SocketAddr, path::Path, process::Command, sync::atomic::Ordering, thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::target::Programs;
use crate::{
    load::{
        control::{Beside, Changes, Control, change, store_hosts},
        relay::{Load, Streams, streams},
    },
    machine::daemon::{Daemon, free_port},
    report::{Quantiles, Table, median, number},
};

/// The loaded endpoint, made through the API as all of them are.
const LOADED: &str = "loaded";
/// The types of its instances, of those of the endpoints which come and go, and of the hosts of components.
const TYPES: [&str; 3] = ["ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.48xlarge"];
/// Inference components of each endpoint that hosts them.
const COMPONENTS: usize = 10;
/// Streams.
const STREAMS: usize = 100;
/// Microseconds between the events of a stream.
const GAP_US: u64 = 20_000;

/// How it is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// Rounds of two quiet turns and a busy one.
    pub rounds: usize,
    /// How long each turn takes.
    pub seconds: Duration,
    /// Operations that are begun each second in a busy turn.
    pub per_second: f64,
    /// Endpoints of the large fleet, of ten inference components each.
    pub endpoints: usize,
}

/// Both fleets.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// With one endpoint of components beside the loaded one.
    pub small: Fleet,
    /// With all of them.
    pub large: Fleet,
}

/// One fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Fleet {
    /// Its endpoints with inference components.
    pub endpoints: usize,
    /// Turns without operations.
    pub quiet: Vec<Streams>,
    /// The same once more: how far these differ is noise.
    pub again: Vec<Streams>,
    /// Turns with them.
    pub busy: Vec<Streams>,
    /// Milliseconds that operations took.
    pub operation_ms: Quantiles,
}

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Quiet,
    Again,
    Busy,
}

impl Turn {
    /// The turns of a round. Each kind comes first, second and last as often as the others.
    fn of_round(round: usize) -> [Self; 3] {
        let mut turns = [Self::Quiet, Self::Again, Self::Busy];
        turns.rotate_left(round % 3);
        turns
    }
}

/// Measures both.
///
/// # Errors
/// When something does not start, an operation fails, or a stream breaks.
pub fn run(programs: &Programs, options: &Options, directory: &Path) -> anyhow::Result<Results> {
    let small = fleet(programs, options, 1, directory).context("the small fleet")?;
    let large =
        fleet(programs, options, options.endpoints, directory).context("the large fleet")?;
    Ok(Results { small, large })
}

fn fleet(
    programs: &Programs,
    options: &Options,
    endpoints: usize,
    directory: &Path,
) -> anyhow::Result<Fleet> {
    eprintln!("control: {} inference components", endpoints * COMPONENTS);
    let mut command = Command::new(&programs.load);
    command.args(["backend", "--exit-with-parent", "--listen", "0.0.0.0:0"]);
    let (_backend, backend) = Daemon::start_announcing("backend", directory, &mut command)?;
    let [listen, admin, control] = [free_port()?, free_port()?, free_port()?];
    let file = directory.join("control.toml");
    let store = directory.join(format!("control-{endpoints}.redb"));
    store_hosts(&store, TYPES[2], endpoints, COMPONENTS)?;
    let text = configuration([listen, admin, control], &store, backend.port(), endpoints);
    fs::write(&file, text)?;
    let mut command = Command::new(&programs.atalho);
    command.arg("serve").arg("--config").arg(&file);
    let mut gateway = Daemon::start("gateway", directory, &mut command)?;
    gateway.wait_until_listening(control)?;
    gateway.wait_until_listening(listen)?;
    let mut client = Control::connect(control)?;
    client.make(LOADED, TYPES[0], 2)?;
    client.wait_for_all()?;
    drop(client);
    let (quiet, again, busy) = Default::default();
    let mut fleet = Fleet { endpoints, quiet, again, busy, operation_ms: Quantiles::default() };
    let mut times = Vec::new();
    for turn in (0..options.rounds).flat_map(Turn::of_round) {
        let (streams, of_turn) = measure(listen, control, options, turn == Turn::Busy)?;
        ensure!(streams.failures == 0, "a stream broke: {:?}", streams.first_failure);
        times.extend(of_turn);
        match turn {
            Turn::Quiet => &mut fleet.quiet,
            Turn::Again => &mut fleet.again,
            Turn::Busy => &mut fleet.busy,
        }
        .push(streams);
    }
    fleet.operation_ms = Quantiles::of(&mut times);
    Ok(fleet)
}

/// What the streams came to, and the milliseconds that each operation took beside them.
fn measure(
    listen: SocketAddr,
    control: SocketAddr,
    options: &Options,
    busy: bool,
) -> anyhow::Result<(Streams, Vec<f64>)> {
    let load = Load {
        streams: STREAMS,
        size: 200,
        gap_us: GAP_US,
        chunked: true,
        endpoint: Some(LOADED),
        warm_up: Duration::from_millis(500),
        measure: options.seconds,
    };
    let changes =
        Changes { weighed: LOADED, instance_type: TYPES[1], per_second: options.per_second };
    let beside = Beside::default();
    thread::scope(|scope| {
        let changing = busy.then(|| scope.spawn(|| change(control, changes, &beside)));
        let measured = |is| beside.measured.store(is, Ordering::Relaxed);
        let streams = streams(listen, load, || measured(true), || measured(false));
        beside.ended.store(true, Ordering::Relaxed);
        let times = match changing {
            Some(changing) => changing.join().expect("it does not panic")?,
            None => Vec::new(),
        };
        Ok((streams?, times.into_iter().map(|ns| ns as f64 / 1e6).collect()))
    })
}

/// Hosts are addresses of the loopback network, all of them the same server.
fn configuration(
    [listen, admin, control]: [SocketAddr; 3],
    store: &Path,
    port: u16,
    endpoints: usize,
) -> String {
    let store = store.display();
    let urls = |addresses: &[[usize; 3]]| -> String {
        let url = |[a, b, c]: &[usize; 3]| format!("\"http://127.{a}.{b}.{c}:{port}\", ");
        addresses.iter().map(url).collect()
    };
    let hosts = (0..endpoints).map(|at| [1, 1 + at / 250, 1 + at % 250]).collect();
    let pools = [vec![[0, 0, 2], [0, 0, 3]], vec![[0, 0, 4], [0, 0, 5]], hosts];
    let mut text = format!(
        "listen = [\"{listen}\"]
admin = \"{admin}\"
[control]
listen = \"{control}\"
store = \"{store}\"
[health]
interval = \"1m\"
[models]
interval = \"0s\"
[scrape]
interval = \"0s\"
"
    );
    for (instance_type, hosts) in TYPES.iter().zip(&pools) {
        let hosts = urls(hosts);
        text += &format!("[[host_pool]]\ninstance_type = \"{instance_type}\"\nhosts = [{hosts}]\n");
    }
    text
}

impl Fleet {
    /// The median of a figure over the turns: without operations, without them once more, and with them.
    fn medians(&self, figure: impl Fn(&Streams) -> f64) -> [f64; 3] {
        [&self.quiet, &self.again, &self.busy].map(|turns| median(turns.iter().map(&figure)))
    }

    /// The 99th percentile of transit with operations over that without.
    pub fn p99_ratio(&self) -> f64 {
        busy_ratio(self.medians(|streams| streams.transit_us.p99))
    }

    /// Operations each second of the busy turns.
    fn per_second(&self) -> f64 {
        let seconds: f64 = self.busy.iter().map(|streams| streams.seconds).sum();
        self.operation_ms.count as f64 / seconds
    }
}

/// With operations over without: over the mean of both kinds of quiet turns, which is less noisy than one of them.
fn busy_ratio([quiet, again, busy]: [f64; 3]) -> f64 {
    busy / ((quiet + again) / 2.0)
}

/// The table.
pub fn table(results: &Results, options: &Options) -> Table {
    let title = format!(
        "Control operations beside {STREAMS} streams of an event every {} ms: transit in us, medians of {} turns of \
         {} s each",
        GAP_US / 1_000,
        options.rounds,
        options.seconds.as_secs_f64(),
    );
    let columns =
        ["", "p50", "p99", "p99.9", "max", "operations/s", "an operation, ms: p50", "p99", "max"];
    let mut table = Table::new(title, columns);
    for fleet in [&results.small, &results.large] {
        let figures = [
            fleet.medians(|streams| streams.transit_us.p50),
            fleet.medians(|streams| streams.transit_us.p99),
            fleet.medians(|streams| streams.transit_us.p999),
            fleet.medians(|streams| streams.transit_us.max),
        ];
        let took = fleet.operation_ms;
        let operations = [fleet.per_second(), took.p50, took.p99, took.max].map(number);
        let none = [const { String::new() }; 4];
        let mut row = |label: String, of: &dyn Fn([f64; 3]) -> f64, operations: [String; 4]| {
            let figures = figures.iter().map(|medians| number(of(*medians)));
            table.row([label].into_iter().chain(figures).chain(operations));
        };
        let components = fleet.endpoints * COMPONENTS;
        row(format!("{components} components, quiet"), &|[quiet, ..]| quiet, none.clone());
        row("quiet again".into(), &|[_, again, _]| again, none.clone());
        row("with operations".into(), &|[.., busy]| busy, operations);
        row("quiet again / quiet".into(), &|[quiet, again, _]| again / quiet, none.clone());
        row("with operations / without".into(), &busy_ratio, none);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_takes_the_configuration() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|it| it.parse().unwrap());
        let text = configuration(addresses, Path::new("/store"), 80, 2_000);
        let config = router::config::parse("control.toml", &text).unwrap();
        let hosts: Vec<_> = config.host_pools.iter().map(|pool| pool.hosts.len()).collect();
        assert_eq!(hosts, [2, 2, 2_000]);
    }

    #[test]
    fn each_kind_of_turn_comes_at_each_place() {
        for place in 0..3 {
            for turn in [Turn::Quiet, Turn::Again, Turn::Busy] {
                let there = (0..6).filter(|round| Turn::of_round(*round)[place] == turn).count();
                assert_eq!(there, 2, "{turn:?} at {place}");
            }
        }
    }

    #[test]
    fn ratios_are_of_medians() {
        let turns = |p99s: [f64; 3]| {
            p99s.map(|p99| Streams {
                seconds: 2.0,
                transit_us: Quantiles { p99, ..Quantiles::default() },
                ..Streams::default()
            })
            .to_vec()
        };
        let fleet = Fleet {
            endpoints: 1,
            quiet: turns([100.0, 90.0, 1_000.0]),
            again: turns([1.0, 300.0, 350.0]),
            busy: turns([250.0, 300.0, 9_000.0]),
            operation_ms: Quantiles::of(&mut vec![1.0; 60]),
        };
        assert_eq!(fleet.p99_ratio(), 300.0 / 200.0);
        assert_eq!(fleet.per_second(), 10.0);
    }
}
