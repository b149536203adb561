//! Mixed traffic for a while, over links between hosts: random exchanges with aborts on either side,
//! streams that stay open, new configurations, and someone who reads the metrics. At the end nothing
//! is left: no request in flight, no connection of user space or of the kernel, no entry of a map, no
//! descriptor; and memory has not gone on growing.
//!
//! `ATALHO_SEED` repeats what is random here (not the timing); `ATALHO_SOAK_SECONDS` sets how long it
//! takes, 1800 for half an hour.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use tests::{
    Gateway, Head, Network, Next, Peer, Setup, Upstream, chunked, eventually,
    for_each_engine_on_loopback,
    gateway::replace,
    message::{CHUNKED_HEAD, request},
    payload, process,
    traffic::{self, Baseline, Kind, Traffic, setting},
};

/// What the gateway's least memory of the last quarter may be above that of the second, in bytes. Large
/// buffers come and go, and their pages with them; what varies are small ones, by a tenth of this. In half an
/// hour, a million exchanges, 16 bytes lost by each would show.
const GROWTH: u64 = 8 << 20;
/// Streams that are open at a time.
const STREAMS: usize = 20;
/// Frames of a stream, one every few milliseconds.
const FRAMES: u64 = 300;
const FRAME_PAUSE: Duration = Duration::from_millis(5);

fn frame(number: u64) -> Vec<u8> {
    chunked::chunk(&payload::bytes(number, 80))
}

/// Streams tokens, or does what the plan of a random exchange says.
fn instance(peer: &mut Peer, head: &Head) -> Next {
    if head.target() != "/stream" {
        return traffic::exchange(peer, head);
    }
    let mut send = |bytes: &[u8]| peer.try_send(bytes).is_ok();
    if !send(CHUNKED_HEAD) {
        return Next::Close;
    }
    for number in 0..FRAMES {
        // The pace of the stream, which nothing waits for.
        std::thread::sleep(FRAME_PAUSE);
        if !send(&frame(number)) {
            return Next::Close;
        }
    }
    if send(b"0\r\n\r\n") { Next::Keep } else { Next::Close }
}

/// Opens a stream, over and over, and leaves most of them before their end.
fn streams(gateway: &Gateway, seed: u64, stop: &AtomicBool, done: &AtomicUsize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = gateway.connect();
    while !stop.load(Ordering::Relaxed) {
        client.send(request("GET", "/stream", ""));
        assert_eq!(client.head().status(), 200);
        let leaves = (rng.u8(..3) > 0).then(|| rng.u64(..FRAMES));
        for number in 0..leaves.unwrap_or(FRAMES) {
            client.expect(frame(number));
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
        match leaves {
            None => client.expect("0\r\n\r\n"),
            Some(_) => {
                let old = std::mem::replace(&mut client, gateway.connect());
                if rng.bool() { old.reset() } else { old.close() }
            }
        }
    }
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// TCP sockets of the gateway's host, those included that no process owns any more, but not those
/// that only wait for late packets.
fn kernel_sockets(network: &Network) -> u64 {
    let read = |family: &str, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{family}")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("its line");
        line.split_whitespace().nth(1).and_then(|count| count.parse::<u64>().ok()).expect("a count")
    };
    network.gateway.run(|| read("sockstat", "TCP:") + read("sockstat6", "TCP6:"))
}

for_each_engine_on_loopback! {
    fn nothing_is_left_behind(engine) {
        let seed = setting("ATALHO_SEED", fastrand::u64(..));
        println!("{engine:?}: ATALHO_SEED={seed}");
        let time = Duration::from_secs(setting("ATALHO_SOAK_SECONDS", 20));
        let Some(network) = Network::new(seed.is_multiple_of(2)) else { return };
        let entered = network.enter().unwrap();
        let network = entered.network().unwrap();
        let fleet = [Upstream::serve(instance), Upstream::serve(instance)];
        let setup = Setup::new(engine)
            .instances(&fleet)
            .set("threads", 2)
            .set("timeouts.pool_idle", "500ms")
            .set("log.level", "error");
        let gateway = setup.start();
        let baseline = Baseline::of(&gateway);
        let kernel = kernel_sockets(network);

        let (stop, streamed) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (mut resident, mut exchanges) = (Vec::new(), 0);
        std::thread::scope(|scope| {
            // However this ends, the streams end, or nobody would hear of it.
            let _stop = OnDrop(&stop);
            let background: Vec<_> = (0..STREAMS as u64)
                .map(|number| {
                    let (gateway, stop, streamed) = (&gateway, &stop, &streamed);
                    scope.spawn(move || streams(gateway, seed ^ number, stop, streamed))
                })
                .collect();
            // In quarters, so that there is something to compare.
            for quarter in 0..4 {
                let start = Instant::now();
                let (mut round, mut least) = (0, u64::MAX);
                while start.elapsed() < time / 4 {
                    let limit = (time / 4).saturating_sub(start.elapsed()).min(Duration::from_secs(2));
                    let traffic = Traffic {
                        seed: seed.wrapping_add(quarter << 32).wrapping_add(round << 16),
                        kind: Kind::Everything,
                        limit,
                        exchanges: usize::MAX,
                    };
                    exchanges += traffic.run(&gateway, &fleet).exchanges();
                    // A new configuration of the same fleet.
                    let names = round & 1 == 0;
                    let text = setup.clone().set("response_headers", names).text();
                    replace(&gateway.config_file(), &text);
                    least = least.min(process::resident(gateway.pid()));
                    // A busy machine takes a moment to see that a client has left.
                    eventually("only streams are in flight", || {
                        gateway.in_flight() <= STREAMS as u32
                    });
                    round += 1;
                }
                resident.push(least);
            }
            stop.store(true, Ordering::Relaxed);
            for thread in background {
                thread.join().expect("a stream as it should be");
            }
        });
        println!(
            "{engine:?}: {exchanges} exchanges and {} streams; resident {:?} KiB",
            streamed.load(Ordering::Relaxed),
            resident.iter().map(|bytes| bytes / 1024).collect::<Vec<_>>()
        );
        assert!(exchanges > 500 && streamed.load(Ordering::Relaxed) > STREAMS);
        gateway.expect_carried("response");
        baseline.expect_everything(&gateway, &fleet);
        eventually("no socket is left in the kernel", || kernel_sockets(network) <= kernel);
        let grown = resident[3].saturating_sub(resident[1]);
        assert!(grown < GROWTH, "grown by {} KiB: {resident:?}", grown / 1024);
        gateway.stop();
    }
}
