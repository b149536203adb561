//! Which requests share a home.

use super::*;

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
