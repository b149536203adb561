//! Either side may leave at any moment: the other one hears of it, and nothing is left behind.

use std::time::{Duration, Instant};

use tests::{
    End, Engine, Gateway, Next, Peer, Setup, Upstream, bpf, chunked, eventually,
    for_each_engine_and_network, for_each_engine_on_loopback,
    message::{CHUNKED_HEAD, chat, chunked_request, request, response},
    payload, process,
    wait::{CANCELLATION, expect_within, favour},
};

fn start(engine: Engine) -> (Upstream, Gateway) {
    let upstream = Upstream::manual();
    let gateway = Setup::single(engine, &upstream).start();
    (upstream, gateway)
}

/// Leaves as a client does that is done, is killed, or whose machine resets.
fn leave(client: Peer, how: usize) {
    match how % 3 {
        0 => client.close(),
        1 => client.reset(),
        // A FIN, while the descriptor stays: clients that close look just like that.
        _ => {
            client.finish();
            std::mem::forget(client);
        }
    }
}

/// How often a client leaves in a test that measures how soon the instance hears of it.
const ROUNDS: usize = 9;

/// Leaves; how soon the instance hears of it, and what came to it before.
#[track_caller]
fn leave_and_time(client: Peer, instance: &mut Peer, how: usize) -> (Duration, Vec<u8>) {
    let start = Instant::now();
    leave(client, how);
    let (rest, _) = instance.end();
    (start.elapsed(), rest)
}

for_each_engine_and_network! {
    fn a_client_that_leaves_before_the_first_byte_cancels_the_work(engine) {
        let (upstream, gateway) = start(engine);
        favour(gateway.pid());
        let times: [_; ROUNDS] = std::array::from_fn(|how| {
            let mut client = gateway.connect();
            client.send(chat("think hard"));
            let mut instance = upstream.accept();
            instance.request();
            leave_and_time(client, &mut instance, how).0
        });
        expect_within(CANCELLATION, &times);
        gateway.expect_outcomes("client_gone", ROUNDS as u64);
        gateway.expect_idle();
    }

    fn a_client_that_leaves_mid_stream_cancels_the_work(engine) {
        let (upstream, gateway) = start(engine);
        favour(gateway.pid());
        let times: [_; ROUNDS] = std::array::from_fn(|how| {
            let mut client = gateway.connect();
            client.send(chat("stream"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            for _ in 0..10 {
                instance.send(chunked::chunk(b"data: x\n\n"));
                client.expect(chunked::chunk(b"data: x\n\n"));
            }
            leave_and_time(client, &mut instance, how).0
        });
        expect_within(CANCELLATION, &times);
        gateway.expect_outcomes("client_gone", ROUNDS as u64);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn a_client_that_leaves_between_head_and_body_cancels_the_work(engine) {
        let (upstream, gateway) = start(engine);
        favour(gateway.pid());
        let times: [_; ROUNDS] = std::array::from_fn(|how| {
            let mut client = gateway.connect();
            client.send(chat("plain"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            client.head();
            leave_and_time(client, &mut instance, how).0
        });
        expect_within(CANCELLATION, &times);
        gateway.expect_outcomes("client_gone", ROUNDS as u64);
        gateway.expect_idle();
    }

    fn a_client_that_leaves_in_the_middle_of_its_upload_cancels_it(engine) {
        let (upstream, gateway) = start(engine);
        favour(gateway.pid());
        let mut times = Vec::new();
        let body = payload::bytes(1, 1_000_000);
        for how in 0..ROUNDS {
            for sent in [
                request("POST", "/any", &body),
                chunked_request("/any", chunked::encode(body.chunks(10_000))),
            ] {
                let mut client = gateway.connect();
                client.send(&sent[..400_000]);
                let mut instance = upstream.accept();
                instance.head();
                let (took, got) = leave_and_time(client, &mut instance, how);
                times.push(took);
                // Never a complete request: no invented end.
                assert!(got.len() < body.len() && !got.ends_with(b"\r\n0\r\n\r\n"));
            }
        }
        expect_within(CANCELLATION, &times);
        gateway.expect_outcomes("client_gone", 2 * ROUNDS as u64);
        gateway.expect_idle();
    }

    fn a_client_that_leaves_a_stalled_stream_is_noticed(engine) {
        // Its window is full, so nobody could tell by writing.
        let (upstream, gateway) = start(engine);
        favour(gateway.pid());
        let mut times = Vec::new();
        for how in [0, 1, 0] {
            let mut client = Peer::connect_narrow(gateway.address(), 8 * 1024);
            client.send(chat("flood"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            let chunk = chunked::chunk(&payload::bytes(1, 64 * 1024));
            // More than the system lets three sockets hold: 32 MiB in one, where it is generous.
            let flood = chunk.repeat(1024);
            let calm = Duration::from_millis(200);
            assert!(instance.stuff(&flood, calm) < flood.len(), "it never stalled");
            times.push(leave_and_time(client, &mut instance, how).0);
            // Also when it only writes, and never reads.
            let start = Instant::now();
            assert!(instance.try_send(&flood).is_err());
            assert!(start.elapsed() < Duration::from_secs(5), "blocked for {:?}", start.elapsed());
        }
        expect_within(CANCELLATION, &times);
        gateway.expect_outcomes("client_gone", 3);
        gateway.expect_idle();
    }

    fn an_upload_whose_instance_dies_does_not_block_its_client(engine) {
        let (upstream, gateway) = start(engine);
        let body = payload::bytes(2, 64 << 20);
        let mut client = gateway.connect();
        let sent = request("POST", "/any", &body);
        client.send(&sent[..1000]);
        let mut instance = upstream.accept();
        instance.head();
        instance.take_exact(100);
        let calm = Duration::from_millis(200);
        let taken = client.stuff(&sent[1000..], calm);
        assert!(taken < body.len() - (1 << 20), "it never stalled");
        instance.reset();
        let start = Instant::now();
        assert!(client.try_send(&sent[1000 + taken..]).is_err());
        assert!(start.elapsed() < Duration::from_secs(10), "blocked for {:?}", start.elapsed());
        gateway.expect_idle();
    }

    fn an_instance_that_dies_mid_response_aborts_the_client(engine) {
        let (upstream, gateway) = start(engine);
        let mut count = 0;
        for reset in [false, true] {
            for steps in [0, 1, 5] {
                for sized in [false, true] {
                    let mut client = gateway.connect();
                    client.send(chat("stream"));
                    let mut instance = upstream.accept();
                    instance.request();
                    if sized {
                        instance.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                    } else {
                        instance.send(CHUNKED_HEAD);
                    }
                    client.head();
                    for number in 0..steps {
                        let piece = chunked::chunk(&payload::bytes(number, 1000));
                        instance.send(&piece);
                        client.expect(&piece);
                    }
                    // In the middle of a chunk, and at a place where a chunk could begin.
                    if steps == 5 {
                        instance.send("5\r\nab");
                        client.expect("5\r\nab");
                    }
                    if reset { instance.reset() } else { instance.close() }
                    // Whether by FIN or RST: the framing says that more was to come, and nothing
                    // may be made up that says otherwise.
                    client.expect_end();
                    count += 1;
                }
            }
        }
        gateway.expect_outcomes("upstream_aborted", count);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn what_an_instance_sent_before_its_reset_is_an_answer(engine) {
        let (upstream, gateway) = start(engine);
        let body = payload::bytes(1, 300_000);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let request = chunked_request("/any", chunked::encode(body.chunks(5_000)));
        let rounds = 10;
        for _ in 0..rounds {
            // A part of it.
            let mut client = gateway.connect();
            client.send(&request);
            let mut instance = upstream.accept();
            instance.request();
            instance.send_in_pieces(&head, 5);
            instance.let_go(0);
            instance.reset();
            assert_eq!(client.head().status(), 200);
            let (part, _) = client.end();
            assert!(part.is_empty());

            // All of it.
            let mut client = gateway.connect();
            client.send(&request);
            let mut instance = upstream.accept();
            instance.request();
            instance.send(&head);
            client.head();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    instance.send(&body);
                    instance.let_go(0);
                    instance.reset();
                });
                payload::assert_same("body", &client.take_exact(body.len()), &body);
            });
        }
        gateway.expect_outcomes("upstream_aborted", rounds);
        gateway.expect_outcomes("ok", rounds);
        gateway.expect_idle();
    }

    fn an_instance_that_closes_behind_its_last_byte_ends_cleanly(engine) {
        // The FIN comes with the end of the body: the answer is complete, and kept alive.
        let (upstream, gateway) = start(engine);
        let mut client = gateway.connect();
        for round in 0..10 {
            client.send(chat("x"));
            let mut instance = upstream.accept();
            instance.request();
            let body = payload::bytes(round, 50_000);
            instance.send(response(200, &body));
            instance.close();
            payload::assert_same("body", &client.response().body, &body);
        }
        gateway.expect_outcomes("ok", 10);
        gateway.expect_idle();
    }

    fn a_response_until_close_that_is_reset_is_no_clean_end(engine) {
        let (upstream, gateway) = start(engine);
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send("HTTP/1.1 200 OK\r\n\r\n");
        client.head();
        instance.send("part");
        client.expect("part");
        instance.reset();
        assert_eq!(client.expect_end(), End::Reset);
        gateway.expect_outcomes("upstream_aborted", 1);
        gateway.expect_idle();
    }

    fn half_closed_clients_are_served_when_told_to(engine) {
        let upstream = Upstream::manual();
        let gateway =
            Setup::single(engine, &upstream).set("half_closed_clients", true).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        client.finish();
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..20 {
            let piece = chunked::chunk(&payload::bytes(number, 500));
            instance.send(&piece);
            client.expect(&piece);
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        assert_eq!(client.expect_end(), End::Closed);
        gateway.expect_outcomes("ok", 1);

        // A FIN in the middle of the stream; and one that resets is still seen.
        let mut client = gateway.connect();
        client.send(chat("x"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        instance.send("1\r\na\r\n");
        client.expect("1\r\na\r\n");
        client.finish();
        for _ in 0..10 {
            instance.send("1\r\nb\r\n");
            client.expect("1\r\nb\r\n");
        }
        client.reset();
        instance.end();
        gateway.expect_outcomes("client_gone", 1);
        gateway.expect_idle();
    }

    fn a_storm_of_aborts_leaves_nothing_behind(engine) {
        let upstream = Upstream::serve(|peer, head| {
            let Ok(_) = peer.try_request_body(head) else { return Next::Close };
            let number: usize = head.target().rsplit('/').next().unwrap().parse().unwrap();
            let _ = peer.try_send(CHUNKED_HEAD);
            for _ in 0..number % 7 {
                let _ = peer.try_send(&chunked::chunk(&[b'x'; 3000]));
            }
            match number % 5 {
                0 => Next::Reset,
                1 => Next::Close,
                _ => {
                    let _ = peer.try_send(b"0\r\n\r\n");
                    Next::Keep
                }
            }
        });
        let gateway = Setup::single(engine, &upstream).set("threads", 2).start();
        assert!(gateway.ask(request("POST", "/3", "x")).status() == 200);
        let baseline = process::sockets(gateway.pid());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let gateway = &gateway;
                scope.spawn(move || {
                    for number in 0..100_usize {
                        let mut client = gateway.connect();
                        client.send(request("POST", &format!("/{}", number + thread), "x"));
                        match (number + thread) % 3 {
                            0 => leave(client, number),
                            1 => {
                                let _ = client.try_head();
                                leave(client, number);
                            }
                            _ => {
                                client.end_or_response();
                            }
                        }
                    }
                });
            }
        });
        gateway.expect_idle();
        // Those that left with a FIN only are still open on our side; everything else is closed.
        eventually("the instance's connections are closed, or pooled", || {
            let idle = gateway.metric("atalho_pool_idle_connections", &[]) as usize;
            upstream.open() <= idle
        });
        eventually("no descriptor is left", || {
            process::sockets(gateway.pid()) <= baseline + upstream.open()
        });
    }
}

trait EndOrResponse {
    fn end_or_response(&mut self);
}

impl EndOrResponse for Peer {
    /// Takes a response, or the end that came instead.
    fn end_or_response(&mut self) {
        if let Ok(head) = self.try_head() {
            let _ = self.try_response_body(&head, "POST");
        }
    }
}

#[test]
fn a_client_that_leaves_while_its_instance_is_being_connected_to_is_noticed() {
    // Nobody answers the handshake: the listen queue of one is full.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) =
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
    {
        fill.push(stream);
    }
    let gateway =
        Setup::new(Engine::Userspace).instance(address).set("timeouts.connect", "60s").start();
    let mut client = gateway.connect();
    client.send(chat("x"));
    eventually("it is in flight", || gateway.in_flight() == 1);
    client.close();
    gateway.expect_idle();
    gateway.expect_outcomes("client_gone", 1);
}

#[test]
fn an_idle_client_that_leaves_is_forgotten() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let baseline = process::sockets(gateway.pid());
    for how in 0..30 {
        let mut client = gateway.connect();
        if how % 2 == 0 {
            assert_eq!(client.ask(request("GET", "/", "")).status(), 200);
        }
        leave(client, how % 2);
    }
    eventually("no client is left", || {
        gateway.metric("atalho_client_connections_open", &[]) == 0.0
            && process::sockets(gateway.pid()) <= baseline + upstream.open()
    });
}

for_each_engine_on_loopback! {
    fn what_was_reset_is_soon_forgotten_by_the_kernel_too(engine) {
        // An entry that stays until nobody could send any more would stay for two minutes.
        let (upstream, gateway) = start(engine);
        let entries = || bpf::Objects::of(gateway.pid()).entries();
        let before = entries();
        for (ended, by_client) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut client = gateway.connect();
            client.send(chat("stream"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            let carried = gateway.carried(engine, "response");
            let token = chunked::chunk(b"data: token\n\n");
            for _ in 0..50 {
                instance.send(&token);
                client.expect(&token);
            }
            if ended {
                instance.send("0\r\n\r\n");
                client.expect("0\r\n\r\n");
                gateway.expect_idle();
            }
            // One that is at rest ends alone.
            if by_client {
                client.reset();
            } else {
                instance.reset();
            }
            gateway.expect_idle();
            assert!(gateway.carried(engine, "response") > carried);
        }
        eventually("no entry is left", || entries() == before);
    }
}
