//! What a client costs that does not read, and what that costs clients that do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{
    Engine, Network, Next, Peer, Setup, Upstream,
    cgroup::Cgroup,
    for_each_engine_on_loopback, for_each_engine_on_own_networks,
    message::chat,
    payload, process,
    wait::{DEADLINE, settled, within},
};

const CLIENTS: u64 = 40;
/// What each may cost the gateway's host: its process, and the kernel for it.
const EACH: u64 = 2 << 20;
const BODY: usize = 48 << 20;
const PIECE: usize = 1 << 20;

/// An instance that sends flat out, in writes of some size, and how much its kernel has taken from it.
fn flood(write: usize) -> (Upstream, Arc<AtomicU64>) {
    let piece = payload::bytes(1, PIECE);
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let upstream = Upstream::serve(move |peer, head| {
        if peer.try_request_body(head).is_err() {
            return Next::Close;
        }
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
        for _ in 0..BODY / PIECE {
            for bytes in piece.chunks(write) {
                if peer.try_send(bytes).is_err() {
                    return Next::Close;
                }
                count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        Next::Keep
    });
    (upstream, sent)
}

/// Bytes in the queues of sockets: sent and not acknowledged, received and not read.
#[derive(Clone, Copy, Debug, Default)]
struct Queued {
    gateway: u64,
    client: u64,
    instance: u64,
}

impl Queued {
    /// Those of all connections of a gateway on this host.
    fn now(gateway: u16, instance: u16) -> Self {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
        let mut queued = Self::default();
        for line in table.lines().skip(1) {
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

/// Clients that stop after `read` bytes of what an instance sends in such writes cost no more than they may, and get
/// every byte when they read on.
fn stalled(write: usize, read: usize, setup: impl FnOnce(&Upstream) -> Setup) {
    let (upstream, sent) = flood(write);
    let gateway = setup(&upstream).set("threads", 2).start();
    let mut client = gateway.connect();
    client.send(chat("warm"));
    client.head();
    drop(client);
    gateway.expect_idle();
    let cgroup = match Cgroup::of(gateway.pid()) {
        Ok(cgroup) => cgroup,
        Err(error) => return process::skip(&error),
    };
    // Its connection to the instance was opened outside.
    let start = sent.load(Ordering::Relaxed);
    let before = cgroup.bytes();
    let mut clients: Vec<Peer> = (0..CLIENTS).map(|_| gateway.connect()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            client.send(chat("flood"));
            scope.spawn(move || {
                if read > 0 {
                    client.head();
                    (0..read / PIECE).for_each(|_| drop(client.take_exact(PIECE)));
                }
            });
        }
    });
    let calm = Duration::from_millis(700);
    let taken = settled("the instance's sending", calm, || sent.load(Ordering::Relaxed));
    let taken = taken - start - CLIENTS * read as u64;
    let charged = cgroup.bytes().saturating_sub(before);
    let queued = Queued::now(gateway.address().port(), upstream.address().port());
    // Packets that sockmap passes from one socket to another are nobody's meanwhile, and not charged.
    let passing = taken.saturating_sub(queued.gateway + queued.client + queued.instance);
    let each = |bytes: u64| bytes / CLIENTS / 1024;
    println!(
        "{:?}, writes of {write}, after {read}: {} KiB are charged for each client, {} KiB on their way \
         between sockets; queued {:?}",
        gateway.engine(),
        each(charged),
        each(passing),
        [queued.gateway, queued.client, queued.instance].map(each),
    );
    assert!(charged + passing <= CLIENTS * EACH, "{} KiB each", each(charged + passing));

    // They read on, all at once: every byte comes.
    let piece = payload::bytes(1, PIECE);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in &mut clients {
            let piece = &piece;
            scope.spawn(move || {
                if read == 0 {
                    assert_eq!(client.head().status(), 200);
                }
                for _ in read / PIECE..BODY / PIECE {
                    payload::assert_same("body", &client.take_exact(PIECE), piece);
                }
            });
        }
    });
    println!("the rest took {:?}", begun.elapsed());
    gateway.expect_idle();
}

const LARGE: usize = 16 * 1024;
const SMALL: usize = 300;

for_each_engine_on_loopback! {
    fn a_client_that_never_reads_costs_at_most_2_mib(engine) {
        stalled(LARGE, 0, |upstream| Setup::single(engine, upstream));
    }

    fn a_client_that_reads_fast_and_stops_costs_at_most_2_mib(engine) {
        stalled(LARGE, 24 * PIECE, |upstream| Setup::single(engine, upstream));
    }

    fn small_writes_for_a_client_that_stops_cost_at_most_2_mib(engine) {
        stalled(SMALL, 2 * PIECE, |upstream| Setup::single(engine, upstream));
    }
}

#[test]
fn a_client_of_a_gateway_without_privileges_costs_at_most_2_mib() {
    if process::root_or_skip("becoming nobody") {
        let setup = |upstream: &_| Setup::single(Engine::Userspace, upstream).as_nobody();
        stalled(LARGE, 24 * PIECE, setup);
    }
}

/// Bytes a second that one stream gets through where a round trip takes [`ROUND_TRIP`].
const THROUGHPUT: f64 = 50e6;
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A busy machine gets a few chances: what buffers allow does not depend on it.
fn reaches_throughput(engine: Engine, far_instance: bool) {
    let Some(entered) = Network::wired(false, 1).and_then(Network::enter) else { return };
    let wires = entered.network().and_then(|network| network.wires.as_ref()).expect("wires");
    let mut wire = if far_instance { wires.instance() } else { wires.client() };
    wire.lengthen(ROUND_TRIP / 2);
    let (upstream, _) = flood(LARGE);
    let gateway = Setup::single(engine, &upstream).start();
    let mut seen = Vec::new();
    let reached = within(DEADLINE, || {
        let mut client = gateway.connect();
        client.send(chat("bulk"));
        client.head();
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
