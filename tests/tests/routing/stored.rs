//! Requests that name a stored response find the instance that keeps it, 20 of 20 times.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tests::{
    Head, chunked, for_each_engine,
    message::{CHUNKED_HEAD, response_with},
};

use super::*;

const CREATE: &str = "/v1/responses";

/// An instance with responses of its own.
fn keeper(key: &'static str) -> Upstream {
    let kept = Mutex::new(HashMap::<String, Value>::new());
    Upstream::answering(move |message| {
        if message.get("authorization") != Some(key) {
            return response(401, "{}");
        }
        let mut kept = kept.lock().unwrap();
        let missing = || response(404, r#"{"error":{"message":"no such response"}}"#);
        let json = |value: &Value| {
            response_with(200, &[("Content-Type", "application/json")], value.to_string())
        };
        let Some(rest) = message.target().strip_prefix("/v1/responses/") else {
            assert_eq!((message.method(), message.target()), ("POST", CREATE));
            let body = message.json();
            let previous = &body["previous_response_id"];
            if previous.as_str().is_some_and(|id| !kept.contains_key(id)) {
                return missing();
            }
            // Ids of all instances differ, and tell nothing.
            let id = format!("resp_{:032x}", u128::from(next()) * 0x9e37_79b9_7f4a_7c15);
            let made = json!({ "id": id, "object": "response", "previous": previous });
            kept.insert(id, made.clone());
            if body["stream"] != true {
                return json(&made);
            }
            let events = [("created", &made), ("completed", &made)].map(|(name, made)| {
                let data = json!({ "response": made });
                format!("event: response.{name}\ndata: {data}\n\n").into_bytes()
            });
            let body = chunked::encode(events.iter().map(Vec::as_slice));
            return [CHUNKED_HEAD, &body].concat();
        };
        let rest = rest.split('?').next().unwrap_or_default();
        let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(found) = kept.get(id).cloned() else { return missing() };
        match (message.method(), action) {
            ("GET", "" | "input_items") | ("POST", "cancel") => json(&found),
            ("DELETE", "") => {
                kept.remove(id);
                json(&json!({ "id": id, "deleted": true }))
            }
            other => panic!("{other:?}"),
        }
    })
}

fn next() -> u32 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) as u32
}

const KEY: &str = "Bearer secret";

fn ask(gateway: &Gateway, method: &str, target: &str, body: Option<Value>) -> Message {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    gateway.ask(request_with(method, target, &[("Authorization", KEY)], body))
}

fn id_of(answer: &Message) -> String {
    let payload = String::from_utf8(answer.payload()).unwrap();
    let at = payload.find("resp_").expect("an id");
    payload[at..].split('"').next().unwrap().to_owned()
}

/// How often the gateway has asked for a response itself.
fn searches(fleet: &[Upstream]) -> usize {
    let asked = |head: &Head| head.get("user-agent") == Some("atalho");
    fleet.iter().flat_map(Upstream::requests).filter(|request| asked(request)).count()
}

for_each_engine! {
    fn a_stored_response_is_found_again(engine) {
        let fleet: Vec<Upstream> = (0..4).map(|_| keeper(KEY)).collect();
        for setup in [
            Setup::new(engine).routing("strategy", "random"),
            Setup::new(engine).prefix_aware(1024, 1024),
        ] {
            let setup = setup.instances(&fleet);
            let gateway = setup.start();
            let before = searches(&fleet);
            let made: Vec<(String, usize)> = (0..20)
                .map(|n| {
                    let input = format!("prompt {n}");
                    let body = json!({ "model": "m", "input": input, "stream": n % 2 == 0 });
                    let answer = ask(&gateway, "POST", CREATE, Some(body));
                    (id_of(&answer), served_by(&fleet, &answer))
                })
                .collect();
            let check = |gateway: &Gateway| {
                for (n, (id, instance)) in made.iter().enumerate() {
                    let found = |method: &str, rest: &str| {
                        let target = format!("{CREATE}/{id}{rest}");
                        let answer = ask(gateway, method, &target, None);
                        assert_eq!(answer.status(), 200, "{method} {target}");
                        assert_eq!(served_by(&fleet, &answer), *instance);
                        assert_eq!(reason(&answer), "stored");
                    };
                    let follow = || {
                        // Longer than the prefix, and in the order in which clients send it.
                        let input = payload::text(n as u64, 3000);
                        let body = format!(
                            r#"{{"input":"{input}","model":"m","previous_response_id":"{id}"}}"#
                        );
                        let headers = [("Authorization", KEY)];
                        let answer = gateway.ask(request_with("POST", CREATE, &headers, body));
                        assert_eq!(answer.json()["previous"], **id);
                        assert_eq!(served_by(&fleet, &answer), *instance);
                        assert_eq!(reason(&answer), "stored");
                    };
                    if n % 2 == 0 {
                        follow();
                    }
                    found("GET", "");
                    found("GET", "/input_items");
                    found("GET", "?stream=true&starting_after=1");
                    found("POST", "/cancel");
                    follow();
                }
            };
            check(&gateway);
            assert_eq!(searches(&fleet), before, "what passed through is remembered");
            // Another gateway, or the same one after a restart, knows nothing of them.
            gateway.stop();
            let gateway = setup.start();
            check(&gateway);
            // One search for each; whoever has not been asked when one is found is not asked any more.
            let searches = searches(&fleet) - before;
            assert!((20..=20 * 4).contains(&searches), "{searches}");
            for (id, _) in &made {
                let target = format!("{CREATE}/{id}");
                assert_eq!(ask(&gateway, "DELETE", &target, None).status(), 200);
                assert_eq!(ask(&gateway, "GET", &target, None).status(), 404);
            }
            gateway.expect_idle();
        }
    }
}

#[test]
fn what_nobody_has_is_for_an_instance_to_say() {
    let fleet: Vec<Upstream> = (0..4).map(|_| keeper(KEY)).collect();
    let gateway = Setup::new(Engine::Userspace).instances(&fleet).start();
    for id in ["resp_1", "resp_%41", &"a".repeat(300)] {
        let answer = ask(&gateway, "GET", &format!("{CREATE}/{id}"), None);
        assert_eq!(answer.status(), 404, "{id}");
        assert!(answer.get("x-atalho-error").is_none(), "the instance's own answer");
    }
    let denied = gateway.ask(request("GET", &format!("{CREATE}/resp_2"), ""));
    assert_eq!(denied.status(), 401);
    gateway.expect_idle();
}

#[test]
fn a_stored_response_of_an_instance_that_is_gone_is_not_said_to_be_missing() {
    let mut fleet: Vec<Upstream> = (0..4).map(|_| keeper(KEY)).collect();
    let gateway = Setup::new(Engine::Userspace).instances(&fleet).start();
    let made = ask(&gateway, "POST", CREATE, Some(json!({ "input": "x" })));
    let home = served_by(&fleet, &made);
    fleet[home].die();
    let answer = ask(&gateway, "GET", &format!("{CREATE}/{}", id_of(&made)), None);
    assert!(matches!(answer.status(), 502 | 503), "{}", answer.head.first);
    assert!(answer.get("x-atalho-error").is_some());
    gateway.expect_idle();
}
