//! Instances that are ill get no requests until they are well.

use tests::{
    Engine, Gateway, Patient, Setup, Upstream, eventually,
    message::{chat, response},
};

fn checking(setup: Setup) -> Setup {
    setup
        .set("health.active", true)
        .set("health.interval", "40ms")
        .set("health.timeout", "40ms")
        .set("health.rise", 2)
        .set("health.fall", 3)
}

fn available(gateway: &Gateway) -> u32 {
    gateway.metric("atalho_instance_available", &[]) as u32
}

#[test]
fn active_checks_take_an_instance_out_and_bring_it_back() {
    let (a, b) = (Patient::new(), Patient::new());
    let gateway = checking(Setup::new(Engine::Userspace))
        .instances([&a.upstream, &b.upstream])
        .prefix_aware(1024, 100)
        .start();
    eventually("both are checked", || a.checked() > 2 && b.checked() > 2);
    assert_eq!(available(&gateway), 2);
    let prompts: Vec<String> = (0..30).map(|n| format!("prompt {n}")).collect();
    let ask_all = || {
        for prompt in &prompts {
            assert_eq!(gateway.ask(chat(prompt)).status(), 200);
        }
        (a.served(), b.served())
    };
    let (a1, b1) = ask_all();
    assert!(a1 > 0 && b1 > 0);

    a.set_health(503);
    eventually("it is out", || available(&gateway) == 1);
    let (a2, b2) = ask_all();
    assert_eq!((a2, b2), (a1, b1 + 30), "the other one serves its keys");

    a.set_health(200);
    eventually("it is back", || available(&gateway) == 2);
    let (a3, b3) = ask_all();
    assert_eq!((a3, b3), (a2 + a1, b2 + b1), "its keys came home");
}

#[test]
fn one_failed_check_takes_nothing_out() {
    let a = Patient::new();
    let gateway =
        checking(Setup::single(Engine::Userspace, &a.upstream)).set("health.fall", 1000).start();
    a.set_health(500);
    eventually("some checks fail", || {
        gateway.metric("atalho_health_checks_total", &[("result", "failed")]) > 5.0
    });
    assert_eq!(available(&gateway), 1);
}

#[test]
fn a_server_without_the_path_is_alive() {
    let a = Patient::new();
    a.set_health(404);
    let gateway = checking(Setup::single(Engine::Userspace, &a.upstream)).start();
    eventually("it is checked", || a.checked() > 5);
    assert_eq!(available(&gateway), 1);
    assert_eq!(gateway.metric("atalho_health_checks_total", &[("result", "failed")]), 0.0);
}

#[test]
fn the_gateway_starts_with_dead_instances_and_takes_them_in_later() {
    let mut dead = Upstream::manual();
    dead.die();
    let gateway = checking(Setup::single(Engine::Userspace, &dead)).start();
    eventually("it is known to be dead", || available(&gateway) == 0);
    let answer = gateway.ask(chat("x"));
    assert_eq!(answer.status(), 503, "{}", answer.head.first);
    assert_eq!(gateway.admin_get("/healthz").status(), 200, "the gateway itself is well");
    assert_eq!(gateway.admin_get("/readyz").status(), 503, "but of no use yet");
    let alive = Patient::at(dead.address(), &[]);
    eventually("it is in", || available(&gateway) == 1);
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
    assert_eq!(alive.served(), 1);
}

#[test]
fn an_instance_that_fails_fast_does_not_win_least_outstanding() {
    let (bad, good) = (Patient::new(), Patient::new());
    bad.set_answer(500);
    let gateway = Setup::new(Engine::Userspace)
        .instances([&bad.upstream, &good.upstream])
        .routing("strategy", "least-outstanding-requests")
        .set("health.eject_after", 3)
        .set("health.eject_for", "60s")
        .start();
    let failed = (0..100).filter(|n| gateway.ask(chat(&format!("{n}"))).status() == 500).count();
    assert!(failed <= 4, "{failed} of 100 went to an instance that only fails");
    assert_eq!(available(&gateway), 1);
    assert!(good.served() >= 96);
}

#[test]
fn an_ejected_instance_is_tried_again() {
    let (bad, good) = (Patient::new(), Patient::new());
    bad.set_answer(500);
    let gateway = Setup::new(Engine::Userspace)
        .instances([&bad.upstream, &good.upstream])
        .routing("strategy", "random")
        .set("health.eject_after", 2)
        .set("health.eject_for", "100ms")
        .start();
    eventually("it is ejected", || {
        gateway.ask(chat("x"));
        available(&gateway) == 1
    });
    bad.set_answer(200);
    let before = bad.served();
    eventually("it serves again", || {
        gateway.ask(chat("x"));
        bad.served() > before
    });
    eventually("it is available", || available(&gateway) == 2);
}

#[test]
fn a_clients_own_mistakes_do_not_eject() {
    let (a, b) = (Patient::new(), Patient::new());
    for status in [400, 401, 404, 413, 422, 429] {
        a.set_answer(status);
        b.set_answer(status);
        let gateway = Setup::new(Engine::Userspace)
            .instances([&a.upstream, &b.upstream])
            .set("health.eject_after", 2)
            .start();
        for n in 0..20 {
            assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), status);
        }
        assert_eq!(available(&gateway), 2, "{status}");
    }
}

#[test]
fn with_every_instance_ill_one_is_tried_all_the_same() {
    let (a, b) = (Patient::new(), Patient::new());
    a.set_answer(500);
    b.set_answer(500);
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream])
        .set("health.eject_after", 1)
        .set("health.eject_for", "60s")
        .start();
    for n in 0..6 {
        // The instance's own answer goes through, rather than an error of ours that hides it.
        assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), 500);
    }
}

#[test]
fn checks_never_touch_the_counters() {
    let a = Patient::new();
    let gate = tests::Gate::new();
    let held = Upstream::answering({
        let gate = gate.clone();
        move |request| {
            if request.target() != "/health" {
                gate.wait();
            }
            response(200, "ok")
        }
    });
    let gateway = checking(Setup::new(Engine::Userspace))
        .instances([&a.upstream, &held])
        .prefix_aware(1024, 100)
        .start();
    let served = || held.requests().iter().filter(|r| r.target() != "/health").count();
    let mut clients = Vec::new();
    eventually("requests are held", || {
        let mut client = gateway.connect();
        client.send(chat(&format!("{}", clients.len())));
        clients.push(client);
        served() >= 3
    });
    // One goes out and comes back meanwhile.
    for (health, expected) in [(500, 1), (200, 2)] {
        a.set_health(health);
        eventually("its health is known", || available(&gateway) == expected);
        eventually("only the held ones are in flight", || gateway.in_flight() as usize == served());
    }
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    gateway.expect_idle();
}

#[test]
fn an_instance_is_found_by_its_name() {
    let upstream = Upstream::ok();
    let port = upstream.address().port();
    let gateway = Setup::new(Engine::Userspace)
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "default"
            [[endpoint.variant]]
            name = "main"
            instance = [
                {{ url = "http://localhost:{port}" }},
                {{ url = "http://no-such-host.invalid:{port}" }},
            ]
            "#
        ))
        .start();
    eventually("localhost is resolved", || available(&gateway) == 1);
    for n in 0..10 {
        assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), 200);
    }
    assert_eq!(upstream.requests()[0].get("host"), Some(&*format!("localhost:{port}")));
}
