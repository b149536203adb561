//! Choices that no prefix makes, and homes that are not there.

use super::*;

#[test]
fn a_dead_homes_keys_go_to_their_next_rank_and_come_back() {
    let mut fleet = fleet(4);
    let gateway = start(&fleet);
    let homes: Vec<usize> =
        (0..40).map(|n| served_by(&fleet, &gateway.ask(chat(&format!("p {n}"))))).collect();
    let dead = homes[0];
    let address = fleet[dead].address();
    fleet[dead].die();
    let mut moved = Vec::new();
    for (n, home) in homes.iter().enumerate() {
        let answer = gateway.ask(chat(&format!("p {n}")));
        let now = served_by(&fleet, &answer);
        if *home == dead {
            assert_eq!(reason(&answer), "failover");
            assert_ne!(now, dead);
            moved.push(now);
        } else {
            assert_eq!((now, reason(&answer).as_str()), (*home, "home"));
        }
    }
    moved.sort_unstable();
    moved.dedup();
    assert!(moved.len() > 1, "its keys spread over the others");
    fleet[dead] = Upstream::answering_at(address, |_| response(200, "back"));
    eventually("its keys come back", || served_by(&fleet, &gateway.ask(chat("p 0"))) == dead);
    gateway.expect_idle();
}

#[test]
fn with_one_instance_there_is_nothing_to_choose() {
    let fleet = fleet(1);
    let gateway = start(&fleet);
    for n in 0..5 {
        assert_eq!(reason(&gateway.ask(chat(&format!("p {n}")))), "single");
    }
}

#[test]
fn least_outstanding_takes_the_fewest_in_flight() {
    let gate = Gate::new();
    let fleet: Vec<Upstream> = (0..4).map(|_| Upstream::held(&gate)).collect();
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .routing("strategy", "least-outstanding-requests")
        .set("threads", 2)
        .start();
    let answers = crowd(&gateway, &gate, 40, "same text");
    assert!(answers.iter().all(|answer| reason(answer) == "least_outstanding"));
    let counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
    assert!(counts.iter().all(|count| (9..=11).contains(count)), "{counts:?}");

    // Ties are broken by chance, not by place.
    let gate = Gate::new();
    gate.open();
    let fleet: Vec<Upstream> = (0..4).map(|_| Upstream::held(&gate)).collect();
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .routing("strategy", "least-outstanding-requests")
        .start();
    let mut client = gateway.connect();
    for _ in 0..200 {
        client.ask(chat("x"));
    }
    let counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
    assert!(counts.iter().all(|count| (20..=90).contains(count)), "{counts:?}");
}

#[test]
fn random_is_uniform() {
    let fleet = fleet(4);
    let gateway =
        Setup::new(Engine::Userspace).instances(&fleet).routing("strategy", "random").start();
    let mut client = gateway.connect();
    for _ in 0..800 {
        assert_eq!(reason(&client.ask(chat("same"))), "random");
    }
    let counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
    assert!(counts.iter().all(|count| (140..=260).contains(count)), "{counts:?}");
}

#[test]
fn requests_without_a_prefix_go_to_the_least_loaded() {
    let gate = Gate::new();
    let fleet: Vec<Upstream> = (0..3).map(|_| Upstream::held(&gate)).collect();
    let gateway = start(&fleet);
    let mut clients = Vec::new();
    for n in 0..9 {
        let mut client = gateway.connect();
        client.send(request("GET", "/whatever", ""));
        eventually("it is held", || gate.waiting() == n + 1);
        clients.push(client);
    }
    let counts: Vec<usize> = fleet.iter().map(Upstream::count).collect();
    assert_eq!(counts, [3, 3, 3]);
    gate.open();
}
