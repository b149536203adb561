use std::{net::IpAddr, sync::LazyLock};

use super::*;
use crate::http::{
    Cors, Ids, Limits, Method,
    ids::{RequestId, TraceParent},
    parse_request, parse_response, parse_upgrade_response,
};

static IDS: LazyLock<Ids> = LazyLock::new(|| Ids {
    request: RequestId::parse(b"req-1").expect("valid"),
    trace: TraceParent::parse(TRACE.as_bytes()),
    continued: true,
});

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

static UP: LazyLock<Upstream<'static>> = LazyLock::new(|| Upstream {
    instead: &[],
    authority: "10.0.0.1:8000",
    target: None,
    origin: Origin { peer: IpAddr::from([192, 0, 2, 7]), trusted: false },
    upgrade: false,
    ids: &IDS,
});

fn up(input: &str, up: &Upstream<'_>) -> String {
    let head = parse_request(input.as_bytes(), &Limits::default()).expect(input).expect(input);
    let mut out = Vec::new();
    request(&mut out, input.as_bytes(), &head, up);
    let again = parse_request(&out, &Limits::default()).expect("valid").expect("complete");
    assert_eq!((again.len, again.framing), (out.len(), head.framing), "{input:?}");
    String::from_utf8(out).unwrap()
}

fn down(input: &str, method: Method, down: &Downstream<'_>) -> String {
    let head = parse_response(input.as_bytes(), method, &Limits::default());
    let head = head.expect(input).expect(input);
    let mut out = Vec::new();
    response(&mut out, input.as_bytes(), &head, down);
    String::from_utf8(out).unwrap()
}

const OPEN: Downstream<'static> = Downstream {
    version: Version::Http11,
    keep_alive: true,
    body: Body::Verbatim,
    extra: &[],
    cors: Cors::Off,
};

#[test]
fn a_request_is_written_anew() {
    let out = up(
        "POST /v1/x?y HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer a\r\nX-Empty:\r\n\
         TRANSFER-encoding:\tChunked \r\nConnection: close\r\n\r\n",
        &UP,
    );
    assert_eq!(
        out,
        "POST /v1/x?y HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nAuthorization: Bearer a\r\nX-Empty: \r\n\
         Transfer-Encoding: chunked\r\nx-request-id: req-1\r\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nVia: 1.1 atalho\r\nX-Forwarded-For: 192.0.2.7\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: api\r\n\r\n"
    );
}

#[test]
fn the_target_can_be_replaced_and_absolute_form_goes() {
    let with = Upstream { target: Some(b"/invocations"), ..*UP };
    assert!(
        up("POST /endpoints/e/invocations HTTP/1.1\r\nHost: a\r\n\r\n", &with)
            .starts_with("POST /invocations HTTP/1.1\r\n")
    );
    let out = up("GET http://other:1/p HTTP/1.1\r\nHost: a\r\n\r\n", &UP);
    assert!(out.starts_with("GET /p HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n"));
    assert!(out.contains("X-Forwarded-Host: other:1\r\n"));
    assert!(!out.contains("Host: a\r\n"));
}

#[test]
fn an_http10_request_becomes_http11() {
    let out = up("GET / HTTP/1.0\r\n\r\n", &UP);
    assert!(out.starts_with("GET / HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n"));
    assert!(out.contains("Via: 1.0 atalho\r\n"));
    assert!(!out.contains("X-Forwarded-Host"));
}

#[test]
fn lengths_are_written_in_their_plainest_form() {
    let out = up("POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 007\r\n\r\n", &UP);
    assert!(out.contains("\r\nContent-Length: 7\r\n"));
    let out = up("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", &UP);
    assert!(out.contains("\r\nContent-Length: 0\r\n"));
    let out = up("POST / HTTP/1.1\r\nHost: a\r\n\r\n", &UP);
    assert!(out.contains("\r\nContent-Length: 0\r\n"));
    let out = up("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &UP);
    assert!(!out.contains("Content-Length"));
}

#[test]
fn connection_fields_stay_on_their_connection() {
    let out = up(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-One\r\nX-One: 1\r\nx-one: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nTE: trailers\r\nUpgrade: websocket\r\n\
         HTTP2-Settings: x\r\nProxy-Authorization: x\r\nExpect: 100-continue\r\nX-Two: 2\r\n\
         Connection: X-Two\r\nX-Three: 3\r\nContent-Length: 1\r\n\r\n",
        &UP,
    );
    let names: Vec<_> =
        out.lines().skip(1).filter_map(|l| l.split_once(':')).map(|l| l.0).collect();
    assert_eq!(
        names,
        [
            "Host",
            "X-Three",
            "Content-Length",
            "x-request-id",
            "traceparent",
            "Via",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host"
        ]
    );
}

#[test]
fn connection_cannot_remove_what_others_decide_by() {
    let out = up(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nAuthorization: b\r\nX-Api-Key: k\r\n\
         X-Amzn-SageMaker-Prefix-Aware-Id: t\r\nContent-Type: application/json\r\nCookie: c\r\n\
         Connection: host, content-length, transfer-encoding, authorization, x-api-key, cookie, \
         x-amzn-sagemaker-prefix-aware-id, content-type, x-forwarded-for, via\r\n\r\n",
        &UP,
    );
    for kept in [
        "Host: 10.0.0.1:8000",
        "Content-Length: 5",
        "Authorization: b",
        "X-Api-Key: k",
        "Cookie: c",
        "X-Amzn-SageMaker-Prefix-Aware-Id: t",
        "Content-Type: application/json",
        "X-Forwarded-For: 192.0.2.7",
        "Via: 1.1 atalho",
    ] {
        assert!(out.contains(&format!("\r\n{kept}\r\n")), "{kept}");
    }
}

#[test]
fn forwarding_fields_of_the_client_are_replaced() {
    let out = up(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX-FORWARDED-PROTO: https\r\n\
         X-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nForwarded: for=6.6.6.6\r\nVia: 1.1 x\r\n\r\n",
        &Upstream {
            origin: Origin { peer: "::ffff:192.0.2.9".parse().unwrap(), trusted: false },
            ..*UP
        },
    );
    assert!(!out.contains("6.6.6.6") && !out.contains("evil") && !out.contains("https"));
    assert!(out.contains("X-Forwarded-For: 192.0.2.9\r\n"));
    let via: Vec<_> = out.lines().filter(|line| line.starts_with("Via: ")).collect();
    assert_eq!(via, ["Via: 1.1 x", "Via: 1.1 atalho"]);
    // Servers that turn `-` into `_` would take these for the real ones.
    let out = up(
        "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 6.6.6.6\r\nx-forwarded_host: 6.6.6.6\r\n\
         X_Request-Id: 6.6.6.6\r\n\r\n",
        &UP,
    );
    assert!(!out.contains("6.6.6.6"), "{out}");
}

fn trusted() -> Upstream<'static> {
    Upstream { origin: Origin { trusted: true, ..UP.origin }, ..*UP }
}

#[test]
fn forwarding_fields_of_a_trusted_proxy_stay() {
    let out = up(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\nx-forwarded-proto: HTTPS\r\n\
         X-Forwarded-For: 10.0.0.7\r\nX-Forwarded-Host: api.example:443\r\nX-Forwarded-Port: 443\r\n\
         Forwarded: for=6.6.6.6\r\n\r\n",
        &trusted(),
    );
    let at = out.find("X-Forwarded-For").expect("there");
    assert_eq!(
        &out[at..],
        "X-Forwarded-For: 198.51.100.1, 10.0.0.7, 192.0.2.7\r\nX-Forwarded-Proto: HTTPS\r\n\
         X-Forwarded-Host: api.example:443\r\nX-Forwarded-Port: 443\r\n\r\n"
    );
    assert_eq!(out.matches("X-Forwarded").count(), 4);
    assert!(!out.contains("6.6.6.6"));
}

#[test]
fn what_a_trusted_proxy_left_out_or_did_not_check_is_the_gateways() {
    let seen =
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\r\n";
    for lines in [
        "",
        "X-Forwarded-For:\r\n",
        "X-Forwarded-Proto: gopher\r\n",
        "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n",
        "X-Forwarded-Host: a b\r\nX-Forwarded-Port: 1x\r\n",
        "X-Forwarded-Host: b\r\nX-Forwarded-Host: c\r\nX-Forwarded-Port: 123456\r\n",
    ] {
        let out = up(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"), &trusted());
        assert!(out.ends_with(seen), "{lines:?}: {out}");
        assert_eq!(out.matches("X-Forwarded").count(), 3, "{lines:?}: {out}");
    }
}

#[test]
fn an_empty_host_is_not_passed_on() {
    for line in ["GET /p", "GET http://t/p"] {
        let out = up(&format!("{line} HTTP/1.1\r\nHost:\r\n\r\n"), &UP);
        assert!(out.starts_with("GET /p HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n"));
        assert_eq!(out.contains("X-Forwarded-Host: t\r\n"), line.contains("//t"));
        assert_eq!(out.contains("X-Forwarded-Host"), line.contains("//t"));
    }
}

#[test]
fn ids_are_the_gateways_choice() {
    let sent = "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: one\r\nx-request-id: two\r\nTraceparent: x\r\n\
                TraceState: vendor=1\r\n\r\n";
    let out = up(sent, &UP);
    assert!(out.contains("\r\nx-request-id: req-1\r\n"));
    assert!(out.contains(&format!("\r\ntraceparent: {TRACE}\r\n")));
    assert!(out.contains("\r\nTraceState: vendor=1\r\n"));
    assert!(!out.contains("one") && !out.contains("two") && !out.contains("Traceparent"));
    // What vendors added belongs to a trace that is not continued.
    let ids = Ids { continued: false, ..*IDS };
    assert!(!up(sent, &Upstream { ids: &ids, ..*UP }).contains("vendor"));
    let ids = Ids { trace: None, continued: false, ..*IDS };
    assert!(!up(sent, &Upstream { ids: &ids, ..*UP }).to_lowercase().contains("trace"));
}

#[test]
fn max_forwards_counts_down() {
    let head = "OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n";
    assert!(up(head, &UP).contains("Max-Forwards: 2\r\n"));
    assert!(up(&head.replace("OPTIONS *", "TRACE /"), &UP).contains("Max-Forwards: 2\r\n"));
    assert!(up(&head.replace("OPTIONS *", "GET /"), &UP).contains("Max-Forwards: 3\r\n"));
    let zero = head.replace('3', "0");
    let parsed = parse_request(zero.as_bytes(), &Limits::default()).unwrap().unwrap();
    assert!(parsed.is_for_gateway(zero.as_bytes()));
}

#[test]
fn a_response_is_written_anew() {
    let out = down(
        "HTTP/1.0 404 Not  Here\r\nServer: u\r\nContent-length: 03\r\nConnection: x-gone\r\n\
         Keep-Alive: timeout=5\r\nX-Gone: 1\r\nX-Atalho-Instance: forged\r\nSet-Cookie: a\r\n\
         Set-Cookie: b\r\n\r\n",
        Method::Get,
        &Downstream { extra: &[("x-atalho-instance", b"10.0.0.1:8000")], ..OPEN },
    );
    assert_eq!(
        out,
        "HTTP/1.1 404 Not  Here\r\nServer: u\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
         x-atalho-instance: 10.0.0.1:8000\r\nContent-Length: 3\r\n\r\n"
    );
}

#[test]
fn the_connection_closes_where_it_must() {
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let closing = "HTTP/1.1 200 OK\r\n\r\n";
    let case = |input, version, keep_alive, body| {
        down(
            input,
            Method::Get,
            &Downstream { version, keep_alive, body, extra: &[], cors: Cors::Off },
        )
    };
    let (old, new) = (Version::Http10, Version::Http11);
    assert!(!case(sized, new, true, Body::Verbatim).contains("Connection"));
    assert!(case(sized, new, false, Body::Verbatim).contains("Connection: close\r\n"));
    assert!(case(sized, old, true, Body::Verbatim).contains("Connection: keep-alive\r\n"));
    assert!(case(sized, old, false, Body::Verbatim).contains("Connection: close\r\n"));
    assert!(case(closing, new, true, Body::Verbatim).contains("Connection: close\r\n"));
    assert!(case(chunked, new, true, Body::Verbatim).contains("Transfer-Encoding: chunked\r\n"));
    let dechunked = case(chunked, old, true, Body::Payload);
    assert_eq!(dechunked, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    for input in [sized, chunked, closing] {
        assert!(!case(input, new, true, Body::Events).contains("Connection"));
        assert!(case(input, old, true, Body::Events).contains("Connection: close\r\n"));
    }
}

#[test]
fn an_event_stream_has_a_head_of_its_own() {
    let input = "HTTP/1.1 201 Made\r\nServer: u\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\
                 Content-Encoding: gzip\r\nETag: \"x\"\r\nTrailer: t\r\n\r\n";
    let extra: &[(&str, &[u8])] = &[("Content-Type", b"application/x-events")];
    let out = down(input, Method::Post, &Downstream { body: Body::Events, extra, ..OPEN });
    assert_eq!(
        out,
        "HTTP/1.1 200 OK\r\nServer: u\r\nContent-Type: application/x-events\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn responses_without_a_body() {
    let out = down("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", Method::Head, &OPEN);
    assert!(out.contains("Content-Length: 9\r\n"));
    let out = down("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Method::Get, &OPEN);
    assert!(out.contains("Content-Length: 9\r\n"));
    let out = down("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", Method::Get, &OPEN);
    assert_eq!(out, "HTTP/1.1 204 No Content\r\n\r\n");
    let out = down("HTTP/1.1 100\r\nContent-Length: 0\r\nX: y\r\n\r\n", Method::Get, &OPEN);
    assert_eq!(out, "HTTP/1.1 100 \r\nX: y\r\n\r\n");
}

#[test]
fn the_gateway_alone_says_who_may_read_an_answer() {
    let input = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nACCESS-CONTROL-expose-headers: x\r\n\
                 Vary: Accept\r\nContent-Length: 0\r\n\r\n";
    let fields = |cors| {
        let out = down(input, Method::Get, &Downstream { cors, ..OPEN });
        let lines: Vec<_> =
            out.lines().skip(1).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        lines
    };
    let instance = [
        "Access-Control-Allow-Origin: *",
        "ACCESS-CONTROL-expose-headers: x",
        "Vary: Accept",
        "Content-Length: 0",
    ];
    assert_eq!(fields(Cors::Off), instance);
    let denied = Cors::On { allowed: None, varies: true };
    assert_eq!(fields(denied), ["Vary: Accept", "Vary: Origin", "Content-Length: 0"]);
    let allowed = Cors::On { allowed: Some("https://app.example"), varies: true };
    assert_eq!(
        fields(allowed),
        [
            "Vary: Accept",
            "Access-Control-Allow-Origin: https://app.example",
            "Access-Control-Expose-Headers: *",
            "Vary: Origin",
            "Content-Length: 0",
        ]
    );
    for said in ["Origin", "Accept-Encoding, origin", "*"] {
        let input = input.replace("Accept", said);
        let out = down(&input, Method::Get, &Downstream { cors: allowed, ..OPEN });
        assert_eq!(out.matches("Vary:").count(), 1, "{out}");
    }
}

#[test]
fn a_websocket_handshake_goes_on_and_back() {
    let sent = "GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade, Sec-WebSocket-Key\r\n\
                Upgrade: h2c, WebSocket\r\nSec-WebSocket-Key: k\r\nHTTP2-Settings: x\r\n\r\n";
    let out = up(sent, &Upstream { upgrade: true, ..*UP });
    for line in ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"] {
        assert_eq!(out.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {out}");
    }
    assert!(!out.contains("h2c") && !out.contains("Settings") && !out.contains("keep-alive"));
    assert!(!up(sent, &UP).contains("pgrade"));

    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade, X-Hop\r\nX-Hop: 1\r\n\
                  UPGRADE: WebSocket\r\nSec-WebSocket-Accept: s\r\nContent-Length: 5\r\n\r\n";
    let head = parse_upgrade_response(answer.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    response(&mut out, answer.as_bytes(), &head, &OPEN);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\n\r\n"
    );
}
