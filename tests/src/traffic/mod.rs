//! Random exchanges, and whether what one side sent is what the other side got.
//!
//! Everything follows from a seed. A connection that failed is repeated over and over with
//! `ATALHO_CONNECTION`.

mod client;
mod instance;
mod plan;

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

pub use plan::Kind;
use plan::{Abort, Connection, Exchange, Framing};

use crate::{
    DEADLINE, Gateway, Head, Network, Next, Peer, Upstream, bpf, eventually, process, wait::within,
};

/// Clients at once.
const CLIENTS: usize = 8;

/// A connection that takes longer is worth a look: nothing in it waits for long.
const SLOW: Duration = Duration::from_secs(8);
/// Over bad wires it may; but soon nobody will wait any more.
const SLOW_OVER_BAD_WIRES: Duration = Duration::from_secs(18);

/// How often longer than its limit traffic goes on, on a busy machine, until what it is for has happened.
const PATIENCE: u32 = 10;

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// An instance that does its part of every exchange.
pub fn instance() -> Upstream {
    Upstream::serve(exchange)
}

/// What such an instance does with a request.
///
/// # Panics
/// When the request is not as planned.
pub fn exchange(peer: &mut Peer, head: &Head) -> Next {
    instance::instance(peer, head)
}

/// Whose exchange or connection it was, for whoever has to find out.
struct OnPanic<'a>(&'a Exchange);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in this exchange: {}", self.0.describe());
        }
    }
}

struct Named<'a>(&'a Connection);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in ATALHO_CONNECTION={}, {:?}:", self.0.plan.seed, self.0);
            for number in &self.0.exchanges {
                eprintln!("    {}", Exchange::new(*number).describe());
            }
        }
    }
}

/// How much to do, and of what kind.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// What everything follows from.
    pub seed: u64,
    /// What kind of exchanges.
    pub kind: Kind,
    /// Is enough after so long,
    pub limit: Duration,
    /// or after so many exchanges.
    pub exchanges: usize,
}

impl Traffic {
    /// Sends clients to a gateway whose instances are made by [`instance`].
    ///
    /// # Panics
    /// When an exchange is not as planned.
    #[track_caller]
    pub fn run(&self, gateway: &Gateway, fleet: &[Upstream]) -> Tally {
        self.run_until(gateway, fleet, |_| true)
    }

    /// As [`Traffic::run`], and goes on until `reached` holds as well: on a busy machine nothing
    /// certain happens within a time. Gives up after ten times the limit.
    ///
    /// # Panics
    /// When an exchange is not as planned.
    #[track_caller]
    pub fn run_until(
        &self,
        gateway: &Gateway,
        fleet: &[Upstream],
        reached: impl Fn(&Tally) -> bool,
    ) -> Tally {
        let tally = Tally::default();
        let stop = AtomicBool::new(false);
        let failed = Mutex::new(None);
        let under_way: Mutex<[Option<Instant>; CLIENTS]> = Mutex::default();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let mut clients = Vec::new();
            for number in 0..CLIENTS {
                let (tally, stop, failed, under_way) = (&tally, &stop, &failed, &under_way);
                let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_add(number as u64));
                clients.push(scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = setting("ATALHO_CONNECTION", rng.u64(..));
                        let run = || client::connection(gateway, self.kind, seed, tally);
                        let began = Instant::now();
                        under_way.lock().unwrap()[number] = Some(began);
                        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                            stop.store(true, Ordering::Relaxed);
                            failed.lock().unwrap().get_or_insert(seed);
                        }
                        if self.kind == Kind::Everything && began.elapsed() > SLOW {
                            println!("ATALHO_CONNECTION={seed} took {:?}", began.elapsed());
                        }
                    }
                    under_way.lock().unwrap()[number] = None;
                }));
            }
            // Of a connection that stands still, the sockets tell most, while they are there.
            let mut told = false;
            let limit = if self.kind == Kind::Everything { SLOW } else { SLOW_OVER_BAD_WIRES };
            while clients.iter().any(|client| !client.is_finished()) {
                std::thread::park_timeout(Duration::from_millis(50));
                let enough = start.elapsed() >= self.limit || tally.exchanges() >= self.exchanges;
                if enough && (reached(&tally) || start.elapsed() >= self.limit * PATIENCE) {
                    stop.store(true, Ordering::Relaxed);
                }
                let slow = |began: &Option<Instant>| began.is_some_and(|at| at.elapsed() > limit);
                if !told && under_way.lock().unwrap().iter().any(slow) {
                    told = true;
                    println!("a connection takes long:\n{}", sockets());
                }
            }
        });
        println!("{:?}: {tally} in {:?}", gateway.engine(), start.elapsed());
        let failures: Vec<String> = fleet.iter().flat_map(Upstream::failures).collect();
        let failed = failed.into_inner().unwrap();
        assert!(
            failed.is_none() && failures.is_empty(),
            "seed {}: a client failed in connection {failed:?}; instances: {failures:#?}",
            self.seed
        );
        tally
    }
}

/// All TCP sockets of all hosts, as `ss` sees them.
fn sockets() -> String {
    let here = || {
        let output = Command::new("ss").args(["-tinpoem"]).output().map(|out| out.stdout);
        String::from_utf8_lossy(&output.unwrap_or_default()).into_owned()
    };
    let Some(network) = Network::current() else { return here() };
    [("client", &network.client), ("gateway", &network.gateway), ("instance", &network.instance)]
        .map(|(name, host)| format!("--- {name}\n{}", host.run(here)))
        .concat()
}

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    exchanges: AtomicUsize,
    bytes: AtomicUsize,
    chunked: AtomicUsize,
    aborts: [AtomicUsize; 4],
}

impl Tally {
    /// Exchanges begun.
    pub fn exchanges(&self) -> usize {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// Exchanges broken off: by a client that sent, or received, by an instance that received, or
    /// sent.
    pub fn aborts(&self) -> [usize; 4] {
        self.aborts.each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }

    fn count(&self, exchange: &Exchange) {
        let add = |counter: &AtomicUsize, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&self.exchanges, 1);
        add(&self.bytes, exchange.request.raw.len() + exchange.response.raw.len());
        if exchange.response.framing == Framing::Chunked {
            add(&self.chunked, 1);
        }
        let index = match exchange.abort {
            Abort::Nobody => return,
            Abort::ClientSending(..) => 0,
            Abort::ClientReceiving(..) => 1,
            Abort::InstanceReceiving(..) => 2,
            Abort::InstanceSending(..) => 3,
        };
        add(&self.aborts[index], 1);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} exchanges, {} MiB, {} chunked, {:?} aborts (client sending, client receiving, \
             instance receiving, instance sending)",
            self.exchanges(),
            self.bytes.load(Ordering::Relaxed) >> 20,
            self.chunked.load(Ordering::Relaxed),
            self.aborts()
        )
    }
}

/// Entries of maps, by name.
type Entries = BTreeMap<String, usize>;

/// Maps whose entries outlive their connections: packets of a spliced connection that come late are
/// still translated for some seconds, and for as long as its socket would wait for them if its peer
/// neither closes nor resets, which all peers do here.
const LINGERING: [&str; 1] = ["FLOWS"];
/// Entries of the connections that are made to look.
const STRAGGLERS: usize = 8;

#[track_caller]
fn expect_entries(
    gateway: &Gateway,
    limit: Duration,
    before: &Entries,
    choose: impl Fn(Entries) -> Entries,
) {
    let entries = || choose(bpf::Objects::of(gateway.pid()).entries());
    if within(limit, || (entries() == *before).then_some(())).is_none() {
        panic!("entries of maps are left: {:?}, before: {before:?}", entries());
    }
}

/// What a gateway holds while nobody uses it.
#[derive(Debug)]
pub struct Baseline {
    descriptors: usize,
    entries: Entries,
}

impl Baseline {
    /// What it holds after one exchange, when the connections of it have been closed.
    ///
    /// # Panics
    /// When they are not closed.
    #[track_caller]
    pub fn of(gateway: &Gateway) -> Self {
        gateway.ask(crate::message::request("GET", "/warm", ""));
        eventually("the warm connections are closed", || {
            gateway.metric("atalho_pool_idle_connections", &[]) == 0.0
                && gateway.metric("atalho_client_connections_open", &[]) == 0.0
        });
        Self {
            descriptors: process::descriptors(gateway.pid()).len(),
            entries: bpf::Objects::of(gateway.pid()).entries(),
        }
    }

    /// Waits until the gateway holds no more again: no request in flight, no connection, no
    /// descriptor, no entry of a map. (But see `LINGERING`.)
    ///
    /// # Panics
    /// When something stays, or requests and outcomes do not add up.
    #[track_caller]
    pub fn expect(&self, gateway: &Gateway, fleet: &[Upstream]) {
        self.expect_connections_gone(gateway, fleet);
        let lasting = |mut entries: Entries| {
            entries.retain(|name, _| !LINGERING.contains(&&**name));
            entries
        };
        let before = lasting(self.entries.clone());
        expect_entries(gateway, DEADLINE, &before, lasting);
    }

    /// As [`Baseline::expect`], and waits for what lingers.
    ///
    /// # Panics
    /// When something stays, or requests and outcomes do not add up.
    #[track_caller]
    pub fn expect_everything(&self, gateway: &Gateway, fleet: &[Upstream]) {
        self.expect(gateway, fleet);
        let left = || {
            let entries = bpf::Objects::of(gateway.pid()).entries();
            let of = |name: &str| entries.get(name).copied().unwrap_or_default();
            LINGERING.iter().map(|name| of(name)).sum::<usize>()
        };
        eventually("nothing lingers any more", || left() <= STRAGGLERS);
    }

    #[track_caller]
    fn expect_connections_gone(&self, gateway: &Gateway, fleet: &[Upstream]) {
        gateway.expect_idle();
        let closed = within(DEADLINE, || {
            (fleet.iter().map(Upstream::open).sum::<usize>() == 0).then_some(())
        });
        if closed.is_none() {
            let page = gateway.admin_get("/metrics").payload();
            panic!(
                "the instances still have connections: {:?} \n{}\n{:#}\n{}",
                fleet.iter().map(Upstream::peers).collect::<Vec<_>>(),
                String::from_utf8_lossy(&page),
                gateway.status(),
                sockets()
            );
        }
        // Including that of the connection which asks for the metrics, at either moment.
        let descriptors = || process::descriptors(gateway.pid()).len();
        eventually("no descriptor is left", || descriptors() <= self.descriptors);
        let metrics = gateway.metrics();
        let chosen = metrics.sum("atalho_requests_total", &[]);
        let ended = metrics.sum("atalho_exchanges_total", &[]);
        // One that could not be reached ends there, and is assigned anew. A stale connection is replaced
        // at the same instance, without another choice.
        assert_eq!(chosen, ended, "every assigned request has ended, once");
    }
}
