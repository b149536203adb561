//! Time limits are on idleness and on the first byte, never on a stream's length.

use std::time::{Duration, Instant};

use tests::{
    End, Engine, Peer, Setup, Upstream, chunked, for_each_engine_and_driver,
    message::{CHUNKED_HEAD, chat, chunked_request, request, response},
    payload,
};

const SHORT: &str = "400ms";
const SHORT_TIME: Duration = Duration::from_millis(400);

for_each_engine_and_driver! {
    fn a_stream_that_stands_still_is_aborted(engine) {
        let upstream = Upstream::manual();
        let gateway =
            Setup::single(engine, &upstream).set("timeouts.stream_idle", SHORT).start();
        for sized in [true, false] {
            let mut client = gateway.connect();
            client.send(chat("x"));
            let mut instance = upstream.accept();
            instance.request();
            if sized {
                instance.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
            } else {
                instance.send(CHUNKED_HEAD);
            }
            client.head();
            instance.send("5\r\nhello\r\n");
            client.expect("5\r\nhello\r\n");
            client.expect_end();
            instance.end();
        }
        gateway.expect_outcomes("timeout_idle", 2);
        gateway.expect_idle();
    }

    fn a_stream_may_last_longer_than_any_limit(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream)
            .set("timeouts.stream_idle", "1s")
            .set("timeouts.first_byte", "1s")
            .set("timeouts.body_idle", "1s")
            .set("timeouts.head", "1s")
            .set("timeouts.client_idle", "1s")
            .start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        let start = Instant::now();
        let mut count = 0_u32;
        // The pause is what is tested: an instance that makes a token now and then.
        while start.elapsed() < Duration::from_millis(2500) {
            let chunk = chunked::chunk(format!("token {count}").as_bytes());
            instance.send(&chunk);
            client.expect(&chunk);
            std::thread::sleep(Duration::from_millis(100));
            count += 1;
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        gateway.expect_outcomes("ok", 1);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn an_upload_that_stands_still_is_aborted(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("timeouts.body_idle", SHORT).start();
        let body = payload::bytes(1, 600_000);
        for sent in [
            request("POST", "/any", &body),
            chunked_request("/any", chunked::encode(body.chunks(10_000))),
        ] {
            let mut client = gateway.connect();
            client.send(&sent[..300_000]);
            let mut instance = upstream.accept();
            instance.head();
            let (_, end) = client.end_or_error(408);
            assert!(matches!(end, End::Closed | End::Reset));
            let (got, _) = instance.end();
            assert!(!got.ends_with(b"\r\n0\r\n\r\n"));
        }
        gateway.expect_outcomes("timeout_idle", 2);
        gateway.expect_idle();
    }

    fn an_instance_that_does_not_answer_is_given_up(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("timeouts.first_byte", SHORT).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        let start = Instant::now();
        let answer = client.response();
        assert!(start.elapsed() + Duration::from_millis(50) >= SHORT_TIME);
        assert_eq!(answer.status(), 504);
        assert!(answer.get("x-atalho-error").is_some());
        instance.expect_end();
        // The client's connection is in order.
        client.send(chat("y"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "fast"));
        assert_eq!(client.response().payload(), b"fast");
        gateway.expect_outcomes("timeout_first_byte", 1);
        gateway.expect_idle();
    }

    fn a_head_without_a_body_is_not_taken_for_the_first_byte(engine) {
        let upstream = Upstream::manual();
        // Handed over from the head on, and from the first byte on.
        for from in [0, 1] {
            let gateway = Setup::single(engine, &upstream)
                .set("engine.hand_over_from_bytes", from)
                .set("engine.hand_over_from_reads", from)
                .set("timeouts.first_byte", SHORT)
                .start();
            let mut client = gateway.connect();
            client.send(chat("x"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            instance.expect_end();
            client.expect_end();
            gateway.expect_outcomes("timeout_first_byte", 1);
            gateway.expect_idle();
        }
    }

    fn what_has_begun_may_pause_for_longer_than_the_first_byte_may_take(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream)
            .set("engine.hand_over_from_bytes", 1)
            .set("engine.hand_over_from_reads", 1)
            .set("timeouts.first_byte", SHORT)
            .start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for _ in 0..3 {
            instance.send("5\r\ntoken\r\n");
            client.expect("5\r\ntoken\r\n");
            // The pause is what is tested.
            std::thread::sleep(SHORT_TIME * 2);
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        gateway.expect_outcomes("ok", 1);
    }

    fn the_first_byte_is_waited_for_after_a_slow_upload(engine) {
        // The time runs from the end of the request, not from its beginning.
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("timeouts.first_byte", "1s").start();
        let mut client = gateway.connect();
        let sent = request("POST", "/any", payload::bytes(1, 200_000));
        let start = Instant::now();
        let mut at = 0;
        while start.elapsed() < Duration::from_millis(1500) {
            client.send(&sent[at..at + 5_000]);
            at += 5_000;
            std::thread::sleep(Duration::from_millis(60));
        }
        client.send(&sent[at..]);
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "ok"));
        assert_eq!(client.response().payload(), b"ok");
        gateway.expect_idle();
    }
}

trait EndOrError {
    fn end_or_error(&mut self, status: u16) -> (Vec<u8>, End);
}

impl EndOrError for Peer {
    /// Takes the end of the connection; before it, only an answer with this status may come.
    fn end_or_error(&mut self, status: u16) -> (Vec<u8>, End) {
        let (rest, end) = self.end();
        let text = String::from_utf8_lossy(&rest);
        assert!(
            rest.is_empty() || text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{status} expected: {text}"
        );
        (rest, end)
    }
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).set("timeouts.head", SHORT).start();
    let mut client = gateway.connect();
    let start = Instant::now();
    client.send("GET /x HTTP/1.1\r\n");
    // The limit is on the whole head: a byte now and then does not extend it.
    let mut dripping = 0;
    while client.seen_end().is_none() && start.elapsed() < Duration::from_secs(10) {
        if client.try_send(b"X").is_ok() {
            dripping += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
        client.poll();
    }
    assert!(dripping > 2);
    let text = String::from_utf8_lossy(client.pending()).into_owned();
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!(start.elapsed() < Duration::from_secs(8), "the head was never given up");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn an_idle_client_connection_is_closed() {
    let upstream = Upstream::ok();
    let gateway =
        Setup::single(Engine::Userspace, &upstream).set("timeouts.client_idle", SHORT).start();
    // Before the first request, and between requests.
    let mut fresh = gateway.connect();
    let mut used = gateway.connect();
    assert_eq!(used.ask(chat("x")).status(), 200);
    assert_eq!(used.expect_end(), End::Closed);
    assert_eq!(fresh.expect_end(), End::Closed);
}

#[test]
fn an_instance_that_cannot_be_reached_in_time_is_given_up() {
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
        Setup::new(Engine::Userspace).instance(address).set("timeouts.connect", SHORT).start();
    let answer = gateway.ask(chat("x"));
    assert_eq!(answer.status(), 503, "{}", answer.head.first);
    gateway.expect_outcomes("timeout_connect", 1);
    gateway.expect_idle();
}
