//! Web pages that call the API.

use tests::{
    Engine, Gateway, Message, Setup, Upstream,
    message::{request_with, response_with},
};

const APP: &str = "https://app.example";

/// An instance with ideas of its own about who may read it.
fn upstream() -> Upstream {
    Upstream::answering(|_| {
        let fields = [
            ("Access-Control-Allow-Origin", "*"),
            ("Access-Control-Allow-Credentials", "true"),
            ("Vary", "Accept-Encoding"),
        ];
        response_with(200, &fields, "{\"data\":[]}")
    })
}

fn start(upstream: &Upstream, origins: &[&str]) -> Gateway {
    let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
    Setup::single(Engine::Userspace, upstream).default_paths().set("cors.origins", origins).start()
}

fn from(origin: &str, method: &str, path: &str, body: &str) -> Vec<u8> {
    request_with(method, path, &[("Origin", origin)], body)
}

fn preflight(origin: &str, path: &str) -> Vec<u8> {
    let fields = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
    ];
    request_with("OPTIONS", path, &fields, "")
}

#[track_caller]
fn is_readable(answer: &Message) {
    assert_eq!(answer.get("access-control-allow-origin"), Some(APP), "{:?}", answer.fields);
    assert_eq!(answer.get("access-control-expose-headers"), Some("*"));
    assert_eq!(answer.get("access-control-allow-credentials"), None);
    assert!(answer.all("vary").contains(&"Origin"));
}

#[track_caller]
fn is_not_readable(answer: &Message) {
    let cors = |name: &str| name.to_lowercase().starts_with("access-control-");
    assert!(!answer.fields.iter().any(|(name, _)| cors(name)), "{:?}", answer.fields);
    assert!(answer.all("vary").contains(&"Origin"));
}

#[test]
fn pages_of_an_allowed_origin_read_every_answer() {
    let upstream = upstream();
    let gateway = start(&upstream, &["https://other.example", APP]);
    let mut client = gateway.connect();
    let answer = client.ask(from(APP, "POST", "/v1/chat/completions", "{}"));
    assert_eq!(answer.status(), 200);
    is_readable(&answer);
    assert_eq!(answer.all("vary"), ["Accept-Encoding", "Origin"]);
    // What the gateway answers by itself: a list, an error, a check, bytes that are no request.
    let list = client.ask(from(APP, "GET", "/v1/models", ""));
    assert_eq!(list.status(), 200);
    is_readable(&list);
    let unknown = client.ask(from(APP, "GET", "/flush_cache", ""));
    assert_eq!(unknown.status(), 404);
    is_readable(&unknown);
    let wrong = client.ask(from(APP, "GET", "/v1/chat/completions", ""));
    assert_eq!(wrong.status(), 405);
    is_readable(&wrong);
    let large = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\norigin: {APP}\r\nContent-Length: {}\r\n\r\n",
        1_u64 << 40
    );
    let large = gateway.ask(large);
    assert_eq!(large.status(), 413);
    is_readable(&large);
}

#[test]
fn preflights_are_answered_by_the_gateway() {
    let upstream = upstream();
    let gateway = start(&upstream, &[APP]);
    let mut client = gateway.connect();
    for (path, methods) in [
        ("/v1/chat/completions", "POST, OPTIONS"),
        ("/v1/responses/resp_1", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/endpoints/default/invocations", "POST, OPTIONS"),
    ] {
        client.send(preflight(APP, path));
        let answer = client.response_to("HEAD");
        assert_eq!(answer.status(), 204, "{path}");
        is_readable(&answer);
        assert_eq!(answer.get("access-control-allow-methods"), Some(methods));
        let names = answer.get("access-control-allow-headers");
        assert_eq!(names, Some("authorization,content-type"));
        assert!(answer.get("access-control-max-age").is_some());
        assert_eq!(answer.content_length(), None);
    }
    let refused = client.ask(preflight("https://evil.example", "/v1/chat/completions"));
    assert_eq!((refused.status(), refused.get("x-atalho-error")), (403, Some("cors_origin")));
    is_not_readable(&refused);
    assert_eq!(client.ask(preflight(APP, "/flush_cache")).status(), 404);
    assert_eq!(upstream.count(), 0);
    // OPTIONS without a page behind it is for the instance.
    assert_eq!(client.ask(request_with("OPTIONS", "/v1/chat/completions", &[], "")).status(), 200);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn other_pages_read_nothing_whatever_the_instance_says() {
    let upstream = upstream();
    let gateway = start(&upstream, &[APP]);
    let mut client = gateway.connect();
    for origin in ["https://evil.example", "https://app.example.evil", "null", "http://app.example"]
    {
        let answer = client.ask(from(origin, "POST", "/v1/chat/completions", "{}"));
        assert_eq!(answer.status(), 200);
        is_not_readable(&answer);
        is_not_readable(&client.ask(from(origin, "GET", "/v1/models", "")));
    }
    is_not_readable(&client.ask(request_with("POST", "/v1/chat/completions", &[], "{}")));
}

#[test]
fn every_page_can_be_allowed() {
    let upstream = upstream();
    let gateway = start(&upstream, &["*"]);
    let mut client = gateway.connect();
    for origin in [APP, "null"] {
        let answer = client.ask(from(origin, "POST", "/v1/chat/completions", "{}"));
        assert_eq!(answer.get("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.get("access-control-allow-credentials"), None);
        assert_eq!(answer.all("vary"), ["Accept-Encoding"]);
        client.send(preflight(origin, "/v1/chat/completions"));
        assert_eq!(client.response_to("HEAD").get("access-control-allow-origin"), Some("*"));
    }
}

#[test]
fn without_the_setting_it_is_up_to_the_instances() {
    let upstream = upstream();
    let gateway = start(&upstream, &[]);
    let mut client = gateway.connect();
    let answer = client.ask(from(APP, "POST", "/v1/chat/completions", "{}"));
    assert_eq!(answer.get("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.get("access-control-allow-credentials"), Some("true"));
    assert_eq!(client.ask(preflight(APP, "/v1/chat/completions")).status(), 200);
    assert_eq!(upstream.count(), 2, "preflights pass");
    let list = client.ask(from(APP, "GET", "/v1/models", ""));
    assert_eq!(list.get("access-control-allow-origin"), None);
}
