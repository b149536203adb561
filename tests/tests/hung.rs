//! Instances that stop to answer while requests are under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{
    Engine, Gate, Gateway, Next, Setup, Upstream, chunked, eventually, for_each_engine,
    message::{CHUNKED_HEAD, chat, request, response},
    wait::DEADLINE,
};

/// An instance that hangs when it is told to, as a stopped process does: connections are taken, and
/// nothing is answered, be it asked for its health or anything else. Dropping it lets it go.
struct Hanging {
    upstream: Upstream,
    hangs: Arc<AtomicBool>,
    go: Gate,
}

impl Hanging {
    /// Before it hangs it answers its health page, and holds other requests back.
    /// `begins` is what it sends of a response at once.
    fn new(begins: &'static [u8]) -> Self {
        let (hangs, go) = (Arc::new(AtomicBool::new(false)), Gate::new());
        let upstream = Upstream::serve({
            let (hangs, go) = (hangs.clone(), go.clone());
            move |peer, head| {
                let Ok(_) = peer.try_request_body(head) else { return Next::Close };
                if head.target() == "/health" {
                    if hangs.load(Ordering::SeqCst) {
                        go.wait();
                    }
                    return match peer.try_send(&response(200, "")) {
                        Ok(()) => Next::Keep,
                        Err(_) => Next::Close,
                    };
                }
                let _ = peer.try_send(begins);
                go.wait();
                if begins.is_empty() {
                    let _ = peer.try_send(&response(200, "late"));
                }
                Next::Close
            }
        });
        Self { upstream, hangs, go }
    }

    /// Requests that it holds back, until it hangs.
    fn held(&self) -> usize {
        self.go.waiting()
    }

    fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.go.open();
    }
}

fn checking(setup: Setup) -> Setup {
    setup
        .set("health.active", true)
        .set("health.interval", "100ms")
        .set("health.timeout", "100ms")
        .set("health.fall", 3)
}

fn status(gateway: &Gateway, instance: usize) -> String {
    let page = gateway.status();
    let status = &page["endpoints"][0]["variants"][0]["instances"][instance]["status"];
    status.as_str().expect("a status").to_owned()
}

for_each_engine! {
    fn a_request_that_waits_at_an_instance_found_down_is_answered_at_once(engine) {
        let instance = Hanging::new(b"");
        let gateway = checking(Setup::single(engine, &instance.upstream)).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        eventually("it waits for its answer", || instance.held() == 1);
        instance.hang();
        let answer = client.response();
        assert_eq!(answer.status(), 503, "{}", answer.head.first);
        assert_eq!(answer.get("x-atalho-error"), Some("instance_down"));
        assert!(answer.get("retry-after").is_some());
        gateway.expect_outcomes("instance_down", 1);
        gateway.expect_idle();
        // The connection is in order.
        assert!(!answer.closes());
        client.send(chat("y"));
    }

    fn a_response_whose_head_came_and_no_body_is_cut_when_its_instance_is_found_down(engine) {
        let instance = Hanging::new(CHUNKED_HEAD);
        let gateway = checking(Setup::single(engine, &instance.upstream)).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        assert_eq!(client.head().status(), 200);
        instance.hang();
        // Not an end that looks like a response's own.
        let (rest, _) = client.end();
        assert!(rest.is_empty(), "{rest:?}");
        gateway.expect_outcomes("instance_down", 1);
        gateway.expect_idle();
    }

    fn a_silent_stream_of_an_instance_whose_port_is_closed_ends_after_a_grace(engine) {
        let go = Gate::new();
        let mut upstream = Upstream::serve({
            let go = go.clone();
            move |peer, head| {
                let Ok(_) = peer.try_request_body(head) else { return Next::Close };
                if head.target() == "/health" {
                    let _ = peer.try_send(&response(200, ""));
                    return Next::Close;
                }
                let _ = peer.try_send(CHUNKED_HEAD);
                for _ in 0..20 {
                    let _ = peer.try_send(&chunked::chunk(b"token"));
                }
                go.wait();
                Next::Close
            }
        });
        let gateway = checking(Setup::single(engine, &upstream))
            .set("health.refused_grace", "500ms")
            .start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        assert_eq!(client.head().status(), 200);
        for _ in 0..20 {
            client.expect(chunked::chunk(b"token"));
        }
        assert!(!client.poll());
        upstream.close_port();
        let since = Instant::now();
        let (rest, _) = client.end();
        assert!(rest.is_empty(), "{rest:?}");
        assert!(since.elapsed() > Duration::from_millis(450), "{:?}", since.elapsed());
        gateway.expect_outcomes("instance_closed", 1);
        gateway.expect_line(&["its port is closed"]);
        gateway.expect_idle();
        go.open();
    }

    fn a_stream_that_goes_on_is_finished_whatever_its_instances_port_does(engine) {
        const CHUNKS: usize = 12;
        let mut upstream = Upstream::serve(|peer, head| {
            let Ok(_) = peer.try_request_body(head) else { return Next::Close };
            if head.target() == "/health" {
                let _ = peer.try_send(&response(200, ""));
                return Next::Close;
            }
            let _ = peer.try_send(CHUNKED_HEAD);
            for _ in 0..CHUNKS {
                // The pace of the stream, a fraction of the grace.
                std::thread::sleep(Duration::from_millis(250));
                let _ = peer.try_send(&chunked::chunk(b"token"));
            }
            let _ = peer.try_send(b"0\r\n\r\n");
            Next::Close
        });
        let gateway = checking(Setup::single(engine, &upstream))
            .set("health.refused_grace", "1500ms")
            .start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        assert_eq!(client.head().status(), 200);
        client.expect(chunked::chunk(b"token"));
        upstream.close_port();
        for _ in 1..CHUNKS {
            client.expect(chunked::chunk(b"token"));
        }
        client.expect(b"0\r\n\r\n");
        gateway.expect_outcomes("ok", 1);
        assert_eq!(status(&gateway, 0), "down", "its port was closed meanwhile");
    }
}

/// Sends requests until the instance holds one of them.
fn held_by(
    gateway: &Gateway,
    instance: &Hanging,
    request: impl Fn(usize) -> Vec<u8>,
) -> tests::Peer {
    let before = instance.held();
    for n in 0.. {
        let mut client = gateway.connect();
        client.send(request(n));
        let since = Instant::now();
        loop {
            if instance.held() > before {
                return client;
            }
            if client.poll() {
                assert_eq!(client.response().status(), 200);
                break;
            }
            assert!(since.elapsed() < DEADLINE, "neither held nor answered");
        }
    }
    unreachable!("one of two instances is chosen in the end")
}

#[test]
fn a_request_is_sent_elsewhere_where_that_is_allowed_or_does_no_harm() {
    let get = |_| request("GET", "/v1/responses/resp_1", "");
    let post = |n| chat(&format!("{n}"));
    for (allowed, expected) in [(true, 200), (false, 503)] {
        let (instance, other) = (Hanging::new(b""), Upstream::ok());
        let gateway = checking(Setup::new(Engine::Userspace))
            .instances([&instance.upstream, &other])
            .prefix_aware(1024, 100)
            .set("health.resend", allowed)
            .start();
        let mut client = held_by(&gateway, &instance, post);
        instance.hang();
        assert_eq!(client.response().status(), expected);
        gateway.expect_outcomes("instance_down", 1);
        let resent = gateway.metric("atalho_retries_total", &[("reason", "down")]);
        assert_eq!(resent, f64::from(u8::from(allowed)));
        gateway.expect_idle();
    }
    // What is idempotent may be done twice.
    let (instance, other) = (Hanging::new(b""), Upstream::ok());
    let gateway = checking(Setup::new(Engine::Userspace))
        .instances([&instance.upstream, &other])
        .routing("strategy", "random")
        .start();
    let mut client = held_by(&gateway, &instance, get);
    instance.hang();
    assert_eq!(client.response().status(), 200);
    gateway.expect_idle();
}

#[test]
fn a_hung_engine_behind_a_healthy_front_gets_a_few_requests_until_it_answers_one() {
    // Its health page is well all the time.
    let (hung, other) = (Hanging::new(b""), Upstream::ok());
    let gateway = checking(Setup::new(Engine::Userspace))
        .instances([&hung.upstream, &other])
        .prefix_aware(1024, 100)
        .set("health.suspect_after", 3)
        .set("health.suspect_wait", "50ms")
        .start();
    let mut next = 0;
    for given_up in 0..3 {
        assert_eq!(status(&gateway, 0), "up", "{given_up}");
        let client = held_by(&gateway, &hung, |n| chat(&format!("{}", next + n)));
        next += 1000;
        // As long as the client waits.
        std::thread::sleep(Duration::from_millis(100));
        client.close();
        gateway.expect_outcomes("client_gone", given_up + 1);
    }
    eventually("it is suspect", || status(&gateway, 0) == "suspect");
    gateway.expect_line(&["instance suspect", &hung.upstream.url()]);
    // Of forty prompts, half are at home there.
    let before = gateway.outcomes("ok");
    let mut clients: Vec<_> = (0..40)
        .map(|n| {
            let mut client = gateway.connect();
            client.send(chat(&format!("{}", next + n)));
            client
        })
        .collect();
    eventually("the others are answered", || {
        gateway.in_flight() == 2 && gateway.outcomes("ok") >= before + 38
    });
    assert_eq!(hung.held(), 3 + 2);
    let answered = clients.iter_mut().filter_map(|client| client.poll().then_some(()));
    assert_eq!(answered.count(), 38);
    hung.go.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    eventually("it is trusted again", || status(&gateway, 0) == "up");
    gateway.expect_line(&["no longer suspect", &hung.upstream.url()]);
}
