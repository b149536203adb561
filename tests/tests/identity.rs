//! Who a client is, and what its request is called: ids, and proxies in front of the gateway.

use tests::{
    Engine, Gateway, Setup, Upstream,
    message::{request, request_with, response_with},
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The last access line, once there are `count`.
#[track_caller]
fn access_line(gateway: &Gateway, count: usize) -> serde_json::Value {
    let lines = tests::eventually_some("the request's line", || {
        let lines: Vec<serde_json::Value> = gateway
            .lines()
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &serde_json::Value| line["target"] == "access")
            .collect();
        (lines.len() == count).then_some(lines)
    });
    lines.last().cloned().expect("one at least")
}

fn logging(upstream: &Upstream) -> Setup {
    Setup::single(Engine::Userspace, upstream).set("access_log", true).set("log.format", "json")
}

#[test]
fn a_clients_ids_reach_the_instance_the_log_and_the_client() {
    // An instance's own idea of the id does not get in the way.
    let upstream = Upstream::answering(|_| response_with(200, &[("X-Request-ID", "its-own")], ""));
    let gateway = logging(&upstream).start();
    let fields =
        [("X-Request-ID", "req/7:a|b=c"), ("Traceparent", TRACE), ("Tracestate", "vendor=1")];
    let answer = gateway.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
    assert_eq!(answer.get("x-request-id"), Some("req/7:a|b=c"));
    let got = upstream.requests().pop().expect("it arrived");
    assert_eq!(got.get("x-request-id"), Some("req/7:a|b=c"));
    assert_eq!(got.get("traceparent"), Some(TRACE));
    assert_eq!(got.get("tracestate"), Some("vendor=1"));
    let line = access_line(&gateway, 1);
    assert_eq!(line["request_id"], "req/7:a|b=c");
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line["client"], "127.0.0.1");
}

#[test]
fn ids_that_are_missing_or_invalid_are_made() {
    let upstream = Upstream::ok();
    let gateway = logging(&upstream).start();
    let long = "x".repeat(129);
    let upper = TRACE.to_uppercase();
    let invalid: [&[(&str, &str)]; 6] = [
        &[],
        &[("x-request-id", ""), ("traceparent", "")],
        &[("x-request-id", &long), ("traceparent", &upper)],
        &[("x-request-id", "a,b"), ("traceparent", "garbage")],
        &[("x-request-id", "a\"b")],
        &[
            ("x-request-id", "a"),
            ("x-request-id", "a"),
            ("traceparent", TRACE),
            ("traceparent", TRACE),
        ],
    ];
    let mut seen = Vec::new();
    for (n, fields) in invalid.into_iter().enumerate() {
        let mut fields = fields.to_vec();
        fields.push(("tracestate", "vendor=1"));
        let answer = gateway.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
        let got = upstream.requests().pop().expect("it arrived");
        let id = got.get("x-request-id").expect("one").to_owned();
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(answer.get("x-request-id"), Some(&*id));
        let trace = got.get("traceparent").expect("one");
        assert!(trace.starts_with("00-") && trace.ends_with("-01") && trace != TRACE, "{trace}");
        assert_eq!(got.get("tracestate"), None);
        let line = access_line(&gateway, n + 1);
        assert_eq!(line["request_id"], *id);
        assert_eq!(line["trace_id"], trace[3..35]);
        seen.push(id);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "each is new");
}

#[test]
fn new_traces_are_as_configured() {
    let upstream = Upstream::ok();
    for (setting, flags) in [("unsampled", Some("-00")), ("off", None)] {
        let gateway =
            Setup::single(Engine::Userspace, &upstream).set("traceparent", setting).start();
        gateway.ask(request("POST", "/v1/chat/completions", "{}"));
        let got = upstream.requests().pop().expect("it arrived");
        assert_eq!(got.get("traceparent").map(|trace| &trace[52..]), flags);
        let fields = [("traceparent", TRACE)];
        gateway.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
        let got = upstream.requests().pop().expect("it arrived");
        assert_eq!(got.get("traceparent"), Some(TRACE));
    }
}

#[test]
fn the_gateways_own_answers_have_the_id() {
    let gateway = Setup::new(Engine::Userspace).start();
    let fields = [("x-request-id", "mine")];
    let mut client = gateway.connect();
    let refused = client.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
    assert_eq!((refused.status(), refused.get("x-request-id")), (503, Some("mine")));
    let list = client.ask(request_with("GET", "/v1/models", &fields, ""));
    assert_eq!(list.get("x-request-id"), Some("mine"));
}

#[test]
fn an_empty_host_is_a_host() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let answer =
        gateway.ask("POST /v1/chat/completions HTTP/1.1\r\nHost:\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(answer.status(), 200);
    let got = upstream.requests().pop().expect("it arrived");
    assert_eq!(got.get("host"), Some(&*upstream.address().to_string()));
    assert_eq!(got.get("x-forwarded-host"), None);
}

#[test]
fn a_trusted_proxy_is_believed() {
    let upstream = Upstream::ok();
    let trusted = vec!["127.0.0.1/32".to_owned(), "10.0.0.0/8".to_owned()];
    let gateway = logging(&upstream).set("proxies.trusted", trusted).start();
    let fields = [
        ("X-Forwarded-For", "6.6.6.6, 203.0.113.5"),
        ("X-Forwarded-For", "10.0.0.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "api.example"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    gateway.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
    let got = upstream.requests().pop().expect("it arrived");
    let expected = "6.6.6.6, 203.0.113.5, 10.0.0.9, 127.0.0.1";
    assert_eq!(got.get("x-forwarded-for"), Some(expected));
    assert_eq!(got.get("x-forwarded-proto"), Some("https"));
    assert_eq!(got.get("x-forwarded-host"), Some("api.example"));
    assert_eq!(got.get("forwarded"), None);
    assert_eq!(access_line(&gateway, 1)["client"], "203.0.113.5");

    // Without the setting, the same request is whoever sent it.
    gateway.reload(&logging(&upstream));
    gateway.ask(request_with("POST", "/v1/chat/completions", &fields, "{}"));
    let got = upstream.requests().pop().expect("it arrived");
    assert_eq!(got.get("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(got.get("x-forwarded-proto"), Some("http"));
    assert_eq!(got.get("x-forwarded-host"), Some("gateway.test"));
    assert_eq!(access_line(&gateway, 2)["client"], "127.0.0.1");
}
