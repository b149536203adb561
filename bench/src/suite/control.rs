//! Whether changes through the control API delay streams.
//!
//! The same streams are measured in turns, half of them while a client of the control API makes, weighs, describes and
//! deletes; in a small fleet and in one of thousands of instances, all of which each change makes anew.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::target::Programs;
use crate::{
    load::{
        control::{Changes, Control, change},
        relay::{Load, Streams, streams},
    },
    machine::daemon::{Daemon, free_port},
    report::{Table, median, number},
};

/// The loaded endpoint, made through the API as all of them are.
const LOADED: &str = "loaded";
/// The type of its instances, and that of the endpoints which come and go.
const TYPES: [&str; 2] = ["ml.p5.48xlarge", "ml.p4d.24xlarge"];
/// Instances of each endpoint of the large fleet.
const INSTANCES: usize = 10;
/// Streams.
const STREAMS: usize = 100;
/// Microseconds between the events of a stream.
const GAP_US: u64 = 20_000;

/// How it is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// Pairs of a quiet and a busy turn.
    pub rounds: usize,
    /// How long each turn takes.
    pub seconds: Duration,
    /// Operations that are begun each second in a busy turn.
    pub per_second: f64,
    /// Endpoints of the large fleet, of ten instances each.
    pub endpoints: usize,
}

/// Both fleets.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// With the loaded endpoint alone.
    pub small: Fleet,
    /// With all endpoints.
    pub large: Fleet,
}

/// One fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Fleet {
    /// Its instances.
    pub instances: usize,
    /// Turns without operations.
    pub quiet: Vec<Streams>,
    /// Turns with them.
    pub busy: Vec<Streams>,
    /// Operations of all busy turns.
    pub operations: u64,
}

/// Measures both.
///
/// # Errors
/// When something does not start, an operation fails, or a stream breaks.
pub fn run(programs: &Programs, options: &Options, directory: &Path) -> anyhow::Result<Results> {
    let small = fleet(programs, options, 0, directory).context("the small fleet")?;
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
    eprintln!("control: {} endpoints", endpoints + 1);
    let mut command = Command::new(&programs.load);
    command.args(["backend", "--exit-with-parent", "--listen", "0.0.0.0:0"]);
    let (_backend, backend) = Daemon::start_announcing("backend", directory, &mut command)?;
    let [listen, admin, control] = [free_port()?, free_port()?, free_port()?];
    let file = directory.join("control.toml");
    let store = directory.join(format!("control-{endpoints}.redb"));
    let text = configuration([listen, admin, control], &store, backend.port(), endpoints);
    fs::write(&file, text)?;
    let mut command = Command::new(&programs.atalho);
    command.arg("serve").arg("--config").arg(&file);
    let mut gateway = Daemon::start("gateway", directory, &mut command)?;
    gateway.wait_until_listening(control)?;
    gateway.wait_until_listening(listen)?;
    Control::connect(control)?.make(LOADED, TYPES[0], 2)?;
    let mut fleet = Fleet {
        instances: endpoints * INSTANCES + 2,
        quiet: Vec::new(),
        busy: Vec::new(),
        operations: 0,
    };
    for round in 0..2 * options.rounds {
        // Who comes first changes from pair to pair.
        let busy = (round % 2 == 1) != (round / 2 % 2 == 1);
        let (streams, operations) = turn(listen, control, options, busy)?;
        ensure!(streams.failures == 0, "a stream broke: {:?}", streams.first_failure);
        if busy { &mut fleet.busy } else { &mut fleet.quiet }.push(streams);
        fleet.operations += operations;
    }
    Ok(fleet)
}

fn turn(
    listen: SocketAddr,
    control: SocketAddr,
    options: &Options,
    busy: bool,
) -> anyhow::Result<(Streams, u64)> {
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
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let changing = busy.then(|| scope.spawn(|| change(control, changes, &stop)));
        let streams = streams(listen, load, || {}, || {});
        stop.store(true, Ordering::Relaxed);
        let operations = match changing {
            Some(changing) => changing.join().expect("it does not panic")?,
            None => 0,
        };
        Ok((streams?, operations))
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
    let [loaded, others] = TYPES;
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
[[host_pool]]
instance_type = \"{loaded}\"
hosts = [\"http://127.0.0.2:{port}\", \"http://127.0.0.3:{port}\"]
[[host_pool]]
instance_type = \"{others}\"
hosts = [\"http://127.0.0.4:{port}\", \"http://127.0.0.5:{port}\"]
"
    );
    for endpoint in 0..endpoints {
        text += &format!(
            "[[endpoint]]\nname = \"large-{endpoint}\"\n[[endpoint.variant]]\nname = \"v\"\n"
        );
        for instance in 0..INSTANCES {
            let host = endpoint * INSTANCES + instance;
            let (high, low) = (1 + host / 250, 1 + host % 250);
            text += &format!(
                "[[endpoint.variant.instance]]\nurl = \"http://127.1.{high}.{low}:{port}\"\n"
            );
        }
    }
    text
}

impl Fleet {
    /// The median of a figure over the turns: without operations, and with them.
    fn medians(&self, figure: impl Fn(&Streams) -> f64) -> [f64; 2] {
        [&self.quiet, &self.busy].map(|turns| median(turns.iter().map(&figure)))
    }

    /// The 99th percentile of transit with operations over that without.
    pub fn p99_ratio(&self) -> f64 {
        let [quiet, busy] = self.medians(|streams| streams.transit_us.p99);
        busy / quiet
    }
}

/// The table.
pub fn table(results: &Results, options: &Options) -> Table {
    let title = format!(
        "Control operations beside {STREAMS} streams of an event every {} ms: transit in us, medians of {} turns of \
         {} s each, {} operations a second",
        GAP_US / 1_000,
        options.rounds,
        options.seconds.as_secs_f64(),
        options.per_second
    );
    let mut table = Table::new(title, ["", "p50", "p99", "p99.9", "max", "operations"]);
    for (name, fleet) in [("small", &results.small), ("large", &results.large)] {
        let columns = [
            fleet.medians(|streams| streams.transit_us.p50),
            fleet.medians(|streams| streams.transit_us.p99),
            fleet.medians(|streams| streams.transit_us.p999),
            fleet.medians(|streams| streams.transit_us.max),
        ];
        let operations = [0, fleet.operations];
        for (at, kind) in ["without operations", "with operations"].into_iter().enumerate() {
            let label = format!("{name} fleet ({} instances), {kind}", fleet.instances);
            let figures = columns.iter().map(|column| number(column[at]));
            table.row([label].into_iter().chain(figures).chain([operations[at].to_string()]));
        }
        let ratios = columns.iter().map(|[quiet, busy]| number(busy / quiet));
        table.row(["ratio".to_owned()].into_iter().chain(ratios));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_takes_the_configuration() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|it| it.parse().unwrap());
        let text = configuration(addresses, Path::new("/store"), 80, 30);
        let config = router::config::parse("control.toml", &text).unwrap();
        let instances = |endpoint: &router::config::EndpointConfig| {
            endpoint.variants.iter().map(|variant| variant.instances.len()).sum::<usize>()
        };
        assert_eq!(config.endpoints.iter().map(instances).sum::<usize>(), 300);
    }
}
