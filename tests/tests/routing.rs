//! Which instance gets a request, seen from outside.

use std::{collections::HashMap, sync::Barrier};

use tests::{
    Engine, Gate, Gateway, Message, Setup, Upstream, eventually,
    gateway::{INSTANCE_HEADER, REASON_HEADER},
    message::{chat, chat_with, request, request_with, response},
    payload,
};

const PREFIX: i64 = 1024;
const TENANT: &str = "X-Amzn-SageMaker-Prefix-Aware-Id";

fn fleet(count: usize) -> Vec<Upstream> {
    (0..count).map(|_| Upstream::ok()).collect()
}

fn start(fleet: &[Upstream]) -> Gateway {
    Setup::new(Engine::Userspace).instances(fleet).prefix_aware(PREFIX, 1024).start()
}

/// Which of the fleet a response names.
#[track_caller]
fn served_by(fleet: &[Upstream], answer: &Message) -> usize {
    assert_eq!(answer.status(), 200);
    let name = answer.get(INSTANCE_HEADER).expect("the instance is named");
    fleet
        .iter()
        .position(|upstream| name.contains(&upstream.address().to_string()))
        .unwrap_or_else(|| panic!("{name} is no instance"))
}

#[track_caller]
fn reason(answer: &Message) -> String {
    answer.get(REASON_HEADER).expect("the reason is named").to_owned()
}

#[test]
fn equal_prefixes_meet_whatever_follows() {
    let fleet = fleet(7);
    let gateway = start(&fleet);
    let mut used = HashMap::new();
    for prompt in 0..30 {
        let prefix = payload::text(prompt, 1100);
        let mut homes: Vec<usize> = (0..6)
            .map(|suffix| {
                let text =
                    prefix.clone() + &payload::text(1000 + suffix, 10 + suffix as usize * 99);
                let answer = gateway.ask(chat(&text));
                assert_eq!(reason(&answer), "home");
                served_by(&fleet, &answer)
            })
            .collect();
        homes.dedup();
        assert_eq!(homes.len(), 1, "prompt {prompt} went to {homes:?}");
        *used.entry(homes[0]).or_insert(0) += 1;
    }
    assert!(used.len() >= 5, "30 prompts over 7 instances: {used:?}");
    // The header tells the truth.
    let total: usize = fleet.iter().map(Upstream::count).sum();
    assert_eq!(total, 180);
    for (instance, prompts) in used {
        assert_eq!(fleet[instance].count(), prompts * 6);
    }
    gateway.expect_idle();
}

#[test]
fn a_difference_within_the_prefix_parts() {
    let fleet = fleet(7);
    let gateway = start(&fleet);
    let common = payload::text(1, 1000);
    let homes: std::collections::HashSet<usize> = (0..40)
        .map(|n| served_by(&fleet, &gateway.ask(chat(&format!("{common}{n:024}")))))
        .collect();
    assert!(homes.len() > 1, "characters before the 1,024th count");
}

#[test]
fn tenants_models_and_endpoints_part() {
    let fleet = fleet(7);
    let gateway = start(&fleet);
    let text = payload::text(1, 2000);
    let mut by_header = Vec::new();
    let mut by_body = Vec::new();
    let mut by_model = Vec::new();
    for n in 0..40 {
        let tenant = format!("tenant-{n}");
        let ask = || served_by(&fleet, &gateway.ask(chat_with(&[(TENANT, &tenant)], &text)));
        by_header.push(ask());
        assert_eq!(Some(&ask()), by_header.last(), "a tenant stays");
        // Behind the messages, where SDKs put it.
        let body = |model: &str, key: &str| {
            format!(
                r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"{model}","prompt_cache_key":"{key}"}}"#
            )
        };
        let ask = |body: String| {
            served_by(&fleet, &gateway.ask(request("POST", "/v1/chat/completions", body)))
        };
        by_body.push(ask(body("m", &tenant)));
        assert_eq!(Some(&ask(body("m", &tenant))), by_body.last());
        by_model.push(ask(body(&format!("adapter-{n}"), "same")));
    }
    for homes in [&by_header, &by_body, &by_model] {
        let distinct: std::collections::HashSet<_> = homes.iter().collect();
        assert!(distinct.len() >= 5, "40 of them over 7 instances: {homes:?}");
    }
}

#[test]
fn every_api_routes_by_its_own_text() {
    let fleet = fleet(5);
    let gateway = start(&fleet);
    let text = payload::text(9, 1500);
    let other = payload::text(10, 1500);
    let bodies = |text: &str, tail: u32| -> Vec<(&str, String)> {
        vec![
            (
                "/v1/chat/completions",
                format!(
                    r#"{{"messages":[{{"role":"system","content":[{{"type":"text","text":"{text}"}}]}},{{"role":"user","content":"{tail}"}}]}}"#
                ),
            ),
            ("/v1/completions", format!(r#"{{"prompt":"{text} {tail}","max_tokens":{tail}}}"#)),
            ("/v1/completions", format!(r#"{{"prompt":["{text} {tail}"]}}"#)),
            ("/v1/responses", format!(r#"{{"input":"{text} {tail}"}}"#)),
            ("/v1/embeddings", format!(r#"{{"input":["{text} {tail}"],"model":"e"}}"#)),
            (
                "/v1/messages",
                format!(
                    r#"{{"system":"{text}","messages":[{{"role":"user","content":"{tail}"}}]}}"#
                ),
            ),
            ("/generate", format!(r#"{{"text":"{text} {tail}","sampling_params":{{}}}}"#)),
            ("/invocations", format!("{text} {tail}")),
            ("/endpoints/default/invocations", format!("{text} {tail}")),
            (
                "/endpoints/default/openai/v1/chat/completions",
                format!(r#"{{"messages":[{{"role":"user","content":"{text} {tail}"}}]}}"#),
            ),
        ]
    };
    for index in 0..bodies("", 0).len() {
        let ask = |text: &str, tail: u32| {
            let (path, body) = bodies(text, tail).swap_remove(index);
            let answer = gateway.ask(request("POST", path, body));
            assert_eq!(reason(&answer), "home", "{path}");
            (path.to_owned(), served_by(&fleet, &answer))
        };
        let (path, home) = ask(&text, 1);
        assert_eq!(ask(&text, 22222).1, home, "{path}");
        let parted = (0..30).any(|n| {
            let other = other.clone().replacen(|_| true, &n.to_string(), 1);
            ask(&other, 1).1 != home
        });
        assert!(parted, "{path}: every text goes to one instance");
    }
    // Token ids hash by their values, not by their number.
    let tokens = |seed: u64| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ids: Vec<String> = (0..3000).map(|_| rng.u32(..100_000).to_string()).collect();
        let body = format!(r#"{{"prompt":[{}]}}"#, ids.join(","));
        served_by(&fleet, &gateway.ask(request("POST", "/v1/completions", body)))
    };
    assert_eq!(tokens(1), tokens(1));
    assert!((2..30).any(|seed| tokens(seed) != tokens(1)));
}

#[test]
fn whatever_the_body_is_it_routes_and_arrives_unchanged() {
    let fleet = fleet(3);
    let gateway = start(&fleet);
    let long = "x".repeat(70_000);
    let bodies: Vec<Vec<u8>> = [
        "",
        "{}",
        "[]",
        "null",
        "not json",
        "{\"messages\":",
        "{\"messages\":[{\"content\":null}]}",
        r#"{"messages":[{"content":"\ud83d\ude00\u0000"}],"messages":[]}"#,
        r#"{"messages":"text","model":7}"#,
        r#"{"prompt":[[1,2],[3]]}"#,
        r#"{"messages":[{"role":"tool","content":[{"type":"image_url"}]}]}"#,
        &long,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([vec![0, 255, 254, b'"'], b"{\"messages\":[{\"content\":\"\xff\xfe\"}]}".to_vec()])
    .chain([format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000)).into_bytes()])
    .collect();
    for body in &bodies {
        for path in ["/v1/chat/completions", "/v1/completions", "/invocations", "/generate"] {
            let answer = gateway.ask(request("POST", path, body));
            let instance = served_by(&fleet, &answer);
            assert_eq!(&fleet[instance].requests().pop().unwrap().body, body, "{path}");
        }
    }
}

#[test]
fn a_body_that_arrives_byte_by_byte_decides_the_same() {
    let fleet = fleet(5);
    let gateway = start(&fleet);
    for seed in 0..6 {
        let sent = chat(&payload::text(seed, 1500));
        let home = served_by(&fleet, &gateway.ask(&sent));
        let mut client = gateway.connect();
        client.send_in_pieces(&sent, 1);
        assert_eq!(served_by(&fleet, &client.response()), home);
        // And in chunks, cut anywhere.
        let at = tests::chunked::find(&sent, b"\r\n\r\n").unwrap() + 4;
        let body = tests::chunked::encode(sent[at..].chunks(7 + seed as usize));
        let answer = gateway.ask(tests::message::chunked_request("/v1/chat/completions", &body));
        assert_eq!(served_by(&fleet, &answer), home);
    }
}

#[test]
fn the_decision_needs_no_more_than_the_prefix_on_the_invoke_api() {
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Userspace, &upstream).prefix_aware(PREFIX, 10).start();
    let mut client = gateway.connect();
    let sent = request("POST", "/invocations", payload::bytes(1, 5_000_000));
    let head = sent.len() - 5_000_000;
    client.send(&sent[..head + PREFIX as usize]);
    let mut instance = upstream.accept();
    instance.head();
    instance.take_exact(PREFIX as usize);
    client.send(&sent[head + PREFIX as usize..]);
    payload::assert_same(
        "rest",
        &instance.take_exact(5_000_000 - PREFIX as usize),
        &payload::bytes(1, 5_000_000)[PREFIX as usize..],
    );
    instance.send(response(200, ""));
    client.response();
}

#[test]
fn prefixes_spread_evenly_and_few_move_when_the_fleet_grows() {
    let mut fleet = fleet(7);
    let setup = Setup::new(Engine::Userspace).prefix_aware(PREFIX, 1024);
    let gateway = setup.clone().instances(&fleet).start();
    let homes = |fleet: &[Upstream]| -> Vec<usize> {
        let mut client = gateway.connect();
        (0..2000)
            .map(|n| served_by(fleet, &client.ask(chat(&format!("prompt number {n}")))))
            .collect()
    };
    let before = homes(&fleet);
    let mut counts = [0; 7];
    before.iter().for_each(|&home| counts[home] += 1);
    // Five standard deviations around a seventh of 2,000.
    assert!(counts.iter().all(|count| (208..=364).contains(count)), "{counts:?}");

    fleet.push(Upstream::ok());
    gateway.reload(&setup.clone().instances(&fleet));
    let after = homes(&fleet);
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(moved <= 2000 * 13 / 80, "{moved} of 2,000 moved");
    assert!(before.iter().zip(&after).all(|(a, b)| a == b || *b == 7), "only to the new one");

    // One leaves: only its own keys move.
    gateway.reload(&setup.instances(&fleet[1..]));
    let last = homes(&fleet);
    assert!(after.iter().zip(&last).all(|(a, b)| (a == b) == (*a != 0)), "only those of the first");
}

/// Many clients with one prompt at once, all held open; answers come once the gate opens.
fn crowd(gateway: &Gateway, gate: &Gate, count: usize, text: &str) -> Vec<Message> {
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    barrier.wait();
                    client.send(chat(text));
                    client.response()
                })
            })
            .collect();
        eventually("all are held", || gate.waiting() == count);
        assert_eq!(gateway.in_flight() as usize, count);
        gate.open();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

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
    assert!(answers.iter().all(|answer| reason(answer) == "least-outstanding"));
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

#[test]
fn the_routing_headers_can_be_turned_off() {
    let fleet = fleet(2);
    let setup = Setup::new(Engine::Userspace).instances(&fleet).prefix_aware(PREFIX, 10);
    let gateway = setup.clone().set("response_headers", false).start();
    let answer = gateway.ask(chat("x"));
    assert_eq!(answer.status(), 200);
    assert!(answer.fields.iter().all(|(name, _)| !name.to_lowercase().contains("atalho")));
    gateway.reload(&setup);
    assert!(gateway.ask(chat("x")).get(INSTANCE_HEADER).is_some());
}

#[test]
fn an_instances_own_routing_headers_are_not_believed() {
    let upstream = Upstream::answering(|_| {
        tests::message::response_with(200, &[(INSTANCE_HEADER, "forged"), (REASON_HEADER, "x")], "")
    });
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let answer = gateway.ask(chat("x"));
    assert!(answer.all(INSTANCE_HEADER).iter().any(|name| *name != "forged"));
}

#[test]
fn models_are_the_union_of_the_fleet() {
    let models = |names: &[&str]| {
        let data: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"id": name, "object": "model", "owned_by": "x"}))
            .collect();
        let body = serde_json::json!({"object": "list", "data": data}).to_string();
        move |request: &Message| match request.target() {
            "/v1/models" => response(200, &body),
            _ => response(404, ""),
        }
    };
    let mut fleet = vec![
        Upstream::answering(models(&["base", "lora-a"])),
        Upstream::answering(models(&["base", "lora-b"])),
        Upstream::answering(|_| response(500, "broken")),
        Upstream::ok(),
    ];
    fleet[3].die();
    let gateway = start(&fleet);
    let names = |answer: Message| -> Vec<String> {
        assert_eq!(answer.status(), 200);
        assert!(answer.get("content-type").is_some_and(|kind| kind.contains("json")));
        let json = answer.json();
        assert_eq!(json["object"], "list");
        let mut names: Vec<String> = json["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(gateway.ask(request("GET", "/v1/models", ""))), ["base", "lora-a", "lora-b"]);
    let mut client = gateway.connect();
    client.send(request("HEAD", "/v1/models", ""));
    assert_eq!(client.response_to("HEAD").status(), 200);
    assert_eq!(client.ask(request("GET", "/v1/models", "")).status(), 200);
    gateway.expect_idle();
}

#[test]
fn endpoints_and_variants_are_chosen_by_name() {
    let fleet = fleet(4);
    let url = |n: usize| fleet[n].url();
    let gateway = Setup::new(Engine::Userspace)
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "first"
            [[endpoint.variant]]
            name = "blue"
            weight = 3
            instance = [{{ url = "{}" }}]
            [[endpoint.variant]]
            name = "green"
            instance = [{{ url = "{}" }}]
            [[endpoint]]
            name = "second"
            [[endpoint.variant]]
            name = "only"
            instance = [{{ url = "{}" }}, {{ url = "{}" }}]
            "#,
            url(0),
            url(1),
            url(2),
            url(3)
        ))
        .start();
    for n in 0..20 {
        let body = payload::text(n, 30);
        let answer = gateway.ask(request("POST", "/endpoints/second/invocations", &body));
        assert!(served_by(&fleet, &answer) >= 2);
    }
    let got = fleet[2].requests().into_iter().chain(fleet[3].requests()).next().unwrap();
    assert_eq!(got.target(), "/invocations");
    let answer = gateway.ask(request(
        "POST",
        "/endpoints/second/openai/v1/chat/completions?api-version=1",
        tests::message::chat_body("hello"),
    ));
    let instance = served_by(&fleet, &answer);
    assert_eq!(
        fleet[instance].requests().pop().unwrap().target(),
        "/v1/chat/completions?api-version=1"
    );

    let unknown = gateway.ask(request("POST", "/endpoints/third/invocations", "x"));
    assert_eq!(unknown.status(), 404);
    assert!(unknown.get("x-atalho-error").is_some());

    let target = |name: &str| {
        let fields = [("X-Amzn-SageMaker-Target-Variant", name)];
        gateway.ask(request_with("POST", "/endpoints/first/invocations", &fields, "x"))
    };
    for _ in 0..5 {
        assert_eq!(served_by(&fleet, &target("green")), 1);
        assert_eq!(served_by(&fleet, &target("blue")), 0);
    }
    let answer = target("green");
    assert_eq!(answer.get("x-amzn-invoked-production-variant"), Some("green"));
    assert!(matches!(target("purple").status(), 400 | 404));

    // By weight otherwise.
    let before = fleet[0].count();
    let mut client = gateway.connect();
    for n in 0..400 {
        assert!(served_by(&fleet, &client.ask(chat(&format!("p {n}")))) < 2);
    }
    let share = fleet[0].count() - before;
    assert!((250..=350).contains(&share), "{share} of 400 to the variant with three quarters");
}

#[test]
fn without_an_instance_the_answer_is_503_with_retry_after() {
    let gateway = Setup::new(Engine::Userspace).start();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.ask(chat("x"));
        assert_eq!(answer.status(), 503);
        assert!(answer.get("retry-after").is_some());
        assert!(!answer.closes());
    }
}

#[test]
fn two_gateways_choose_the_same() {
    let fleet = fleet(5);
    let (one, two) = (start(&fleet), {
        // In another order, as configurations of two hosts may be.
        let mut setup = Setup::new(Engine::Userspace).prefix_aware(PREFIX, 1024);
        for upstream in fleet.iter().rev() {
            setup = setup.instance(upstream.address());
        }
        setup.start()
    });
    let (mut a, mut b) = (one.connect(), two.connect());
    for n in 0..100 {
        let text = format!("prompt {n}");
        assert_eq!(
            served_by(&fleet, &a.ask(chat(&text))),
            served_by(&fleet, &b.ask(chat(&text))),
            "{text}"
        );
    }
}

#[test]
fn weights_of_instances_shift_prefixes() {
    let fleet = fleet(2);
    let gateway = Setup::new(Engine::Userspace)
        .prefix_aware(PREFIX, 1024)
        .instance_with(fleet[0].address(), &[("weight", 3.0.into())])
        .instance_with(fleet[1].address(), &[("weight", 1.0.into())])
        .start();
    let mut client = gateway.connect();
    for n in 0..800 {
        client.ask(chat(&format!("prompt {n}")));
    }
    let share = fleet[0].count();
    assert!((530..=670).contains(&share), "{share} of 800 to the instance with three quarters");
}
