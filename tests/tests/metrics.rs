//! What the gateway says about itself is exact.

use tests::{
    Engine, Setup, Upstream, chunked, eventually, for_each_engine, for_each_engine_and_driver,
    message::{CHUNKED_HEAD, chat, chat_with, request, request_with, response, response_with},
    payload,
};

for_each_engine_and_driver! {
    fn exchanges_and_bytes_are_counted_exactly(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        let (mut up, mut down) = (0, 0);
        let mut instance = None;
        // On a busy machine the bytes may always come before the hand-over: more rounds then.
        let carried = || gateway.metric("atalho_handovers_total", &[("direction", "response")]) > 0.0;
        let mut round = 0_u64;
        while round < 10 || engine != Engine::Userspace && round < 500 && !carried() {
            let body = payload::bytes(round, 1000 * (round as usize % 10 + 1));
            client.send(request("POST", "/invocations", &body));
            let instance = instance.get_or_insert_with(|| upstream.accept());
            instance.request();
            up += body.len();
            if round.is_multiple_of(2) {
                let body = payload::bytes(round, 70_000);
                let reply = response(200, &body);
                instance.send(&reply[..reply.len() - body.len()]);
                client.head();
                instance.send(&body);
                client.take_exact(body.len());
                down += body.len();
            } else {
                let body = chunked::encode(payload::bytes(round, 30_000).chunks(1111));
                instance.send(CHUNKED_HEAD);
                client.head();
                instance.send(&body);
                client.take_exact(body.len());
                down += body.len();
            }
            round += 1;
        }
        let rounds = round as f64;
        gateway.expect_outcomes("ok", round);
        let metrics = gateway.metrics();
        let bytes = |direction| {
            metrics.sum("atalho_body_bytes_total", &[("direction", direction)]) as usize
        };
        assert_eq!((bytes("request"), bytes("response")), (up, down));
        let labels = [("endpoint_name", "default"), ("variant", "main")];
        assert_eq!(metrics.sum("atalho_requests_total", &labels), rounds);
        assert_eq!(metrics.sum("atalho_requests_total", &[("reason", "single")]), rounds);
        assert_eq!(metrics.sum("atalho_responses_total", &[("class", "2xx")]), rounds);
        assert_eq!(metrics.sum("atalho_time_to_response_head_seconds_count", &labels), rounds);
        assert_eq!(metrics.sum("atalho_exchange_duration_seconds_count", &labels), rounds);
        assert_eq!(metrics.sum("atalho_gateway_added_seconds_count", &[]), rounds);
        assert_eq!(metrics.sum("atalho_decision_seconds_count", &[]), rounds);
        assert_eq!(metrics.sum("atalho_errors_total", &[]), 0.0);
        assert_eq!(metrics.sum("atalho_pool_connections_total", &[("event", "opened")]), 1.0);
        assert_eq!(metrics.sum("atalho_pool_connections_total", &[("event", "reused")]), rounds - 1.0);
        assert_eq!(metrics.sum("atalho_pool_idle_connections", &[]), 1.0);
        assert_eq!(metrics.sum("atalho_client_connections_open", &[]), 1.0);
        if engine != Engine::Userspace {
            assert!(metrics.sum("atalho_handovers_total", &[("direction", "response")]) >= 1.0);
        }
        gateway.expect_idle();
    }
}

for_each_engine! {
    fn the_engine_in_use_is_shown(engine) {
        let upstream = Upstream::ok();
        let gateway = Setup::single(engine, &upstream).start();
        let metrics = gateway.metrics();
        let labels = [("engine", engine.name())];
        assert_eq!(metrics.sum("atalho_engine_available", &labels), 1.0);
        // What may happen is shown before it does, or an alert could not see the first time.
        for engine in ["sockmap", "splice"] {
            for reason in ["hole", "backlog", "unread", "interface"] {
                let labels = [("engine", engine), ("reason", reason)];
                assert_eq!(metrics.matching("atalho_fallbacks_total", &labels).count(), 1);
            }
        }
        let status = gateway.status().to_string();
        assert!(status.contains(engine.name()), "{status}");
    }

    fn times_are_plausible(engine) {
        let upstream = Upstream::manual();
        // Handed over as early as a response may be without losing the time of its first byte.
        let gateway = Setup::single(engine, &upstream)
            .set("engine.hand_over_from_bytes", 1)
            .set("engine.hand_over_from_reads", 1)
            .start();
        let mut client = gateway.connect();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(300));
        // What is measured is the pauses themselves: a server may send the head before it begins to
        // work, or when it has done so.
        for (round, (head, first, rest)) in [
            (CHUNKED_HEAD, "5\r\ntoken\r\n", "0\r\n\r\n"),
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"[..], "hello", "world"),
        ].into_iter().enumerate() {
            client.send(chat("x"));
            let mut instance = upstream.accept();
            instance.request();
            pause();
            instance.send(head);
            client.head();
            pause();
            instance.send(first);
            client.expect(first);
            let streamed = [("streamed", if round == 0 { "true" } else { "false" })];
            tests::eventually("the first byte counts when it comes, not at the end", || {
                gateway.metric("atalho_time_to_first_byte_seconds_count", &streamed) == 1.0
            });
            pause();
            instance.send(rest);
            client.expect(rest);
            instance.close();
            gateway.expect_outcomes("ok", round as u64 + 1);
            let rounds = round as f64 + 1.0;
            let metrics = gateway.metrics();
            let head = metrics.sum("atalho_time_to_response_head_seconds_sum", &[]) / rounds;
            let first = metrics.sum("atalho_time_to_first_byte_seconds_sum", &streamed);
            let whole = metrics.sum("atalho_exchange_duration_seconds_sum", &[]) / rounds;
            let added = metrics.sum("atalho_gateway_added_seconds_sum", &[]) / rounds;
            assert!((0.29..2.0).contains(&head), "head after {head} s");
            assert!((0.59..4.0).contains(&first), "first byte after {first} s");
            assert!((0.89..6.0).contains(&whole), "whole exchange {whole} s");
            assert!((0.0..0.25).contains(&added), "gateway added {added} s: it must not count waiting");
        }
    }

    fn a_crash_before_the_answer_is_no_failure_to_connect(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.close();
        assert_eq!(client.response().status(), 502);
        gateway.expect_outcomes("upstream_closed", 1);
        assert_eq!(gateway.outcomes("connect_error"), 0);
    }
}

#[test]
fn in_flight_is_what_is_in_flight() {
    let gate = tests::Gate::new();
    let (a, b) = (Upstream::held(&gate), Upstream::held(&gate));
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a, &b])
        .routing("strategy", "least-outstanding-requests")
        .start();
    let mut clients = Vec::new();
    for n in 1..=6 {
        let mut client = gateway.connect();
        client.send(chat("x"));
        clients.push(client);
        eventually("it is in flight", || gateway.in_flight() == n && gate.waiting() == n as usize);
    }
    let metrics = gateway.metrics();
    let each: Vec<f64> =
        metrics.matching("atalho_in_flight_requests", &[]).map(|sample| sample.value).collect();
    assert_eq!(each, [3.0, 3.0]);
    gate.open();
    for client in &mut clients {
        client.response();
    }
    gateway.expect_idle();
}

#[test]
fn labels_hold_nothing_that_a_client_sent() {
    let upstream = Upstream::answering(|_| response_with(418, &[("X-Evil", "evil-6")], ""));
    let gateway = Setup::single(Engine::Userspace, &upstream).set("access_log", true).start();
    let fields = [
        ("X-Amzn-SageMaker-Prefix-Aware-Id", "evil-1"),
        ("Authorization", "Bearer evil-2"),
        ("Host2", "evil-3"),
    ];
    let body =
        r#"{"model":"evil-4","messages":[{"content":"evil-5"}],"prompt_cache_key":"evil-7"}"#;
    for (method, target) in [("POST", "/v1/chat/completions?evil-8"), ("EVIL-9", "/evil-10")] {
        let sent = tests::message::request_with(method, target, &fields, body);
        assert_eq!(gateway.ask(sent).status(), 418);
    }
    gateway.ask(request("POST", "/endpoints/evil-11/invocations", "x"));
    gateway.connect().ask("evil-12\r\n\r\n");
    gateway.ask("GET / HTTP/1.1\r\nHost: a\r\nHost: evil-13\r\n\r\n");
    eventually("all are counted", || gateway.outcomes("ok") == 2);
    for page in ["/metrics", "/status"] {
        let text = String::from_utf8(gateway.admin_get(page).payload()).unwrap();
        assert!(!text.to_lowercase().contains("evil"), "{page}: {text}");
    }
    // Neither do the logs: prompts and credentials are nobody's business.
    let log = gateway.lines().join("\n").to_lowercase();
    for secret in ["evil-2", "evil-5", "evil-7"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn errors_of_the_gateway_are_counted_by_reason() {
    let gateway = Setup::new(Engine::Userspace).start();
    let answer = gateway.ask(chat("x"));
    let reason = answer.get("x-atalho-error").unwrap().to_owned();
    assert_eq!(answer.status(), 503);
    let labels = [("status", "503"), ("reason", reason.as_str()), ("endpoint_name", "default")];
    eventually("it is counted", || gateway.metric("atalho_errors_total", &labels) == 1.0);
}

#[test]
fn prefix_cache_hits_of_the_instances_are_shown() {
    let pages = [
        "# TYPE vllm:prefix_cache_queries_total counter\n\
         vllm:prefix_cache_queries_total{engine=\"0\"} 2000.0\n\
         vllm:prefix_cache_hits_total{engine=\"0\"} 1500.0\n",
        "sglang:cached_tokens_total{model_name=\"m\"} 30\nsglang:prompt_tokens_total{model_name=\"m\"} 40\n\
         sglang:cache_hit_rate{model_name=\"m\"} 0.75\n",
        "nothing_of_interest 1\n",
    ];
    let fleet: Vec<Upstream> = pages
        .into_iter()
        .map(|page| {
            Upstream::answering(move |request| match request.target() {
                "/metrics" => response(200, page),
                _ => response(200, "ok"),
            })
        })
        .collect();
    let gateway =
        Setup::new(Engine::Userspace).instances(&fleet).set("scrape.interval", "100ms").start();
    eventually("the hits are shown", || {
        let metrics = gateway.metrics();
        metrics.sum("atalho_instance_prefix_cache_hit_tokens_total", &[]) == 1530.0
            && metrics.sum("atalho_instance_prefix_cache_query_tokens_total", &[]) == 2040.0
            && metrics.sum("atalho_instance_prefix_cache_hit_ratio", &[]) == 0.75
    });
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream)
        .set("access_log", true)
        .set("log.format", "json")
        .set("log.level", "warn")
        .start();
    gateway.ask(chat_with(&[("Authorization", "Bearer secret")], "prompt text"));
    gateway.ask(request("GET", "/other?query", ""));
    gateway.ask(request("POST", "/endpoints/none/invocations", "x"));
    gateway.connect().ask("no request\r\n\r\n");
    let lines = || -> Vec<serde_json::Value> {
        gateway
            .lines()
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &serde_json::Value| line["message"] == "request")
            .collect()
    };
    eventually("four lines are written", || lines().len() == 4);
    let lines = lines();
    assert_eq!(lines[0]["status"], 200);
    assert_eq!(lines[0]["method"], "POST");
    assert_eq!(lines[0]["endpoint"], "default");
    assert_eq!(lines[0]["outcome"], "ok");
    assert_eq!(lines[0]["response_bytes"], 2);
    assert!(lines[0]["duration_ms"].is_number());
    assert!(lines[0]["instance"].as_str().unwrap().contains(&upstream.address().to_string()));
    assert_eq!(lines[1]["method"], "GET");
    assert_eq!(lines[1]["path"], "/other");
    assert_eq!(lines[2]["status"], 400);
    // Not even a request: all that is known is who sent it, and what is wrong with it.
    assert_eq!((&lines[3]["status"], &lines[3]["client"]), (&400.into(), &"127.0.0.1".into()));
    assert_ne!(lines[3]["reason"], "");
    let all = gateway.lines().join("\n");
    for secret in ["secret", "prompt text", "query"] {
        assert!(!all.contains(secret), "{all}");
    }
}

#[test]
fn an_access_line_says_who_asked_for_what_and_when_it_came() {
    let fleet = [Upstream::ok(), Upstream::ok()];
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .prefix_aware(1024, 10)
        .set("access_log", true)
        .set("log.format", "json")
        .start();
    let tenant = "X-Amzn-SageMaker-Prefix-Aware-Id";
    let body = r#"{"model":"llama\n3","messages":[{"role":"user","content":"x"}]}"#;
    let ask = |id: &str, who: &str| {
        let fields = [("X-Request-Id", id), (tenant, who)];
        gateway.ask(request_with("POST", "/v1/chat/completions?key=secret", &fields, body));
        let line = gateway.expect_line(&["\"request\"", id]);
        serde_json::from_str::<serde_json::Value>(&line).expect("JSON")
    };
    let line = ask("abc-1", "blue tenant");
    for (field, value) in [
        ("client", "127.0.0.1"),
        ("method", "POST"),
        ("path", "/v1/chat/completions"),
        ("api", "chat_completions"),
        ("request_id", "abc-1"),
        ("model", "llama\n3"),
        ("reason", "home"),
        ("engine", "userspace"),
        ("outcome", "ok"),
    ] {
        assert_eq!(line[field], value, "{field} of {line}");
    }
    let at = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} of {line}"));
    assert!(at("head_ms") <= at("first_byte_ms") && at("first_byte_ms") <= at("duration_ms"));
    // Tenants are told apart, not named.
    let hash = |line: &serde_json::Value| line["tenant"].as_str().expect("a hash").to_owned();
    assert_eq!(hash(&line).len(), 16);
    assert_eq!(hash(&ask("abc-2", "blue tenant")), hash(&line));
    assert_ne!(hash(&ask("abc-3", "red tenant")), hash(&line));
    let all = gateway.lines().join("\n");
    assert!(!all.contains("blue tenant") && !all.contains("secret"), "{all}");
}

#[test]
fn without_the_setting_there_is_no_access_log() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream)
        .set("log.level", "info")
        .set("log.format", "json")
        .start();
    gateway.ask(chat("x"));
    gateway.expect_outcomes("ok", 1);
    assert!(!gateway.lines().iter().any(|line| line.contains("\"request\"")));
}

#[test]
fn the_admin_listener_serves_nothing_else_and_is_hard_to_upset() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    assert_eq!(gateway.admin_get("/healthz").status(), 200);
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
    assert_eq!(gateway.admin_get("/nothing").status(), 404);
    let metrics = gateway.admin_get("/metrics");
    assert!(metrics.get("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    let admin = || tests::Peer::connect(gateway.admin());
    assert_eq!(admin().ask(request("DELETE", "/metrics", "")).status(), 405);
    let mut idle = admin();
    idle.send("GET /met");
    let mut bad = admin();
    let _ = bad.try_send(&[b'a'; 200_000]);
    bad.end();
    assert_eq!(gateway.admin_get("/healthz").status(), 200, "others are served meanwhile");
    // The API's listener does not know the admin pages.
    assert_eq!(gateway.ask(request("GET", "/metrics", "")).payload(), b"ok");
}

#[test]
fn a_prefix_with_more_than_its_share_is_told_while_it_lasts() {
    let fleet = [(); 3].map(|()| Upstream::ok());
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .prefix_aware(1024, 100)
        .set("hot_prefix.window", "500ms")
        .set("hot_prefix.windows", 2)
        .start();
    let share = || gateway.metric("atalho_top_prefix_share", &[("variant", "main")]);
    let mut client = gateway.connect();
    let mut ask = |text: &str| assert_eq!(client.ask(chat(text)).status(), 200);
    // All share a beginning that is longer than the prefix.
    let preamble = "Answer as briefly as you can. ".repeat(60);
    let told = || gateway.lines().iter().any(|line| line.contains("more than its share"));
    let mut n = 0;
    eventually("it is told", || {
        (0..50).for_each(|_| ask(&format!("{preamble}{n}")));
        n += 1;
        told()
    });
    assert!(share() > 0.9, "{}", share());
    gateway.expect_line(&["more than its share", "endpoint=\"default\"", "variant=\"main\""]);
    // As many that differ from the start.
    eventually("it is over", || {
        for _ in 0..50 {
            n += 1;
            ask(&format!("{n} {preamble}"));
        }
        gateway.lines().iter().any(|line| line.contains("no prefix has more than its share"))
    });
    assert!(share() < 0.2, "{}", share());
}
