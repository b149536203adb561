//! Take-overs in a row, under streams and requests. `ATALHO_TAKE_OVERS` says how many, `ATALHO_STREAMS` under how
//! many streams: 50 and 200 are what is promised.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use tests::{
    Engine, Gate, Head, Next, Peer, Setup, Upstream, chunked, eventually,
    message::{CHUNKED_HEAD, chat, request, response},
    payload,
    traffic::setting,
};

use super::take_over;

/// Of a stream's frames.
const PAUSE: Duration = Duration::from_millis(10);
/// Threads that send short requests, half of them on connections of their own.
const CLIENTS: usize = 4;

fn frame(number: u64) -> Vec<u8> {
    chunked::chunk(&payload::bytes(number, 120))
}

/// Streams until the gate opens, or answers at once.
fn instance(peer: &mut Peer, head: &Head, gate: &Gate) -> Next {
    let Ok(_) = peer.try_request_body(head) else { return Next::Close };
    if head.target() != "/stream" {
        return if peer.try_send(&response(200, "ok")).is_ok() { Next::Keep } else { Next::Close };
    }
    let mut sent = peer.try_send(CHUNKED_HEAD);
    let mut number = 0;
    while sent.is_ok() && !gate.is_open() {
        sent = peer.try_send(&frame(number));
        number += 1;
        // The pace of the stream, which nothing waits for.
        std::thread::sleep(PAUSE);
    }
    match sent.and_then(|()| peer.try_send(b"0\r\n\r\n")) {
        Ok(()) => Next::Keep,
        Err(_) => Next::Close,
    }
}

/// Follows a stream to its end; how many frames it had.
fn stream(to: SocketAddr, begun: &AtomicUsize) -> u64 {
    let mut client = Peer::connect(to);
    client.send(request("POST", "/stream", ""));
    assert_eq!(client.head().status(), 200);
    begun.fetch_add(1, Relaxed);
    for number in 0.. {
        let expected = frame(number);
        let end = b"0\r\n\r\n";
        let start = client.take_exact(end.len());
        if start == end {
            return number;
        }
        assert_eq!(start, expected[..end.len()], "frame {number}");
        assert_eq!(client.take_exact(expected.len() - end.len()), expected[end.len()..]);
    }
    unreachable!("a stream has an end")
}

/// Asks again and again; how often.
fn ask(to: SocketAddr, keeps: bool, stop: &AtomicBool) -> usize {
    let mut asked = 0;
    let mut kept = None;
    while !stop.load(Relaxed) {
        let mut client = kept.take().unwrap_or_else(|| Peer::connect(to));
        let answer = client.ask(chat(&format!("{asked}")));
        assert_eq!(answer.status(), 200);
        asked += 1;
        if keeps && !answer.closes() {
            kept = Some(client);
        }
    }
    asked
}

#[test]
fn upgrades_in_a_row_cut_nothing() {
    let (times, count) = (setting("ATALHO_TAKE_OVERS", 4), setting("ATALHO_STREAMS", 40));
    let gate = Gate::new();
    let fleet: [Upstream; 3] = std::array::from_fn(|_| {
        let gate = gate.clone();
        Upstream::serve(move |peer, head| instance(peer, head, &gate))
    });
    let setup =
        Setup::new(Engine::Userspace).instances(&fleet).prefix_aware(1024, 1024).set("threads", 2);
    let modes = ["userspace", "splice", "sockmap"];
    let mut gateways = vec![setup.start()];
    let address = gateways[0].address();
    let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                scope.spawn({
                    let stop = &stop;
                    move || ask(address, n % 2 == 0, stop)
                })
            })
            .collect();
        let mut streams = Vec::new();
        for (n, mode) in (1..=times as usize).zip(modes.iter().cycle().skip(1)) {
            // Some begin under each gateway.
            let wanted = count as usize * n / times as usize;
            while streams.len() < wanted {
                streams.push(scope.spawn({
                    let begun = &begun;
                    move || stream(address, begun)
                }));
            }
            eventually("the streams have begun", || begun.load(Relaxed) == wanted);
            let old = gateways.last().expect("one at least");
            let next = setup.clone().set("engine.mode", *mode);
            gateways.push(take_over(&next, old));
        }
        let newest = gateways.last().expect("one at least");
        assert_eq!(newest.metric("atalho_errors_total", &[]), 0.0);
        stop.store(true, Relaxed);
        for client in clients {
            let asked = client.join().expect("every request is answered");
            assert!(asked > 0);
        }
        gate.open();
        for stream in streams {
            let frames = stream.join().expect("no stream is cut");
            assert!(frames > 0);
        }
    });
    let newest = gateways.pop().expect("one at least");
    for mut old in gateways {
        assert!(old.wait().success());
    }
    assert_eq!(newest.in_flight(), 0);
    let failed: Vec<_> = fleet.iter().flat_map(Upstream::failures).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
