//! `GET /v1/models`, as clients get it.

use super::*;

#[test]
fn who_may_not_see_the_models_is_told_so() {
    let (a, b) = (Server::refusing(401, r#"{"error":"who?"}"#), Server::refusing(401, "{}"));
    let gateway = Setup::new(Engine::Userspace).instances([&a, &b]).start();
    let answer = gateway.ask(request("GET", "/v1/models", ""));
    assert_eq!((answer.status(), &answer.json()["error"]), (401, &"who?".into()));
}

#[test]
fn nobody_to_ask_is_no_empty_list() {
    let mut dead = Upstream::manual();
    dead.die();
    let failing = Server::refusing(500, "{}");
    let gateway = Setup::new(Engine::Userspace).instances([&dead, &failing]).start();
    let answer = gateway.ask(request("GET", "/v1/models", ""));
    assert_eq!((answer.status(), answer.get("x-atalho-error")), (503, Some("models_unavailable")));
    assert!(answer.get("retry-after").is_some());
}

#[test]
fn lists_are_given_again_to_the_same_credentials_and_only_to_those() {
    let server = Server::new(&["llama"]);
    let gateway =
        Setup::single(Engine::Userspace, &server.upstream).set("models.cache", "1h").start();
    let asked = || server.asked.load(Ordering::SeqCst);
    let fields: [&[(&str, &str)]; 5] = [
        &[],
        &[("Authorization", "Bearer one")],
        &[("Authorization", "Bearer two")],
        &[("X-Api-Key", "one")],
        &[("Authorization", "Bearer one"), ("X-Api-Key", "one")],
    ];
    for (n, fields) in fields.into_iter().enumerate() {
        for _ in 0..3 {
            let answer = gateway.ask(request_with("GET", "/v1/models", fields, ""));
            assert_eq!((answer.status(), &answer.json()["data"][0]["id"]), (200, &"llama".into()));
        }
        assert_eq!(asked(), n + 1, "{fields:?}");
        let last = server.upstream.requests().pop().expect("asked");
        for name in ["authorization", "x-api-key"] {
            let sent = fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
            assert_eq!(last.get(name), sent.map(|(_, value)| *value));
        }
    }
}

#[test]
fn many_clients_at_once_make_few_questions() {
    let gate = Gate::new();
    let asked = Arc::<AtomicUsize>::default();
    let upstream = Upstream::answering({
        let (gate, asked) = (gate.clone(), asked.clone());
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            gate.wait();
            response(200, list(&["llama"]))
        }
    });
    let gateway = Setup::single(Engine::Userspace, &upstream).set("models.cache", "1h").start();
    let clients: Vec<_> = (0..30)
        .map(|_| {
            let mut client = gateway.connect();
            client.send(request("GET", "/v1/models", ""));
            client
        })
        .collect();
    eventually("it is asked", || gate.waiting() > 0);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().json()["data"][0]["id"], "llama");
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=4).contains(&asked), "{asked}");
}
