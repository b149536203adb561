//! What requests say about an instance, and what a few of them cannot do to a fleet.

use tests::{
    DEADLINE, Engine, Gateway, Message, Patient, Peer, Setup, Upstream, eventually,
    message::{chat, chat_body, request},
};

fn ejecting(patients: &[Patient]) -> Setup {
    Setup::new(Engine::Userspace)
        .instances(patients.iter().map(|patient| &patient.upstream))
        .prefix_aware(1024, 100)
        .set("health.eject_after", 3)
        .set("health.eject_for", "60s")
}

fn patients(count: usize) -> Vec<Patient> {
    (0..count).map(|_| Patient::new()).collect()
}

fn available(gateway: &Gateway) -> u32 {
    gateway.metric("atalho_instance_available", &[]) as u32
}

fn reason(answer: &Message) -> &str {
    answer.get("x-atalho-reason").expect("an instance answered")
}

/// Sends a request from another address of the loopback network.
fn ask_from(gateway: &Gateway, host: u8, text: &str) -> Message {
    let from = std::net::SocketAddr::from(([127, 0, 0, host], 0));
    Peer::connect_from(from, gateway.address()).ask(chat(text))
}

#[test]
fn what_is_load_or_never_there_ejects_nobody_however_often_it_is_asked_for() {
    for status in [429, 501, 503, 505, 529] {
        let fleet = patients(4);
        let gateway = ejecting(&fleet).set("health.overload_for", "0s").start();
        fleet.iter().for_each(|instance| instance.set_answer(status));
        for n in 0..40 {
            assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), status);
        }
        assert_eq!(available(&gateway), 4, "{status}");
        fleet.iter().for_each(|instance| instance.set_answer(200));
        for n in 0..20 {
            let answer = gateway.ask(chat(&format!("{n}")));
            assert_eq!((answer.status(), reason(&answer)), (200, "home"), "after {status}");
        }
    }
}

#[test]
fn an_overloaded_instance_is_spared_as_long_as_it_asks() {
    let (full, other) = (Patient::with_fields(&[("Retry-After", "600")]), Patient::new());
    let gateway = Setup::new(Engine::Userspace)
        .instances([&full.upstream, &other.upstream])
        .prefix_aware(1024, 100)
        .set("health.overload_for", "10ms")
        .set("health.overload_max", "500ms")
        .start();
    // A prompt whose home is the one that will be full.
    let prompt = (0..)
        .map(|n| format!("prompt {n}"))
        .find(|prompt| {
            let before = full.served();
            gateway.ask(chat(prompt));
            full.served() > before
        })
        .expect("half of all prompts");
    full.set_answer(503);
    let answer = gateway.ask(chat(&prompt));
    assert_eq!((answer.status(), reason(&answer)), (503, "home"), "its answer is passed on");
    assert_eq!(answer.get("retry-after"), Some("600"));
    full.set_answer(200);
    let spared = full.served();
    let since = std::time::Instant::now();
    let answer = gateway.ask(chat(&prompt));
    if since.elapsed().as_millis() < 400 {
        assert_eq!((answer.status(), reason(&answer)), (200, "overflow"));
        assert_eq!(full.served(), spared);
        assert_eq!(gateway.status().to_string().matches("overloaded").count(), 1);
    }
    assert_eq!(available(&gateway), 2, "it is not out");
    // Ten minutes are more than `overload_max` allows.
    eventually("its prompts come home", || reason(&gateway.ask(chat(&prompt))) == "home");
    assert!(since.elapsed() < DEADLINE);
}

#[test]
fn failed_requests_leave_half_of_a_fleet_alone() {
    let fleet = patients(4);
    let gateway = ejecting(&fleet).start();
    fleet.iter().for_each(|instance| instance.set_answer(500));
    for n in 0..100 {
        assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), 500);
    }
    assert_eq!(available(&gateway), 2);
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
}

#[test]
fn one_prompt_ejects_nobody() {
    let fleet = patients(4);
    let gateway = ejecting(&fleet).start();
    fleet.iter().for_each(|instance| instance.set_answer(500));
    for _ in 0..40 {
        assert_eq!(gateway.ask(chat("a prompt that no engine survives")).status(), 500);
    }
    assert_eq!(available(&gateway), 4);
}

#[test]
fn one_client_of_several_ejects_nobody() {
    let fleet = patients(2);
    let gateway = ejecting(&fleet).start();
    // Both instances have several clients.
    for n in 0..40 {
        assert_eq!(ask_from(&gateway, 2 + n % 2, &format!("good {n}")).status(), 200);
    }
    assert!(fleet.iter().all(|instance| instance.served() > 2));
    fleet.iter().for_each(|instance| instance.set_answer(500));
    for n in 0..40 {
        assert_eq!(ask_from(&gateway, 4, &format!("bad {n}")).status(), 500);
    }
    assert_eq!(available(&gateway), 2);
    // What everybody meets is the instance's own fault.
    for n in 0..40 {
        ask_from(&gateway, 2 + n, &format!("{n}"));
    }
    assert_eq!(available(&gateway), 1);
}

#[test]
fn a_gateway_whose_instances_are_all_ejected_is_ready_because_it_serves() {
    let fleet = patients(2);
    let gateway = ejecting(&fleet).set("health.max_ejection_percent", 100).start();
    fleet.iter().for_each(|instance| instance.set_answer(500));
    for n in 0..40 {
        gateway.ask(chat(&format!("{n}")));
    }
    assert_eq!(available(&gateway), 0);
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
    fleet.iter().for_each(|instance| instance.set_answer(200));
    let answer = gateway.ask(chat("x"));
    assert_eq!((answer.status(), reason(&answer)), (200, "last_resort"));
}

#[test]
fn requests_that_succeed_keep_an_instance_whose_health_page_is_slow() {
    let instance = Patient::new();
    let gateway = Setup::single(Engine::Userspace, &instance.upstream)
        .set("health.active", true)
        .set("health.interval", "200ms")
        .set("health.timeout", "20ms")
        .set("health.fall", 3)
        .start();
    instance.silence_health();
    // Many more than `fall`, with a request in every interval.
    let failed = || gateway.metric("atalho_health_checks_total", &[("result", "failed")]);
    let before = failed();
    eventually("ten checks get no answer", || {
        assert_eq!(gateway.ask(chat("x")).status(), 200);
        assert_eq!(gateway.status()["endpoints"][0]["variants"][0]["instances"][0]["status"], "up");
        assert_eq!(gateway.admin_get("/readyz").status(), 200);
        failed() >= before + 10.0
    });
    // Without requests there is only the page to go by.
    eventually("it is out", || available(&gateway) == 0);
    assert_eq!(gateway.admin_get("/readyz").status(), 503);
    assert_eq!(gateway.ask(chat("x")).status(), 200, "tried all the same");
    eventually("a request that succeeds brings it back", || available(&gateway) == 1);
}

#[test]
fn when_all_instances_are_dead_the_client_is_told_so_and_when_to_come_back() {
    for count in [1, 2, 3] {
        let mut dead: Vec<_> = (0..count).map(|_| Upstream::manual()).collect();
        dead.iter_mut().for_each(Upstream::die);
        let gateway = Setup::new(Engine::Userspace).instances(&dead).prefix_aware(1024, 9).start();
        let answer = gateway.ask(request("POST", "/v1/chat/completions", chat_body("x")));
        assert_eq!(answer.status(), 503);
        assert!(answer.get("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()));
        let message = answer.json()["error"]["message"].as_str().expect("a text").to_owned();
        let expected = if count == 1 { "The only inference server" } else { "None of the" };
        assert!(message.starts_with(expected), "{message}");
        gateway.expect_outcomes("connect_error", count);
        gateway.expect_idle();
    }
}
