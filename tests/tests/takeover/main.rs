//! A gateway that takes over from a running one: nobody is refused, nothing is cut, and thresholds hold for
//! both together. One that fails at it changes nothing.

mod failures;
mod service;
mod storm;

use tests::{
    End, Gate, Gateway, Setup, Upstream, chunked, eventually, for_each_engine,
    for_each_engine_and_driver,
    gateway::REASON_HEADER,
    message::{CHUNKED_HEAD, chat},
    payload,
};

/// Starts a gateway that takes over.
fn take_over(setup: &Setup, old: &Gateway) -> Gateway {
    setup.clone().in_place_of(old).flag("--take-over").start()
}

for_each_engine_and_driver! {
    fn streams_go_on_and_new_requests_go_to_the_new_one(engine) {
        let upstream = Upstream::manual();
        let setup = Setup::single(engine, &upstream);
        let mut old = setup.start();
        let mut client = old.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        let mut pass = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                let chunk = chunked::chunk(&payload::bytes(number, 300));
                instance.send(&chunk);
                client.expect(&chunk);
            }
        };
        pass(0..20);
        let new = take_over(&setup, &old);
        assert_eq!(new.address(), old.address());
        pass(20..40);
        // The admin address is the new one's too: it has not answered anybody yet.
        assert_eq!(new.metric("atalho_requests_total", &[]), 0.0);
        let mut other = new.connect();
        other.send(chat("y"));
        let mut second = upstream.accept();
        second.request();
        assert_eq!(new.metric("atalho_requests_total", &[]), 1.0);
        // Both use the kernel at the same time.
        second.send(CHUNKED_HEAD);
        other.head();
        for number in 0..40 {
            let chunk = chunked::chunk(&payload::bytes(number, 300));
            second.send(&chunk);
            other.expect(&chunk);
        }
        second.send("0\r\n\r\n");
        other.expect("0\r\n\r\n");
        new.expect_carried("response");
        new.expect_drivers_took_part();
        assert!(old.running());
        pass(40..60);
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        drop(client);
        assert!(old.wait().success());
        eventually("nothing is in flight", || new.in_flight() == 0);
    }
}

for_each_engine! {
    fn thresholds_hold_for_both_together(engine) {
        let gate = Gate::new();
        let fleet = [Upstream::held(&gate), Upstream::held(&gate)];
        let setup = Setup::new(engine).instances(&fleet).prefix_aware(1024, 2);
        let mut old = setup.start();
        // One that is kept, to ask the old gateway once more, and one that is at home there.
        let mut kept = old.connect();
        let mut first = old.connect();
        first.send(chat("same"));
        eventually("it is at its home", || old.in_flight() == 1);
        let new = take_over(&setup, &old);
        assert_eq!(new.in_flight(), 1, "of the old one");
        let ask = |n: u32| {
            let mut client = new.connect();
            client.send(chat("same"));
            eventually("it has its instance", || new.in_flight() == n);
            client
        };
        let (mut second, mut third) = (ask(2), ask(3));
        // The old one knows of it too.
        kept.send(chat("same"));
        eventually("it has its instance", || new.in_flight() == 4);
        gate.open();
        let reason = |client: &mut tests::Peer| {
            client.response().get(REASON_HEADER).unwrap_or_default().to_owned()
        };
        assert_eq!(reason(&mut first), "home");
        assert_eq!(reason(&mut second), "home");
        assert_eq!(reason(&mut third), "overflow", "one at home is the old gateway's");
        assert_eq!(reason(&mut kept), "overflow", "one at home is the new gateway's");
        drop((first, kept));
        assert!(old.wait().success());
        eventually("nothing is in flight", || new.in_flight() == 0);
    }
}

#[test]
fn a_connection_that_is_kept_is_answered_once_more() {
    let upstream = Upstream::ok();
    let setup = Setup::single(tests::Engine::Userspace, &upstream);
    let mut old = setup.start();
    let mut client = old.connect();
    assert!(!client.ask(chat("x")).closes());
    let new = take_over(&setup, &old);
    let answer = client.ask(chat("x"));
    assert_eq!(answer.status(), 200);
    assert!(answer.closes(), "the client learns that it ends");
    assert_eq!(client.expect_end(), End::Closed);
    // It does not wait for anything else.
    assert!(old.wait().success());
    assert_eq!(new.ask(chat("x")).status(), 200);
}

/// The third counts what the first one still has, and is counted by it.
#[test]
fn several_that_have_not_ended_count_together() {
    let gate = Gate::new();
    let fleet = [Upstream::held(&gate), Upstream::held(&gate)];
    let setup = Setup::new(tests::Engine::Userspace).instances(&fleet).prefix_aware(1024, 3);
    let ask = |gateway: &Gateway| {
        let mut client = gateway.connect();
        client.send(chat("same"));
        client
    };
    let mut gateways = vec![setup.start()];
    let mut kept = gateways[0].connect();
    let mut clients = Vec::new();
    for n in 1..=3 {
        clients.push(ask(gateways.last().expect("one at least")));
        eventually("it is at its home", || gateways.last().is_some_and(|it| it.in_flight() == n));
        gateways.push(take_over(&setup, gateways.last().expect("one at least")));
    }
    let newest = gateways.pop().expect("the last one");
    assert_eq!(newest.in_flight(), 3);
    clients.push(ask(&newest));
    eventually("it has its instance", || newest.in_flight() == 4);
    // The oldest one has heard of all of them.
    kept.send(chat("same"));
    eventually("it has its instance", || newest.in_flight() == 5);
    gate.open();
    let reasons: Vec<_> = clients
        .iter_mut()
        .chain([&mut kept])
        .map(|client| client.response().get(REASON_HEADER).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(reasons, ["home", "home", "home", "overflow", "overflow"]);
    drop((clients, kept));
    for mut gateway in gateways {
        assert!(gateway.wait().success());
    }
    // What they had is nobody's any more.
    assert_eq!(newest.in_flight(), 0);
    assert_eq!(newest.ask(chat("same")).get(REASON_HEADER), Some("home"));
}

/// What it had in flight dies with it.
#[test]
fn an_old_one_that_is_killed_is_not_counted_any_more() {
    let upstream = Upstream::manual();
    let setup = Setup::single(tests::Engine::Userspace, &upstream);
    let mut old = setup.start();
    let mut client = old.connect();
    client.send(chat("x"));
    let mut instance = upstream.accept();
    instance.request();
    let new = take_over(&setup, &old);
    assert_eq!(new.in_flight(), 1);
    old.kill();
    client.end();
    instance.end();
    eventually("it counts for nobody", || new.in_flight() == 0);
}

#[test]
fn without_a_gateway_to_take_over_from_it_just_starts() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(tests::Engine::Userspace, &upstream).flag("--take-over").start();
    gateway.expect_line(&["none to take over from"]);
    assert_eq!(gateway.ask(chat("x")).status(), 200);
}
