//! A pooled connection may turn out to be dead: the request is sent again, if it cannot be carried out
//! twice by that.

use std::time::Duration;

use tests::{
    End, Engine, Gateway, Next, Peer, Setup, Upstream, chunked, for_each_engine,
    gate::Gate,
    message::{chat, chunked_request, request, request_with, response},
    payload,
};

/// A gateway with a warm pooled connection to its instance.
fn warm(engine: Engine) -> (Upstream, Gateway, Peer, Peer) {
    let upstream = Upstream::manual();
    // The pool shall not close it before the test does.
    let gateway = Setup::single(engine, &upstream).set("timeouts.pool_idle", "60s").start();
    let mut client = gateway.connect();
    let instance = warm_up(&mut client, &upstream);
    (upstream, gateway, client, instance)
}

fn retried(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("atalho_retries_total", &[("reason", reason)])
}

/// Bodies that the gateway has whole before it sends the request on, and those that it has not.
fn requests() -> [Vec<u8>; 4] {
    let long = payload::bytes(1, 300_000);
    let form = [
        &b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"[..],
        &long,
        b"\r\n--x--\r\n",
    ]
    .concat();
    let multipart = [("Content-Type", "multipart/form-data; boundary=x")];
    [
        chat("again"),
        request("POST", "/invocations", &long),
        request_with("POST", "/v1/audio/transcriptions", &multipart, form),
        chunked_request("/invocations", chunked::encode(long.chunks(10_000))),
    ]
}

/// Speaks once, so that the connection goes to the pool.
fn warm_up(client: &mut Peer, upstream: &Upstream) -> Peer {
    client.send(chat("warm"));
    let mut instance = upstream.accept();
    assert_eq!(instance.request().json()["messages"][0]["content"], "warm");
    instance.send(response(200, "w"));
    assert_eq!(client.response().payload(), b"w");
    instance
}

for_each_engine! {
    fn a_stale_connection_stays_hidden(engine) {
        if !tests::process::root_or_skip("forgetting a connection") {
            return;
        }
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        for sent in requests() {
            // The instance's host has forgotten it, and answers the request with a reset.
            instance.vanish();
            client.send(&sent);
            instance = upstream.accept();
            let got = instance.request();
            payload::assert_same("body", &got.body, &sent[sent.len() - got.body.len()..]);
            instance.send(response(200, "second try"));
            assert_eq!(client.response().payload(), b"second try");
        }
        assert_eq!(retried(&gateway, "stale"), 4.0);
        assert_eq!(gateway.outcomes("ok"), 5);
        gateway.expect_idle();
    }

    fn a_stale_connection_to_an_instance_that_is_gone_leads_elsewhere(engine) {
        if !tests::process::root_or_skip("forgetting a connection") {
            return;
        }
        for sent in requests() {
            let mut upstreams = [Upstream::manual(), Upstream::manual()];
            let gateway = Setup::new(engine)
                .instances(&upstreams)
                .prefix_aware(1024, 10)
                .set("timeouts.pool_idle", "60s")
                .start();
            let mut client = gateway.connect();
            client.send(&sent);
            let (home, mut instance) = upstreams
                .iter()
                .enumerate()
                .cycle()
                .find_map(|(index, upstream)| {
                    Some((index, upstream.try_accept(Duration::from_millis(20))?))
                })
                .expect("an endless search");
            instance.request();
            instance.send(response(200, "home"));
            assert_eq!(client.response().payload(), b"home");
            upstreams[home].die();
            instance.vanish();
            client.send(&sent);
            let mut instance = upstreams[1 - home].accept();
            let got = instance.request();
            payload::assert_same("body", &got.body, &sent[sent.len() - got.body.len()..]);
            instance.send(response(200, "elsewhere"));
            assert_eq!(client.response().payload(), b"elsewhere");
            gateway.expect_idle();
        }
    }

    fn a_post_that_was_read_is_never_sent_again(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("timeouts.pool_idle", "60s").start();
        let mut client = gateway.connect();
        for round in 0..20 {
            let mut instance = warm_up(&mut client, &upstream);
            client.send(chat("once"));
            assert_eq!(instance.request().json()["messages"][0]["content"], "once");
            if round % 2 == 0 {
                instance.close();
            } else {
                instance.acknowledge();
                instance.reset();
            }
            // A second try would be accepted in the next round, and nobody would answer it.
            let answer = client.response();
            assert_eq!((answer.status(), answer.get("x-atalho-error")), (502, Some("upstream_closed")));
            assert!(!answer.closes(), "the client's connection is in order");
        }
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        assert_eq!(retried(&gateway, "stale"), 0.0);
        gateway.expect_idle();
    }

    fn a_long_post_that_was_read_in_part_is_never_sent_again(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        client.send(&requests()[1]);
        instance.head();
        instance.take_exact(10_000);
        instance.acknowledge();
        instance.reset();
        // The gateway may not have read everything: then it closes after its answer.
        assert_eq!(client.head().status(), 502);
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        drop(client);
        gateway.expect_idle();
    }

    fn a_post_that_kills_its_instance_kills_one(engine) {
        let (killed, kills) = std::sync::mpsc::channel();
        let mut upstreams: Vec<(Upstream, Gate)> = (0..5)
            .map(|index| {
                let (killed, dead) = (killed.clone(), Gate::default());
                let upstream = Upstream::serve({
                    let dead = dead.clone();
                    move |peer, head| {
                        let body = peer.request_body(head);
                        if body.ends_with(b"kill") {
                            killed.send(index).unwrap();
                            dead.wait();
                            return Next::Close;
                        }
                        peer.send(response(200, "ok"));
                        Next::Keep
                    }
                });
                (upstream, dead)
            })
            .collect();
        let gateway = Setup::new(engine)
            .instances(upstreams.iter().map(|(upstream, _)| upstream))
            .routing("strategy", "random")
            .set("timeouts.pool_idle", "60s")
            .start();
        // Each has a connection at rest.
        let mut client = gateway.connect();
        while upstreams.iter().any(|(upstream, _)| upstream.open() == 0) {
            assert_eq!(client.ask(request("POST", "/any", "fine")).status(), 200);
        }
        client.send(request("POST", "/any", "kill"));
        let index: usize = kills.recv_timeout(tests::wait::DEADLINE).unwrap();
        // Its process ends: nobody listens any more, all its connections are closed.
        let (mut upstream, dead) = upstreams.remove(index);
        upstream.die();
        dead.open();
        let answer = client.response();
        assert_eq!((answer.status(), answer.get("x-atalho-error")), (502, Some("upstream_closed")));
        // The others serve, and have never seen it.
        assert_eq!(client.ask(request("POST", "/any", "fine")).status(), 200);
        assert!(kills.try_recv().is_err());
        gateway.expect_idle();
    }

    fn what_may_be_done_twice_is_sent_again_once(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            client.send(request(method, "/any", ""));
            assert_eq!(instance.head().method(), method);
            instance.close();
            let mut again = upstream.accept();
            assert_eq!(again.head().method(), method);
            again.send(response(200, ""));
            assert_eq!(client.response_to(method).status(), 200);
            instance = again;
        }
        client.send(request("GET", "/any", ""));
        instance.head();
        instance.close();
        let mut instance = upstream.accept();
        instance.head();
        instance.close();
        assert_eq!(client.response().status(), 502);
        client.send(request("PATCH", "/any", ""));
        let mut instance = upstream.accept();
        instance.head();
        instance.send(response(200, ""));
        assert_eq!(client.response().status(), 200);
        client.send(request("PATCH", "/any", ""));
        instance.head();
        instance.close();
        assert_eq!(client.response().status(), 502);
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        gateway.expect_idle();
    }

    fn no_retry_once_a_byte_of_the_answer_came(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        for part in ["H", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
            client.send(request("GET", "/any", ""));
            instance.head();
            instance.send(part);
            instance.close();
            let mut answer = client.head();
            if answer.status() == 103 {
                answer = client.head();
            }
            assert_eq!(answer.status(), 502);
            client.take_exact(answer.content_length().unwrap());
            instance = warm_up(&mut client, &upstream);
        }
        assert_eq!(retried(&gateway, "stale"), 0.0);
        gateway.expect_idle();
    }
}

#[test]
fn a_pooled_connection_that_was_closed_while_idle_is_not_used() {
    let (upstream, gateway, mut client, instance) = warm(Engine::Userspace);
    let port = instance.local_addr();
    instance.close();
    client.send(chat("again"));
    let mut instance = upstream.accept();
    assert_eq!(instance.local_addr(), port);
    instance.request();
    instance.send(response(200, "fine"));
    assert_eq!(client.response().payload(), b"fine");
    gateway.expect_idle();
}

#[test]
fn idle_connections_are_closed_before_the_instance_would() {
    let upstream = Upstream::manual();
    let gateway =
        Setup::single(Engine::Userspace, &upstream).set("timeouts.pool_idle", "200ms").start();
    let mut client = gateway.connect();
    client.send(chat("one"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "1"));
    client.response();
    assert_eq!(instance.expect_end(), End::Closed);
    client.send(chat("two"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "2"));
    assert_eq!(client.response().payload(), b"2");
}

#[test]
fn an_instance_that_refuses_is_replaced_by_another() {
    let mut dead = Upstream::manual();
    dead.die();
    let alive = Upstream::ok();
    let gateway =
        Setup::new(Engine::Userspace).instances([&dead, &alive]).prefix_aware(1024, 10).start();
    let mut reasons = Vec::new();
    for number in 0..20 {
        let answer = gateway.ask(chat(&format!("prompt {number}")));
        assert_eq!(answer.status(), 200);
        reasons.extend(answer.get("x-atalho-reason").map(str::to_owned));
    }
    assert_eq!(alive.count(), 20);
    assert!(retried(&gateway, "connect") > 0.0);
    gateway.expect_idle();
}

#[test]
fn when_nobody_listens_the_client_is_told() {
    let mut dead = Upstream::manual();
    dead.die();
    let gateway = Setup::single(Engine::Userspace, &dead).start();
    let mut client = gateway.connect();
    for _ in 0..3 {
        let answer = client.ask(chat("x"));
        assert_eq!(answer.status(), 503, "{}", answer.head.first);
        assert!(answer.get("x-atalho-error").is_some());
        assert!(answer.get("retry-after").is_some());
        assert!(!answer.closes());
    }
    gateway.expect_idle();
}
