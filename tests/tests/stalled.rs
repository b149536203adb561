//! What a client costs that does not read, and what that costs clients that do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{
    Engine, Gateway, Network, Next, Peer, Setup, Upstream,
    cgroup::Cgroup,
    for_each_engine_on_loopback, for_each_engine_on_own_networks,
    message::chat,
    payload, process,
    wait::{DEADLINE, eventually, settled, within},
};

/// What each may cost the gateway's host: its process, and the kernel for it.
const EACH: u64 = 2 << 20;
const BODY: usize = 48 << 20;
const PIECE: usize = 1 << 20;

/// What a client does before it stops.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// Nothing.
    Nothing,
    /// Reads so many pieces, as fast as it can.
    Fast(usize),
    /// Reads a few bytes at a time, and gets the next when it has them: a good moment for a hand-over.
    Calm,
}

const CALM_READS: u64 = 10;
const CALM_BYTES: usize = 1000;

impl Start {
    fn bytes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Fast(pieces) => pieces * PIECE,
            Self::Calm => CALM_READS as usize * CALM_BYTES,
        }
    }
}

/// An instance that sends flat out, in writes of some size.
struct Flood {
    upstream: Upstream,
    /// Bytes that its kernel has taken.
    sent: Arc<AtomicU64>,
    /// Reads of a client that it waits for.
    reads: Arc<AtomicU64>,
}

impl Flood {
    fn new(write: usize) -> Self {
        let piece = payload::bytes(1, PIECE);
        let (sent, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, seen) = (sent.clone(), reads.clone());
        let upstream = Upstream::serve(move |peer, head| {
            let Ok(asked) = peer.try_request_body(head) else { return Next::Close };
            // BBR keeps to the shortest round trip of ten seconds, and spliced, the path becomes that to the client.
            peer.congestion_control("reno");
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
            let calm = String::from_utf8_lossy(&asked).contains("calm");
            let slow = if calm { Start::Calm.bytes() } else { 0 };
            for number in 0..BODY / PIECE {
                let (first, rest) = piece.split_at(if number == 0 { slow } else { 0 });
                for bytes in first.chunks(CALM_BYTES).chain(rest.chunks(write)) {
                    let before = seen.load(Ordering::SeqCst);
                    if peer.try_send(bytes).is_err() {
                        return Next::Close;
                    }
                    count.fetch_add(bytes.len() as u64, Ordering::SeqCst);
                    if bytes.as_ptr() < rest.as_ptr() {
                        eventually("a calm read", || seen.load(Ordering::SeqCst) > before);
                    }
                }
            }
            Next::Keep
        });
        Self { upstream, sent, reads }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// A client that has started so, and stopped.
    fn client(&self, gateway: &Gateway, start: Start) -> Peer {
        let mut client = gateway.connect();
        client.send(chat(if matches!(start, Start::Calm) { "calm" } else { "flood" }));
        match start {
            Start::Nothing => return client,
            Start::Fast(pieces) => {
                client.head();
                (0..pieces).for_each(|_| drop(client.take_exact(PIECE)));
            }
            Start::Calm => {
                client.head();
                for _ in 0..CALM_READS {
                    client.take_exact(CALM_BYTES);
                    self.reads.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        client
    }
}

/// Bytes in the queues of sockets: sent and not acknowledged, received and not read.
#[derive(Clone, Copy, Debug, Default)]
struct Queued {
    gateway: u64,
    client: u64,
    instance: u64,
}

impl Queued {
    /// Those of all connections of a gateway.
    fn now(gateway: u16, instance: u16) -> Self {
        let read = || std::fs::read_to_string("/proc/thread-self/net/tcp").expect("the sockets");
        // On one host, one table has them all.
        let tables = match Network::current() {
            None => vec![read()],
            Some(network) => vec![read(), network.gateway.run(read), network.instance.run(read)],
        };
        let mut queued = Self::default();
        for line in tables.iter().flat_map(|table| table.lines().skip(1)) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let port = |address: &str| {
                u16::from_str_radix(address.split_once(':').expect("a port").1, 16).expect("a port")
            };
            let (local, remote) = (port(fields[1]), port(fields[2]));
            let (sent, received) = fields[4].split_once(':').expect("two queues");
            let bytes = [sent, received].map(|n| u64::from_str_radix(n, 16).expect("a number"));
            let bytes = bytes.iter().sum::<u64>();
            match (local, remote) {
                // One that listens has connections in its queue.
                (_, 0) => {}
                (local, _) if local == gateway => queued.gateway += bytes,
                (_, remote) if remote == instance => queued.gateway += bytes,
                (_, remote) if remote == gateway => queued.client += bytes,
                (local, _) if local == instance => queued.instance += bytes,
                _ => {}
            }
        }
        queued
    }
}

/// Clients that stop cost no more than they may, and get every byte when they read on.
fn stalled(count: u64, write: usize, start: Start, setup: impl FnOnce(&Upstream) -> Setup) {
    let flood = Flood::new(write);
    let gateway = setup(&flood.upstream).set("threads", 2).start();
    flood.client(&gateway, Start::Fast(0)).close();
    gateway.expect_idle();
    let cgroup = match Cgroup::of(gateway.pid()) {
        Ok(cgroup) => cgroup,
        Err(error) => return process::skip(&error),
    };
    // Connections from before are not counted, and not used again.
    let (sent, before) = (flood.sent(), cgroup.bytes());
    let mut clients: Vec<Peer> = (0..count).map(|_| flood.client(&gateway, start)).collect();
    let calm = Duration::from_millis(700);
    let sent = settled("the instance's sending", calm, || flood.sent()) - sent;
    let charged = cgroup.bytes().saturating_sub(before);
    let queued = Queued::now(gateway.address().port(), flood.upstream.address().port());
    // Packets that sockmap passes from one socket to another are nobody's meanwhile, and not charged.
    let taken = sent - count * start.bytes() as u64;
    let passing = taken.saturating_sub(queued.gateway + queued.client + queued.instance);
    let each = |bytes: u64| bytes / count / 1024;
    println!(
        "{:?}, {start:?}, writes of {write}: {} KiB are charged for each client, {} KiB on their way \
         between sockets; queued {:?}",
        gateway.engine(),
        each(charged),
        each(passing),
        [queued.gateway, queued.client, queued.instance].map(each),
    );
    assert!(charged + passing <= count * EACH, "{} KiB each", each(charged + passing));

    // They read on, all at once: every byte comes.
    let piece = payload::bytes(1, PIECE);
    std::thread::scope(|scope| {
        for client in &mut clients {
            let piece = &piece;
            scope.spawn(move || {
                if let Start::Nothing = start {
                    assert_eq!(client.head().status(), 200);
                }
                let mut at = start.bytes();
                while at < BODY {
                    let part = &piece[at % PIECE..];
                    payload::assert_same("body", &client.take_exact(part.len()), part);
                    at += part.len();
                }
            });
        }
    });
    gateway.expect_idle();
    if let Start::Calm = start {
        gateway.expect_carried("response");
    }
}

const LARGE: usize = 16 * 1024;
const SMALL: usize = 300;

for_each_engine_on_loopback! {
    fn a_client_that_never_reads_costs_at_most_2_mib(engine) {
        stalled(40, LARGE, Start::Nothing, |upstream| Setup::single(engine, upstream));
    }

    fn a_client_that_stops_once_the_kernel_moves_its_body_costs_at_most_2_mib(engine) {
        stalled(40, LARGE, Start::Calm, |upstream| Setup::single(engine, upstream));
    }

    fn small_writes_for_a_client_that_stops_cost_at_most_2_mib(engine) {
        stalled(12, SMALL, Start::Fast(2), |upstream| Setup::single(engine, upstream));
    }
}

/// The farther away an instance is, the more does a kernel let it have on its way to a reader that is fast.
fn stops_after_reading_fast(setup: impl FnOnce(&Upstream) -> Setup) {
    let Some(entered) = Network::wired(false, 1).and_then(Network::enter) else { return };
    let wires = entered.network().and_then(|network| network.wires.as_ref()).expect("wires");
    wires.instance().lengthen(ROUND_TRIP / 2);
    stalled(4, LARGE, Start::Fast(24), setup);
}

for_each_engine_on_own_networks! {
    fn a_client_that_reads_fast_and_stops_costs_at_most_2_mib(engine) {
        stops_after_reading_fast(|upstream| Setup::single(engine, upstream));
    }
}

#[test]
fn a_client_of_a_gateway_without_privileges_costs_at_most_2_mib() {
    if process::root_or_skip("becoming nobody") {
        let setup = |upstream: &_| Setup::single(Engine::Userspace, upstream).as_nobody();
        stalled(12, SMALL, Start::Fast(2), setup);
    }
}

/// Bytes a second that one stream gets through where a round trip takes [`ROUND_TRIP`]: more than with
/// 128 KiB under way (13 MB/s), and far less than what the buffers allow (130 MB/s), which a busy machine may
/// not reach.
const THROUGHPUT: f64 = 20e6;
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A busy machine gets a few chances: what buffers allow does not depend on it.
fn reaches_throughput(engine: Engine, far_instance: bool) {
    let Some(entered) = Network::wired(false, 1).and_then(Network::enter) else { return };
    let wires = entered.network().and_then(|network| network.wires.as_ref()).expect("wires");
    let mut wire = if far_instance { wires.instance() } else { wires.client() };
    wire.lengthen(ROUND_TRIP / 2);
    let flood = Flood::new(LARGE);
    let gateway = Setup::single(engine, &flood.upstream).start();
    let mut seen = Vec::new();
    let reached = within(DEADLINE, || {
        let mut client = flood.client(&gateway, Start::Fast(0));
        let begun = Instant::now();
        client.take_exact(BODY);
        seen.push(BODY as f64 / begun.elapsed().as_secs_f64());
        seen.last().filter(|rate| **rate >= THROUGHPUT).map(drop)
    });
    println!("{engine:?}, far instance {far_instance}: {seen:.3?} B/s");
    assert!(reached.is_some(), "{seen:?} bytes a second");
}

for_each_engine_on_own_networks! {
    fn a_client_10_ms_away_gets_its_bytes_as_fast_as_before(engine) {
        reaches_throughput(engine, false);
    }
}

// Through `splice` what an instance that is far away can send does not go by the socket's buffer.
#[test]
fn an_instance_10_ms_away_is_read_fast_by_user_space() {
    reaches_throughput(Engine::Userspace, true);
}

#[test]
fn an_instance_10_ms_away_is_read_fast_by_sockmap() {
    if Engine::Sockmap.available() {
        reaches_throughput(Engine::Sockmap, true);
    }
}
