//! Overflow at the threshold, and limits of requests in flight.

use super::*;

#[test]
fn exactly_the_excess_overflows_under_64_concurrent_clients() {
    for round in 0..5 {
        let gate = Gate::new();
        let fleet: Vec<Upstream> = (0..8).map(|_| Upstream::held(&gate)).collect();
        let gateway = Setup::new(Engine::Userspace)
            .instances(&fleet)
            .prefix_aware(PREFIX, 10)
            .set("threads", 2)
            .start();
        let answers = crowd(&gateway, &gate, 64, &format!("hot {round}"));
        let mut counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
        let by_reason = |name: &str| answers.iter().filter(|a| reason(a) == name).count();
        assert_eq!((by_reason("home"), by_reason("overflow")), (10, 54), "{counts:?}");
        let home = served_by(&fleet, answers.iter().find(|a| reason(a) == "home").unwrap());
        assert_eq!(counts.remove(home), 10);
        assert!(counts.iter().all(|count| (6..=9).contains(count)), "least busy first: {counts:?}");
        gateway.expect_idle();
        // Once they are gone, home serves again.
        let answer = gateway.ask(chat(&format!("hot {round}")));
        assert_eq!((reason(&answer).as_str(), served_by(&fleet, &answer)), ("home", home));
        assert_eq!(gateway.metric("atalho_requests_total", &[("reason", "overflow")]), 54.0);
    }
}

#[test]
fn with_all_at_the_threshold_the_least_loaded_serves() {
    let gate = Gate::new();
    let fleet: Vec<Upstream> = (0..4).map(|_| Upstream::held(&gate)).collect();
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .prefix_aware(PREFIX, 3)
        .set("threads", 2)
        .start();
    let answers = crowd(&gateway, &gate, 64, "hot");
    let counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
    let by_reason = |name: &str| answers.iter().filter(|a| reason(a) == name).count();
    assert_eq!(
        (by_reason("home"), by_reason("overflow"), by_reason("saturated")),
        (3, 9, 52),
        "{counts:?}"
    );
    assert!(counts.iter().all(|count| (15..=17).contains(count)), "evenly: {counts:?}");
    gateway.expect_idle();
}

#[test]
fn one_hot_prefix_leaves_the_others_at_home() {
    let gate = Gate::new();
    let fleet: Vec<Upstream> = (0..3)
        .map(|_| {
            let gate = gate.clone();
            Upstream::answering(move |request| {
                if request.payload().windows(3).any(|part| part == b"hot") {
                    gate.wait();
                }
                response(200, "ok")
            })
        })
        .collect();
    let gateway = Setup::new(Engine::Userspace).instances(&fleet).prefix_aware(PREFIX, 2).start();
    let before: Vec<usize> =
        (0..20).map(|n| served_by(&fleet, &gateway.ask(chat(&format!("cool {n}"))))).collect();
    let mut hot = Vec::new();
    for n in 0..2 {
        let mut client = gateway.connect();
        client.send(chat("hot"));
        eventually("it is held", || gate.waiting() == n + 1);
        hot.push(client);
    }
    let full = fleet.iter().position(|upstream| {
        upstream.requests().iter().any(|r| r.payload().windows(3).any(|part| part == b"hot"))
    });
    for (n, home) in before.iter().enumerate() {
        let answer = gateway.ask(chat(&format!("cool {n}")));
        let (now, why) = (served_by(&fleet, &answer), reason(&answer));
        if Some(*home) == full {
            assert_eq!(why, "overflow");
            assert_ne!(now, *home);
        } else {
            assert_eq!((now, why.as_str()), (*home, "home"), "prompt {n}");
        }
    }
    gate.open();
    for mut client in hot {
        assert_eq!(reason(&client.response()), "home");
    }
}

#[test]
fn a_limit_on_requests_in_flight_is_answered_with_429() {
    let gate = Gate::new();
    let fleet: Vec<Upstream> = (0..2).map(|_| Upstream::held(&gate)).collect();
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .prefix_aware(PREFIX, 2)
        .routing("max_in_flight", 3)
        .start();
    let mut clients = Vec::new();
    for n in 0..6 {
        let mut client = gateway.connect();
        client.send(chat("same"));
        eventually("it is held", || gate.waiting() == n + 1);
        clients.push(client);
    }
    let mut refused = gateway.connect();
    let answer = refused.ask(chat("same"));
    assert_eq!(answer.status(), 429);
    assert!(answer.get("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()));
    assert!(answer.get("x-atalho-error").is_some());
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    gateway.expect_idle();
    assert_eq!(refused.ask(chat("same")).status(), 200, "the connection is in order");
}
