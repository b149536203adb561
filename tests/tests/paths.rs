//! Which paths of an instance clients can reach.

use std::process::Command;

use tests::{
    Engine, Gateway, Setup, Upstream,
    message::{chat_body, request, request_with, response},
};

/// A gateway that lets pass what it does by default, with `more` in its configuration.
fn start(more: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::ok();
    let gateway = setup(&upstream, more).start();
    (upstream, gateway)
}

fn setup(upstream: &Upstream, more: &str) -> Setup {
    let paths: toml::Table = more.parse().expect("TOML");
    let setup = Setup::single(Engine::Userspace, upstream).default_paths();
    paths.into_iter().fold(setup, |setup, (key, value)| setup.set(&key, value))
}

#[test]
fn controls_of_an_instance_are_not_reachable() {
    let (upstream, gateway) = start("");
    for (method, path) in [
        ("GET", "/metrics"),
        ("GET", "/metrics/"),
        ("POST", "/flush_cache"),
        ("POST", "//flush_cache"),
        ("POST", "/flush_cache/"),
        ("POST", "/flush%5fcache"),
        ("POST", "/reset_prefix_cache"),
        ("POST", "/update_weights_from_disk"),
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/metrics/v1/chat/completions"),
        ("GET", "/v1/models/../../metrics"),
        ("GET", "/v1/models/..%2f..%2fmetrics"),
        ("GET", "/v1/models/%2e%2e/%2E%2E/metrics"),
        ("GET", "/v1/models/..;/..;/metrics"),
        ("GET", "/v1/models/..%5c..%5cmetrics"),
        ("GET", "http://instance/metrics"),
        ("GET", "/"),
        ("POST", "/v1/chat/completions/../../../flush_cache"),
        ("POST", "/v1/chat%2fcompletions"),
        ("GET", "/nobody/has/this"),
    ] {
        let answer = gateway.ask(request(method, path, ""));
        assert_eq!(answer.status(), 404, "{method} {path}");
        let json = answer.json();
        let reason = answer.get("x-atalho-error").expect("a reason");
        assert_eq!(json["error"]["code"], *reason, "{path}");
        let message = json["error"]["message"].as_str().expect("a sentence");
        let setting = if reason == "unknown_path" { "[[path]]" } else { "base_paths" };
        assert!(message.contains(setting), "{path}: {message}");
    }
    // The AWS SDK's calls to SageMaker's control plane.
    let fields = [("X-Amz-Target", "SageMaker.DeleteEndpoint")];
    let answer = gateway.ask(request_with("POST", "/", &fields, "{}"));
    assert_eq!(answer.status(), 404);
    assert!(answer.get("x-amzn-errortype").is_some());
    assert_eq!(upstream.count(), 0, "none of them arrived");
}

#[test]
fn apis_are_reachable_as_before() {
    let (upstream, gateway) = start("");
    let mut client = gateway.connect();
    for (method, path) in [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1//chat/completions/"),
        ("POST", "/chat/completions"),
        ("POST", "/openai/v1/chat/completions?api-version=1"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/tokenize"),
        ("POST", "/invocations"),
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/models/org%2Fmodel-3.1"),
        ("OPTIONS", "/v1/chat/completions"),
    ] {
        let answer = client.ask(request(method, path, ""));
        assert_eq!(answer.status(), 200, "{method} {path}");
        let got = upstream.requests().pop().expect("it arrived");
        assert_eq!((got.method(), got.target()), (method, path));
    }
    let answer = client.ask(request("GET", "/v1/chat/completions", ""));
    assert_eq!((answer.status(), answer.get("allow")), (405, Some("POST, OPTIONS")));
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
    assert_eq!(upstream.count(), 11, "these two were answered by the gateway");
}

#[test]
fn the_configuration_makes_more_reachable_and_less_again() {
    let more = r#"
        base_paths = ["/llm"]
        path = [
            { path = "/metrics", methods = ["GET"] },
            { path = "/v1/files/{rest...}" },
        ]
    "#;
    let (upstream, gateway) = start(more);
    let status = |method, path| gateway.ask(request(method, path, "")).status();
    assert_eq!(status("GET", "/metrics"), 200);
    assert_eq!(status("POST", "/metrics"), 405);
    assert_eq!(status("DELETE", "/v1/files/f-1"), 200);
    assert_eq!(status("GET", "/v1/files/..%2f..%2fflush_cache"), 404);
    assert_eq!(status("POST", "/llm/v1/chat/completions"), 200);
    assert_eq!(status("POST", "/openai/v1/chat/completions"), 404);
    gateway.reload(&setup(&upstream, ""));
    assert_eq!(status("GET", "/metrics"), 404);
    assert_eq!(status("POST", "/llm/v1/chat/completions"), 404);
    assert_eq!(status("POST", "/openai/v1/chat/completions"), 200);
}

#[test]
fn a_named_endpoint_is_used_or_refused() {
    let fleet: Vec<Upstream> = (0..2).map(|_| Upstream::ok()).collect();
    let (first, second) = (fleet[0].url(), fleet[1].url());
    // Whatever is reachable at the first endpoint, which requests without a name go to.
    let gateway = Setup::new(Engine::Userspace)
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "first"
            variant = [{{ name = "main", instance = [{{ url = "{first}" }}] }}]
            [[endpoint]]
            name = "second"
            variant = [{{ name = "main", instance = [{{ url = "{second}" }}] }}]
            "#
        ))
        .start();
    for path in ["invocations", "openai/v1/chat/completions", "openai/v1/anything"] {
        let answer = gateway.ask(request("POST", &format!("/endpoints/second/{path}"), "{}"));
        assert_eq!(answer.status(), 200, "{path}");
    }
    assert_eq!(fleet[1].count(), 3);
    for path in [
        "second/async-invocations",
        "second/inference-components/c/async-invocations",
        "second/invocations-bidirectional-stream",
        "second/pooling",
        "second",
        "second/v1/chat/completions",
        "third/invocations",
        "third/invocations-response-stream",
    ] {
        let answer = gateway.ask(request("POST", &format!("/endpoints/{path}"), "{}"));
        assert_eq!(answer.status(), 400, "{path}");
        assert_eq!(answer.get("x-amzn-errortype"), Some("ValidationError"), "{path}");
        assert!(answer.json()["Message"].is_string(), "{path}");
    }
    assert_eq!((fleet[0].count(), fleet[1].count()), (0, 3), "nobody got any of these");
}

#[test]
fn a_refused_body_is_no_request() {
    let (upstream, gateway) = start("");
    let mut client = gateway.connect();
    let smuggled = String::from_utf8(request("POST", "/v1/chat/completions", "{}")).expect("text");
    client.send(request("POST", "/flush_cache", &smuggled));
    let answer = client.response();
    assert_eq!(answer.status(), 404);
    assert!(answer.closes(), "its body was not read");
    client.end();
    assert_eq!(upstream.count(), 0);
    // Without a body the connection goes on.
    let mut client = gateway.connect();
    assert_eq!(client.ask(request("GET", "/flush_cache", "")).status(), 404);
    let ok = client.ask(request("POST", "/v1/chat/completions", chat_body("hello")));
    assert_eq!(ok.status(), 200);
}

#[test]
fn health_is_the_gateways() {
    let upstream = Upstream::answering(|_| response(418, "not asked"));
    let gateway = setup(&upstream, "").start();
    let mut client = gateway.connect();
    for (method, path) in [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")] {
        assert_eq!(client.ask(request(method, path, "")).status(), 200, "{method} {path}");
    }
    client.send(request("HEAD", "/health", ""));
    assert_eq!(client.response_to("HEAD").status(), 200);
    assert_eq!(upstream.count(), 0);
    // As the admin page says it.
    gateway.reload(&setup(&upstream, "").no_instances());
    let answer = client.ask(request("GET", "/health", ""));
    assert_eq!((answer.status(), answer.get("x-atalho-error")), (503, Some("not_ready")));
    assert!(answer.get("retry-after").is_some());
    assert_eq!(gateway.admin_get("/readyz").status(), 503);
}

#[test]
fn explain_tells_what_is_not_reachable() {
    for (path, says) in [
        ("/flush_cache", "would answer with 404: This path is none of an API"),
        ("/endpoints/default/async-invocations", "would answer with 400: "),
        ("/metrics/v1/completions", "would answer with 404: What stands in front"),
    ] {
        let mut command = Command::new(tests::process::binary("ATALHO_BIN", "atalho"));
        command.args(["explain", "--backend", "http://127.0.0.1:1", "-d", "{}", "--path", path]);
        let run = command.output().expect("it runs");
        assert!(!run.status.success(), "{path}");
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(text.contains(says), "{path}: {text}");
    }
}
