//! What is ambiguous, malformed or too large is refused, and the connection is closed behind it.

use std::time::{Duration, Instant};

use tests::{
    End, Engine, Gateway, Message, Peer, Setup, Upstream, for_each_engine,
    message::{chunked_request, request, request_with, response},
    payload,
};

fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    (upstream, gateway)
}

/// Sends bytes and expects an error that closes the connection.
#[track_caller]
fn refused(gateway: &Gateway, bytes: impl AsRef<[u8]>, status: u16) -> Message {
    let bytes = bytes.as_ref();
    let mut client = gateway.connect();
    client.send(bytes);
    // Whatever follows must not be taken for another request.
    let _ = client.try_send(&request("GET", "/smuggled", ""));
    let answer = client.response();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]);
    assert_eq!(answer.status(), status, "{shown:?}: {:?}", answer.head.first);
    assert!(answer.closes(), "{shown:?}");
    assert!(answer.get("x-atalho-error").is_some(), "{shown:?}");
    let json = answer.json();
    // In the form of the API: OpenAI's, or the AWS SDK's.
    let message = json["error"]["message"].as_str().or(json["Message"].as_str());
    assert!(message.is_some_and(|text| text.len() > 10), "{shown:?}: {json}");
    let (rest, _) = client.end();
    assert!(rest.is_empty(), "{shown:?}: more came: {:?}", String::from_utf8_lossy(&rest));
    answer
}

fn with(lines: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

#[test]
fn ambiguous_and_malformed_heads() {
    let (upstream, gateway) = start();
    let bad: Vec<String> = [
        // Two framings, or none that can be told.
        with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        with("Content-Length: 5\r\nContent-Length: 5\r\n"),
        with("Content-Length: 5\r\nContent-Length: 6\r\n"),
        with("Content-Length: 5, 5\r\n"),
        with("Content-Length: +5\r\n"),
        with("Content-Length: -5\r\n"),
        with("Content-Length: 0x5\r\n"),
        with("Content-Length: 5 5\r\n"),
        with("Content-Length:\r\n"),
        with("Content-Length: 99999999999999999999\r\n"),
        with("Transfer-Encoding: identity\r\n"),
        with("Transfer-Encoding: chunked, identity\r\n"),
        with("Transfer-Encoding: gzip, chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding: xchunked\r\n"),
        with("Transfer-Encoding: \"chunked\"\r\n"),
        with("Transfer-Encoding: chunked;q=1\r\n"),
        with("Transfer-Encoding:\u{b}chunked\r\n"),
        // Lines.
        with("X: a\r\n b\r\n"),
        with("X: a\r\n\tb\r\n"),
        " POST /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        with("X : a\r\n"),
        with("Content-Length : 5\r\n"),
        with("X\t: a\r\n"),
        with(": a\r\n"),
        with("no colon\r\n"),
        with("X: a\rb\r\n"),
        with("X: a\0b\r\n"),
        with("X: a\u{1}b\r\n"),
        with("X: a\u{7f}b\r\n"),
        with("X(y): a\r\n"),
        "POST /x HTTP/1.1\nHost: h\nContent-Length: 0\n\n".into(),
        "POST /x HTTP/1.1\r\nHost: h\r\nX: y\n\r\n".into(),
        "POST /x HTTP/1.1\r\nHost: h\r\nX: y\r\r\n\r\n".into(),
        // Host.
        "GET /x HTTP/1.1\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: u@a\r\n\r\n".into(),
        // Request lines.
        "GET  /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x  HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET\t/x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x y HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x\u{1} HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET http://h?x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x#fragment HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x http/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x HTTP/1.1 \r\nHost: h\r\n\r\n".into(),
        "G(T /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "/x\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}\r\n\r\n".into(),
        // HTTP/1.0 knows no transfer codings.
        "POST /x HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
    ]
    .into();
    for head in &bad {
        refused(&gateway, head, 400);
    }
    assert_eq!(upstream.count(), 0, "none of them reached the instance");
    gateway.expect_idle();
    let refused = gateway.metric("atalho_errors_total", &[("status", "400")]);
    assert_eq!(refused as usize, bad.len());
}

#[test]
fn versions_and_methods_that_are_not_spoken() {
    let (upstream, gateway) = start();
    refused(&gateway, "GET /x HTTP/2.0\r\nHost: h\r\n\r\n", 505);
    refused(&gateway, "GET /x HTTP/1.2\r\nHost: h\r\n\r\n", 505);
    refused(&gateway, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501);
    refused(&gateway, "GET /x HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n", 417);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn an_empty_line_before_a_request_is_skipped() {
    let (upstream, gateway) = start();
    let mut client = gateway.connect();
    assert_eq!(client.ask("\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
    assert_eq!(client.ask("\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn malformed_chunked_request_bodies() {
    let (upstream, gateway) = start();
    let bad: [&[u8]; 12] = [
        b"g\r\n",
        b"\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5\nhello\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello\n0\r\n",
        b"10000000000000000\r\n",
        b"5;a\rb\r\nhello\r\n",
    ];
    for body in bad {
        // At once with the head, and after a good chunk.
        refused(&gateway, chunked_request("/v1/chat/completions", body), 400);
        let mut late = b"3\r\n{\"a\r\n".to_vec();
        late.extend_from_slice(body);
        refused(&gateway, chunked_request("/v1/chat/completions", late), 400);
    }
    assert_eq!(upstream.count(), 0, "no complete request reached the instance");
    gateway.expect_idle();
}

#[test]
fn a_chunked_body_that_breaks_on_its_way_aborts_the_instance() {
    for engine in [Engine::Userspace, Engine::Sockmap] {
        if !engine.available() {
            continue;
        }
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        client.send(chunked_request("/any", "3\r\nabc\r\n"));
        let mut instance = upstream.accept();
        instance.head();
        instance.expect("3\r\nabc\r\n");
        client.send("zz\r\n");
        let answer = client.response();
        assert_eq!(answer.status(), 400);
        assert!(answer.closes());
        client.end();
        let (rest, _) = instance.end();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "the instance must not see a complete request");
        gateway.expect_idle();
        gateway.expect_outcomes("bad_request", 1);
    }
}

#[test]
fn heads_are_limited_at_the_byte() {
    let (upstream, gateway) = start();
    let sized = |size: usize| {
        let head = "GET /x HTTP/1.1\r\nHost: h\r\nX-Long: ";
        format!("{head}{}\r\n\r\n", "a".repeat(size - head.len() - 4))
    };
    let exact = sized(64 * 1024);
    assert_eq!(exact.len(), 65_536);
    assert_eq!(gateway.ask(&exact).status(), 200);
    let got = upstream.requests().pop().unwrap();
    assert!(got.raw.len() > 65_000, "it went on whole");
    refused(&gateway, sized(64 * 1024 + 1), 431);
    // Without an end, too, and not only once it has been read for ever.
    refused(&gateway, "GET /x HTTP/1.1\r\nHost: h\r\nX: ".to_owned() + &"a".repeat(200_000), 431);
    refused(&gateway, "GET /".to_owned() + &"a".repeat(200_000), 431);

    let fields = |count: usize| {
        let more: String = (1..count).map(|n| format!("X-{n}: y\r\n")).collect();
        format!("GET /x HTTP/1.1\r\nHost: h\r\n{more}\r\n")
    };
    assert_eq!(gateway.ask(fields(256)).status(), 200);
    refused(&gateway, fields(257), 431);
}

#[test]
fn bodies_are_limited_at_the_byte() {
    let upstream = Upstream::answering(|request| response(200, request.body.len().to_string()));
    let gateway = Setup::single(Engine::Userspace, &upstream)
        .set("limits.body_bytes", 300_000)
        .set("limits.decision_bytes", 100_000)
        .start();
    let body = payload::text(1, 300_001);
    for target in ["/v1/chat/completions", "/invocations", "/any"] {
        let answer = gateway.ask(request("POST", target, &body[..300_000]));
        assert_eq!((answer.status(), &answer.payload()[..]), (200, &b"300000"[..]), "{target}");
        // Refused by what it announces, before a byte of it was read.
        let announced = request("POST", target, &body);
        refused(&gateway, &announced[..announced.len() - body.len()], 413);
    }
    // Chunked bodies announce nothing.
    let pieces = |size: usize| tests::chunked::encode(body.as_bytes()[..size].chunks(10_000));
    let fits = pieces(290_000);
    assert_eq!(gateway.ask(chunked_request("/any", &fits)).status(), 200);
    for target in ["/any", "/v1/chat/completions", "/invocations"] {
        let served = upstream.count();
        let mut client = gateway.connect();
        let _ = client.try_send(&chunked_request(target, pieces(300_001)));
        assert_eq!(client.response().status(), 413);
        gateway.expect_idle();
        assert_eq!(upstream.count(), served, "the instance got none of it as a whole request");
    }
}

for_each_engine! {
    fn a_body_under_way_is_refused_at_its_limit(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("limits.body_bytes", 300_000).start();
        let mut client = gateway.connect();
        client.send("POST /any HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut instance = upstream.accept();
        instance.head();
        // Piece by piece, so that whatever carries the body has taken it over. Each fits into a window,
        // so that nothing is under way when the gateway looks.
        let piece = tests::chunked::chunk(&payload::bytes(1, 10_000));
        let mut sent = 0;
        while sent + piece.len() <= 300_000 {
            client.send(&piece);
            instance.expect(&piece);
            sent += piece.len();
        }
        let _ = client.try_send(&piece);
        assert_eq!(client.response().status(), 413);
        let (rest, _) = instance.end();
        assert!(sent + rest.len() <= 300_000, "{} bytes went on", sent + rest.len());
        gateway.expect_carried("request");
        gateway.expect_idle();
    }
}

for_each_engine! {
    fn a_client_that_sends_on_behind_its_refusal_is_reset(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("limits.body_bytes", 300_000).start();
        let mut client = gateway.connect();
        client.send(chunked_request("/any", "3\r\nabc\r\n"));
        let mut instance = upstream.accept();
        instance.head();
        instance.expect("3\r\nabc\r\n");
        let mut writer = Peer::new(client.stream().try_clone().unwrap());
        let flood = std::thread::spawn(move || {
            let chunk = tests::chunked::chunk(&payload::bytes(1, 50_000));
            let start = Instant::now();
            while writer.try_send(&chunk).is_ok() {}
            start.elapsed()
        });
        instance.end();
        // The answer may be lost with the connection to a client that does not read it in time.
        if let Ok(head) = client.try_head() {
            assert_eq!(head.status(), 413);
        }
        client.end();
        let took = flood.join().unwrap();
        assert!(took < Duration::from_secs(10), "it was held for {took:?}");
        gateway.expect_idle();
    }
}

#[test]
fn a_hundred_mebibytes_are_allowed_by_default() {
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let head = |size: usize| {
        format!("POST /any HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n0123456789")
    };
    let mut client = gateway.connect();
    client.send(head(100 << 20));
    let mut instance = upstream.accept();
    assert_eq!(instance.head().content_length(), Some(100 << 20));
    instance.expect("0123456789");
    refused(&gateway, head((100 << 20) + 1), 413);
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let (_upstream, gateway) = start();
    // More than fits into all buffers: closing at once would reset the connection under the answer.
    let mut client = gateway.connect();
    let size = 101 << 20;
    let head = format!("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n");
    client.send(head);
    let _ = client.try_send(&payload::bytes(1, 300_000));
    let answer = client.response();
    assert_eq!(answer.status(), 413);
}

#[test]
fn an_upload_refused_does_not_get_a_continue() {
    let (_upstream, gateway) = start();
    let mut client = gateway.connect();
    let size = 101 << 20;
    client.send(format!(
        "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {size}\r\n\r\n"
    ));
    assert_eq!(client.head().status(), 413);
}

#[test]
fn tenant_ids_are_validated() {
    let (upstream, gateway) = start();
    let name = "X-Amzn-SageMaker-Prefix-Aware-Id";
    let ask = |value: &str| {
        gateway.ask(request_with("POST", "/v1/chat/completions", &[(name, value)], "{}"))
    };
    assert_eq!(ask("a").status(), 200);
    assert_eq!(ask(&"x".repeat(64)).status(), 200);
    assert_eq!(ask("a b~!").status(), 200);
    let before = upstream.count();
    for bad in [&"x".repeat(65)[..], "", "caf\u{e9}", "a\tb"] {
        let answer = ask(bad);
        assert_eq!(answer.status(), 400, "{bad:?}");
        assert!(answer.get("x-atalho-error").is_some());
    }
    assert_eq!(upstream.count(), before);
}

#[test]
fn bad_responses_become_502() {
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(70_000));
    let bad: [&str; 11] = [
        "garbage\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        &long,
    ];
    for reply in bad {
        let mut client = gateway.connect();
        client.send(request("POST", "/v1/chat/completions", "{}"));
        let mut instance = upstream.accept();
        instance.request();
        let _ = instance.try_send(reply.as_bytes());
        let answer = client.response();
        assert_eq!(answer.status(), 502, "{:?}", &reply[..reply.len().min(80)]);
        assert!(answer.get("x-atalho-error").is_some());
        instance.end();
    }
    gateway.expect_outcomes("bad_response", bad.len() as u64);
    gateway.expect_idle();
}

#[test]
fn repeated_transfer_encoding_of_an_instance_is_tolerated_or_refused_but_never_forwarded() {
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let mut client = gateway.connect();
    client.send(request("POST", "/v1/chat/completions", "{}"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\n\r\n",
    );
    let answer = client.response();
    assert!(answer.all("transfer-encoding").len() <= 1);
}

#[test]
fn errors_take_the_form_of_the_api() {
    let gateway = Setup::new(Engine::Userspace).start();
    let ask = |target: &str| gateway.ask(request("POST", target, "{}"));
    for target in ["/v1/chat/completions", "/v1/completions", "/generate", "/whatever"] {
        let answer = ask(target);
        assert_eq!(answer.status(), 503, "{target}");
        assert!(answer.get("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()));
        let json = answer.json();
        for key in ["message", "type", "param", "code"] {
            assert!(json["error"].get(key).is_some(), "{target}: {json}");
        }
    }
    let anthropic = ask("/v1/messages").json();
    assert_eq!(anthropic["type"], "error");
    assert!(anthropic["error"]["type"].is_string() && anthropic["error"]["message"].is_string());
    let sagemaker = ask("/endpoints/default/invocations");
    assert_eq!(sagemaker.status(), 503);
    assert!(sagemaker.get("x-amzn-errortype").is_some());
    assert!(sagemaker.json()["Message"].is_string());
}

#[test]
fn an_error_to_head_has_no_body() {
    let gateway = Setup::new(Engine::Userspace).start();
    let mut client = gateway.connect();
    client.send(request_with("HEAD", "/x", &[("Connection", "close")], ""));
    let answer = client.response_to("HEAD");
    assert_eq!(answer.status(), 503);
    assert_eq!(client.expect_end(), End::Closed);
}

#[test]
fn a_refused_connection_is_closed_in_the_end_even_if_the_client_is_not() {
    let (_upstream, gateway) = start();
    let mut client = Peer::connect(gateway.address());
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().status(), 400);
    client.expect_end();
}
