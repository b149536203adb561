//! Memory is bounded, whoever stalls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tests::{
    Engine, Next, Peer, Setup, Upstream, cgroup::Cgroup, for_each_engine_on_loopback,
    message::chat, payload, process, wait::settled,
};

const CLIENTS: u64 = 200;
/// What each of them may cost the gateway's host.
const EACH: u64 = 2 << 20;
/// What the instance sends to each: more than may be held for it.
const BODY: usize = 8 << 20;

for_each_engine_on_loopback! {
    fn stalled_clients_of_a_flat_out_instance_cost_little_and_lose_nothing(engine) {
        let body = Arc::new(payload::bytes(1, BODY));
        let sent = Arc::new(AtomicU64::new(0));
        let upstream = Upstream::serve({
            let (body, sent) = (body.clone(), sent.clone());
            move |peer, head| {
                if peer.try_request_body(head).is_err() {
                    return Next::Close;
                }
                let socket = socket2::SockRef::from(peer.stream());
                socket.set_send_buffer_size(64 * 1024).unwrap();
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
                for piece in body.chunks(16 * 1024) {
                    if peer.try_send(piece).is_err() {
                        return Next::Close;
                    }
                    sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                Next::Keep
            }
        });
        let gateway = Setup::single(engine, &upstream).set("threads", 2).start();
        gateway.ask_and_drop();
        let resident = process::resident(gateway.pid());
        let cgroup = match Cgroup::of(gateway.pid()) {
            Ok(cgroup) => cgroup,
            Err(error) => return process::skip(&error),
        };
        let before = cgroup.bytes();
        let mut clients: Vec<Peer> = (0..CLIENTS)
            .map(|_| {
                let mut client = Peer::connect_narrow(gateway.address(), 16 * 1024);
                client.send(chat("flood"));
                client
            })
            .collect();
        let taken = settled("the instance's sending", Duration::from_millis(700), || {
            sent.load(Ordering::Relaxed)
        });
        assert_eq!(gateway.in_flight() as u64, CLIENTS);
        let grown = process::resident(gateway.pid()).saturating_sub(resident);
        println!(
            "{engine:?}: {} KiB taken and {} KiB resident per stalled client",
            taken / CLIENTS / 1024,
            grown / CLIENTS / 1024
        );
        assert!(taken < CLIENTS * EACH, "{} KiB each were taken", taken / CLIENTS / 1024);
        // Of the process, and of its sockets.
        let charged = cgroup.bytes().saturating_sub(before);
        assert!(charged < CLIENTS * EACH, "{} KiB each are charged", charged / CLIENTS / 1024);

        // They read on, all at once: every byte comes.
        std::thread::scope(|scope| {
            for clients in clients.chunks_mut(25) {
                let body = &body;
                scope.spawn(move || {
                    for client in clients {
                        assert_eq!(client.head().status(), 200);
                        payload::assert_same("body", &client.take_exact(BODY), body);
                    }
                });
            }
        });
        gateway.expect_carried_unless("response", &[(Engine::Splice, "window")]);
        gateway.expect_idle();
    }

    fn requests_do_not_leave_memory_behind(engine) {
        let upstream = Upstream::answering(|request| {
            tests::message::response(200, vec![b'x'; request.body.len() * 3])
        });
        let gateway = Setup::single(engine, &upstream).set("threads", 2).start();
        let round = |count: usize| {
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let gateway = &gateway;
                    scope.spawn(move || {
                        for n in 0..count {
                            let mut client = gateway.connect();
                            for size in [100, 20_000] {
                                let text = payload::text((n * 2 + thread) as u64, size);
                                assert_eq!(client.ask(chat(&text)).status(), 200);
                            }
                        }
                    });
                }
            });
            process::resident(gateway.pid())
        };
        let warm = round(300);
        let later = round(1500);
        let grown = later.saturating_sub(warm);
        assert!(grown < 4 << 20, "3,000 connections left {} KiB behind", grown / 1024);
    }
}

trait AskAndDrop {
    fn ask_and_drop(&self);
}

impl AskAndDrop for tests::Gateway {
    /// One exchange that warms everything up, and is broken off.
    fn ask_and_drop(&self) {
        let mut client = self.connect();
        client.send(chat("warm"));
        client.head();
        drop(client);
        self.expect_idle();
    }
}

#[test]
fn a_client_that_never_finishes_its_decision_is_bounded() {
    // A prompt without end: the gateway must decide with what it has, or refuse.
    let upstream = Upstream::manual();
    let gateway = Setup::single(tests::Engine::Userspace, &upstream)
        .set("limits.decision_bytes", 1 << 20)
        .start();
    let before = process::resident(gateway.pid());
    let mut client = gateway.connect();
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 90000000\r\n\r\n\
         {\"messages\":[{\"content\":\"",
    );
    client.send(vec![b'a'; 2 << 20]);
    let mut instance = upstream.accept();
    instance.head();
    instance.take_exact(1 << 20);
    let grown = process::resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 8 << 20, "{} KiB", grown / 1024);
}

#[test]
fn heads_that_never_end_do_not_pile_up() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(tests::Engine::Userspace, &upstream).start();
    gateway.ask(chat("warm"));
    let before = process::resident(gateway.pid());
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = gateway.connect();
        client.send("GET /x HTTP/1.1\r\nHost: h\r\nX: ".to_owned() + &"a".repeat(30_000));
        clients.push(client);
    }
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    let grown = process::resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 200 * 160 * 1024, "{} KiB each", grown / 200 / 1024);
}
