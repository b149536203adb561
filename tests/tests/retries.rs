//! A pooled connection may turn out to be dead: the request is sent again once, if that is safe.

use std::time::Duration;

use tests::{
    End, Engine, Gateway, Peer, Setup, Upstream, for_each_engine,
    message::{chat, request, response},
    payload,
};

/// A gateway with a warm pooled connection to its instance.
fn warm(engine: Engine) -> (Upstream, Gateway, Peer, Peer) {
    let upstream = Upstream::manual();
    // The pool shall not close it before the test does.
    let gateway = Setup::single(engine, &upstream).set("timeouts.pool_idle", "60s").start();
    let mut client = gateway.connect();
    client.send(chat("warm"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "w"));
    assert_eq!(client.response().payload(), b"w");
    (upstream, gateway, client, instance)
}

fn retried(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("atalho_retries_total", &[("reason", reason)])
}

for_each_engine! {
    fn a_pooled_connection_that_dies_under_a_request_is_retried_once(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        for reset in [true, false] {
            client.send(chat("again"));
            instance.request();
            // The request had arrived: the instance dies without a byte of an answer.
            if reset { instance.reset() } else { instance.close() }
            instance = upstream.accept();
            assert_eq!(instance.request().json()["messages"][0]["content"], "again");
            instance.send(response(200, "second try"));
            assert_eq!(client.response().payload(), b"second try");
        }
        assert_eq!(retried(&gateway, "stale"), 2.0);
        gateway.expect_idle();
    }

    fn a_fresh_connection_that_dies_is_not_retried(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        client.send(chat("again"));
        instance.request();
        instance.close();
        // The retry dies too: that was the only one.
        let mut instance = upstream.accept();
        instance.request();
        instance.close();
        let answer = client.response();
        assert_eq!(answer.status(), 502);
        assert!(answer.get("x-atalho-error").is_some());
        assert!(!answer.closes(), "the client's connection is in order");
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        gateway.expect_idle();
    }

    fn no_retry_once_a_byte_of_the_answer_came(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        client.send(chat("again"));
        instance.request();
        instance.send("H");
        instance.close();
        assert_eq!(client.response().status(), 502);
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        assert_eq!(retried(&gateway, "stale"), 0.0);
        gateway.expect_idle();
    }

    fn no_retry_when_the_body_cannot_be_replayed(engine) {
        let (upstream, gateway, mut client, mut instance) = warm(engine);
        // More than the gateway keeps.
        let sent = request("POST", "/invocations", payload::bytes(1, 20 << 20));
        let sender = std::thread::spawn({
            let mut writer = Peer::new(client.stream().try_clone().unwrap());
            move || {
                let _ = writer.try_send(&sent);
            }
        });
        instance.head();
        instance.take_exact(18 << 20);
        instance.reset();
        match client.try_head() {
            Ok(head) => assert_eq!(head.status(), 502),
            Err(end) => assert_eq!(end, End::Reset),
        }
        assert!(upstream.try_accept(Duration::from_millis(200)).is_none());
        drop(client);
        sender.join().unwrap();
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
        assert!(matches!(answer.status(), 502 | 503), "{}", answer.head.first);
        assert!(answer.get("x-atalho-error").is_some());
        assert!(!answer.closes());
    }
    gateway.expect_idle();
}
