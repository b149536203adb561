//! Who a client is, and what its request is called: ids, and proxies in front of the gateway.

use std::time::{Duration, Instant};

use tests::{
    Engine, Gateway, Setup, Upstream, for_each_engine,
    message::{request, request_with, response, response_with},
    payload,
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
fn an_access_line_names_the_model_where_nothing_depends_on_it() {
    let upstream = Upstream::ok();
    let gateway = logging(&upstream).start();
    let chat = r#"{"messages":[{"content":"x"}],"model":"llama","prompt_cache_key":"team"}"#;
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b--\r\n";
    for (n, (path, kind, body, model, tenant)) in [
        ("/v1/chat/completions", "application/json", chat, "llama", true),
        ("/v1/images/generations", "application/json", r#"{"model":"flux"}"#, "flux", false),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=b", form, "whisper", false),
        ("/openai/deployments/gpt/chat/completions", "application/json", chat, "gpt", false),
        ("/v1/chat/completions", "application/json", "{}", "", false),
    ]
    .into_iter()
    .enumerate()
    {
        let request = request_with("POST", path, &[("Content-Type", kind)], body);
        assert_eq!(gateway.ask(request).status(), 200);
        let line = access_line(&gateway, n + 1);
        assert_eq!((&line["model"], line["tenant"].is_string()), (&model.into(), tenant), "{path}");
    }
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

/// A header of version 2 for a connection from 192.0.2.1, with a field more than the addresses.
fn binary_header() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13".to_vec();
    header.extend([192, 0, 2, 1, 198, 51, 100, 2, 0xdd, 0xd5, 0, 80]);
    header.extend([4, 0, 4, 1, 2, 3, 4]);
    header
}

const LINE: &[u8] = b"PROXY TCP6 2001:db8::7 2001:db8::8 4711 80\r\n";

fn everyone() -> Vec<String> {
    vec!["0.0.0.0/0".into(), "::/0".into()]
}

for_each_engine! {
    fn bodies_pass_behind_a_proxy_header(engine) {
        for header in [LINE.to_vec(), binary_header()] {
            let upstream = Upstream::manual();
            let gateway = Setup::single(engine, &upstream)
                .set("proxies.proxy_protocol", everyone())
                .start();
            let mut client = gateway.connect();
            client.send(&header);
            let expected = if header[0] == b'P' { "2001:db8::7" } else { "192.0.2.1" };
            let mut instance = None;
            // The header is in front of the connection, and each of its requests comes from there.
            for round in 0..2 {
                let body = payload::bytes(round, 200_000);
                let message = request("POST", "/echo", &body);
                let head_bytes = message.len() - body.len();
                client.send(&message[..head_bytes]);
                let instance = instance.get_or_insert_with(|| upstream.accept());
                let head = instance.head();
                assert_eq!(head.get("x-forwarded-for"), Some(expected));
                let answer = response(200, &body);
                let answer_head = answer.len() - body.len();
                // Piece by piece, so that whatever carries the bodies has taken them over.
                for piece in body.chunks(10_000) {
                    client.send(piece);
                    instance.expect(piece);
                }
                instance.send(&answer[..answer_head]);
                client.head();
                for piece in body.chunks(10_000) {
                    instance.send(piece);
                    client.expect(piece);
                }
            }
            gateway.expect_carried("request");
            gateway.expect_carried("response");
            gateway.expect_idle();
        }
    }
}

#[test]
fn a_proxy_header_names_the_client() {
    let upstream = Upstream::ok();
    let setup = logging(&upstream).set("proxies.proxy_protocol", vec!["127.0.0.0/8".to_owned()]);
    let gateway = setup.clone().set("proxies.trusted", vec!["192.0.2.0/24".to_owned()]).start();
    let ask = |header: &[u8], fields: &[(&str, &str)]| {
        let mut client = gateway.connect();
        // In pieces: it need not come at once.
        client.send_in_pieces(header, 5);
        let message = request_with("POST", "/v1/chat/completions", fields, "{}");
        assert_eq!(client.ask(message).status(), 200);
        let got = upstream.requests().pop().expect("it arrived");
        got.get("x-forwarded-for").expect("an address").to_owned()
    };
    assert_eq!(ask(LINE, &[]), "2001:db8::7");
    assert_eq!(access_line(&gateway, 1)["client"], "2001:db8::7");
    // An HTTP proxy in front of the load balancer.
    let forwarded = [("X-Forwarded-For", "203.0.113.5")];
    assert_eq!(ask(&binary_header(), &forwarded), "203.0.113.5, 192.0.2.1");
    assert_eq!(access_line(&gateway, 2)["client"], "203.0.113.5");
    assert_eq!(ask(LINE, &forwarded), "2001:db8::7");
    // The balancer's own connections, such as health checks.
    assert_eq!(ask(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", &[]), "127.0.0.1");
    assert_eq!(ask(b"PROXY UNKNOWN\r\n", &[]), "127.0.0.1");
}

#[test]
fn a_proxy_header_is_taken_from_those_who_are_to_send_one() {
    let upstream = Upstream::ok();
    let balancer = vec!["127.0.0.1/32".to_owned()];
    let setup = Setup::single(Engine::Userspace, &upstream)
        .set("proxies.proxy_protocol", balancer)
        .set("timeouts.head", "1s");
    let gateway = setup.start();
    // Somebody else cannot claim to be another client, and needs no header.
    let mut other = tests::Peer::connect_from("127.0.0.2:0".parse().unwrap(), gateway.address());
    assert_eq!(other.ask(request("GET", "/health", "")).status(), 200);
    let mut other = tests::Peer::connect_from("127.0.0.2:0".parse().unwrap(), gateway.address());
    other.send([LINE, &request("GET", "/health", "")].concat());
    assert_eq!(other.response().status(), 400);

    for (bytes, status) in [
        (request("GET", "/health", ""), 400),
        ([b"PROXY TCP4 1.2.3.4 5 6 7\r\n", &request("GET", "/health", "")[..]].concat(), 400),
        ([&binary_header()[..14], b"\xff\xff"].concat(), 408),
        (b"PROXY TCP4 192.0.2.1".to_vec(), 408),
    ] {
        let mut client = gateway.connect();
        let began = Instant::now();
        client.send(&bytes);
        let answer = client.response();
        assert_eq!(answer.status(), status, "{:?}", String::from_utf8_lossy(&bytes));
        assert!(answer.closes());
        client.end();
        let reason = if status == 400 { "proxy_header" } else { "head_timeout" };
        assert_eq!(answer.get("x-atalho-error"), Some(reason));
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    // Nothing at all is no mistake, but no reason to wait either.
    let mut silent = gateway.connect();
    let (rest, _) = silent.end();
    assert!(rest.is_empty());
    assert_eq!(upstream.count(), 1, "only the one without a header");
}
