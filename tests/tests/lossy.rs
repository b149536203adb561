//! Random exchanges on connections that are used again, over wires that lose, repeat, delay and echo
//! packets on both sides of the gateway, in both directions: every byte arrives, once, in order, and
//! at the end nothing is left.
//!
//! `ATALHO_SEED` repeats what is random here (not the timing); `ATALHO_SECONDS` sets how long each
//! run takes, and with it no other limit applies: an hour is tens of thousands of exchanges. With
//! `ATALHO_CAPTURE` set, a run that fails leaves captures of what passed the gateway.

use std::time::Duration;

use tests::{
    Engine, Network, Setup,
    capture::Capture,
    for_each_engine_on_own_networks,
    traffic::{self, Baseline, Kind, Traffic, setting},
    wire::{Fate, Shares, Wire},
};

/// Where packets fare how.
struct Links {
    /// Packets of a million that are lost, as many that are repeated, delayed, and echoed.
    share: u32,
    six: bool,
    /// Packets of the size of a wire's with complete checksums, rather than aggregates.
    plain: bool,
}

/// Captures on both interfaces of the gateway, kept if the test fails.
struct Witness(Vec<(&'static str, Capture)>);

impl Witness {
    fn of(network: &Network) -> Self {
        if std::env::var_os("ATALHO_CAPTURE").is_none() {
            return Self(Vec::new());
        }
        let links = [("client", &network.client_link.1), ("instance", &network.instance_link.0)];
        let start =
            |(name, link): (_, &String)| Some((name, Capture::start(&network.gateway, link)?));
        Self(links.into_iter().filter_map(start).collect())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        for (name, capture) in self.0.drain(..).filter(|_| std::thread::panicking()) {
            capture.keep(name);
        }
    }
}

fn exchanges_over(engine: Engine, links: &Links) {
    let seed = setting("ATALHO_SEED", fastrand::u64(..));
    println!("{engine:?}: ATALHO_SEED={seed}");
    let Some(network) = Network::wired(links.six, seed) else { return };
    if links.plain {
        network.plain_packets();
    }
    if engine == Engine::SpliceXdp {
        network.allow_xdp();
    }
    let entered = network.enter().unwrap();
    let network = entered.network().unwrap();
    let _witness = Witness::of(network);
    let wires = network.wires.as_ref().unwrap();
    let fleet = [traffic::instance(), traffic::instance()];
    let gateway = Setup::new(engine)
        .instances(&fleet)
        .set("threads", 2)
        // A handshake may lose several packets, each of which costs a second or more.
        .set("timeouts.connect", "60s")
        .set("timeouts.first_byte", "120s")
        .set("timeouts.pool_idle", "500ms")
        .set("log.level", "info")
        .start();
    let baseline = Baseline::of(&gateway);
    wires.set(Shares::all(links.share));
    let (limit, exchanges) = match setting("ATALHO_SECONDS", 0) {
        0 => (Duration::from_secs(8), 1_200),
        seconds => (Duration::from_secs(seconds), usize::MAX),
    };
    let met = |wire: &Wire| {
        [Fate::Lose, Fate::Repeat, Fate::Delay, Fate::Echo]
            .iter()
            .all(|fate| wire.count(*fate).iter().sum::<u64>() > 0)
    };
    let all_met = || met(&wires.client()) && met(&wires.instance());
    let directions = ["response", "request"];
    let traffic = Traffic { seed, kind: Kind::Patient, limit, exchanges };
    let tally = traffic.run_until(&gateway, &fleet, |tally| {
        tally.exchanges() > 100 && all_met() && gateway.takes_part(&directions)
    });
    println!("{}\n{}", wires.client().describe(), wires.instance().describe());
    assert!(all_met(), "some fates were met by no packet");
    assert!(tally.exchanges() > 100, "too slow to mean anything");
    directions.iter().for_each(|direction| gateway.expect_carried(direction));
    gateway.expect_drivers_took_part();
    wires.set(Shares::default());
    baseline.expect(&gateway, &fleet);
}

for_each_engine_on_own_networks! {
    fn one_packet_in_a_thousand(engine) {
        exchanges_over(engine, &Links { share: 1_000, six: false, plain: true });
    }

    fn one_packet_in_a_hundred(engine) {
        exchanges_over(engine, &Links { share: 10_000, six: true, plain: true });
    }

    fn one_aggregate_in_a_hundred(engine) {
        exchanges_over(engine, &Links { share: 10_000, six: false, plain: false });
    }

    fn one_packet_in_twenty(engine) {
        exchanges_over(engine, &Links { share: 50_000, six: false, plain: true });
    }
}
