//! What becomes of a request head on its way.

use tests::{
    Engine,
    message::{request, request_with, response},
};

use super::{exchange, first, start};

#[test]
fn any_method_and_target_is_forwarded() {
    let (upstream, gateway) = start(Engine::Userspace);
    let (mut client, mut instance) = first(&gateway, &upstream);
    for (method, target, body) in [
        ("GET", "/", ""),
        ("GET", "/a/b%20c?x=1&y=%2F#no", ""),
        ("DELETE", "/thing?id=1", ""),
        ("PATCH", "/thing", "patch"),
        ("PUT", "/v1/files/f", "put"),
        ("PROPFIND", "/dav", "<x/>"),
        ("POST", "//double//slash", "x"),
        ("OPTIONS", "/v1/chat/completions", ""),
        ("GET", "/v1/chat/completions", ""),
        ("POST", "/tokenize", "{}"),
    ] {
        if target.contains('#') {
            continue; // A fragment is never sent: see `rejects`.
        }
        let (got, answer) =
            exchange(&mut client, &mut instance, request(method, target, body), response(200, ""));
        assert_eq!((got.method(), got.target()), (method, target));
        assert_eq!(got.payload(), body.as_bytes());
        assert_eq!(answer.status(), 200);
    }
    // Asks the server as a whole, which is the gateway to its clients.
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
}

#[test]
fn absolute_form_targets_become_origin_form() {
    let (upstream, gateway) = start(Engine::Userspace);
    let (mut client, mut instance) = first(&gateway, &upstream);
    for (target, origin) in [
        ("http://api.example:8080/v1/models/x?y=z", "/v1/models/x?y=z"),
        ("http://api.example", "/"),
        ("HTTP://API.example/a", "/a"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n"));
        let got = instance.request();
        assert_eq!(got.target(), origin, "{target}");
        assert_eq!(got.get("host"), Some(&*upstream.address().to_string()));
        let host = if target.contains("8080") { "api.example:8080" } else { "api.example" };
        let seen = got.get("x-forwarded-host").unwrap_or_default();
        assert!(seen.eq_ignore_ascii_case(host), "{target}: X-Forwarded-Host is {seen:?}");
        instance.send(response(200, ""));
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    let (upstream, gateway) = start(Engine::Userspace);
    let (mut client, mut instance) = first(&gateway, &upstream);
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\n\
         Host: api.example\r\n\
         Connection: keep-alive, X-Private, Authorization, Content-Length\r\n\
         Keep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic abc\r\n\
         TE: trailers, deflate\r\n\
         Upgrade: h2c\r\n\
         X-Private: mine\r\n\
         Authorization: Bearer secret\r\n\
         X-Twice: 1\r\n\
         X-Twice: 2\r\n\
         x-CASE: Kept \r\n\
         Content-Length: 2\r\n\r\n{}",
    );
    let got = instance.request();
    for name in
        ["keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "x-private", "expect"]
    {
        assert_eq!(got.get(name), None, "{name}");
    }
    // What Connection names must never take away framing or credentials.
    assert_eq!(got.get("authorization"), Some("Bearer secret"));
    assert_eq!(got.get("content-length"), Some("2"));
    assert_eq!(got.all("x-twice"), ["1", "2"]);
    assert!(got.fields.iter().any(|field| field == &("x-CASE".to_owned(), "Kept".to_owned())));
    assert_eq!(got.get("host"), Some(&*upstream.address().to_string()));
    assert_eq!(got.get("x-forwarded-host"), Some("api.example"));
    assert_eq!(got.get("x-forwarded-proto"), Some("http"));
    assert_eq!(got.get("x-forwarded-for"), Some("127.0.0.1"));
    assert!(got.get("via").is_some_and(|via| via.starts_with("1.1 ")), "{:?}", got.fields);

    instance.send(
        "HTTP/1.1 200 Fine\r\n\
         Connection: keep-alive, X-Inner\r\n\
         Keep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\n\
         Upgrade: h2c\r\n\
         X-Inner: secret\r\n\
         Server: vllm\r\n\
         Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Set-Cookie: a=1\r\n\
         Set-Cookie: b=2\r\n\
         Content-Type: application/json\r\n\
         Content-Length: 2\r\n\r\n{}",
    );
    let answer = client.response();
    assert_eq!(answer.first, "HTTP/1.1 200 Fine");
    for name in ["keep-alive", "upgrade", "x-inner"] {
        assert_eq!(answer.get(name), None, "{name}");
    }
    assert_eq!(answer.get("server"), Some("vllm"));
    assert_eq!(answer.get("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.get("content-type"), Some("application/json"));
}

#[test]
fn what_the_client_claims_about_its_own_way_is_not_passed_on() {
    let (upstream, gateway) = start(Engine::Userspace);
    let (mut client, mut instance) = first(&gateway, &upstream);
    client.send(request_with(
        "GET",
        "/x",
        &[("X-Forwarded-For", "10.1.2.3"), ("Via", "1.1 edge"), ("X-Forwarded-Proto", "https")],
        "",
    ));
    let got = instance.request();
    // Anyone can write these; the gateway says what it has seen itself.
    assert_eq!(got.get("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(got.get("x-forwarded-proto"), Some("http"));
    let via = got.all("via").join(", ");
    assert!(via.starts_with("1.1 edge, 1.1 "), "{via}");
    instance.send(response(200, ""));
    client.response();
}
