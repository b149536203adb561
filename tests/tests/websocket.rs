//! WebSockets of the realtime APIs.

use std::{
    net::TcpStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tests::{
    End, Engine, Gateway, Peer, Setup, Upstream, eventually, for_each_engine_and_driver,
    message::{request, request_with, response, response_with},
    payload,
};
use tungstenite::{
    Error, Message, WebSocket,
    handshake::{client, server},
    protocol::{CloseFrame, frame::coding::CloseCode},
};

const PATH: &str = "/v1/realtime";

/// A key and what is to be answered to it (RFC 6455 section 1.3).
const KEY: (&str, &str) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");

fn start(engine: Engine, upstream: &Upstream) -> Gateway {
    let setup = Setup::single(engine, upstream).default_paths();
    setup.set("access_log", true).set("log.format", "json").start()
}

/// The access line of a tunnel, once there is one.
fn access_line(gateway: &Gateway) -> serde_json::Value {
    let line = gateway.expect_line(&["\"target\":\"access\"", "\"status\":101"]);
    serde_json::from_str(&line).expect("JSON")
}

/// The socket of a peer that is nobody else's.
fn socket(peer: Peer) -> TcpStream {
    socket_of(&peer)
}

fn socket_of(peer: &Peer) -> TcpStream {
    peer.stream().try_clone().expect("an open socket")
}

/// Fields of a handshake as the server saw them, and its target as `:uri`.
type Fields = Vec<(String, String)>;

/// Opens a WebSocket to a server that gives back what it is sent until its peer closes.
fn open(
    gateway: &Gateway,
    upstream: &Upstream,
    path: &str,
) -> (WebSocket<TcpStream>, client::Response, JoinHandle<Fields>) {
    let url = format!("ws://{}{path}", gateway.address());
    let stream = socket(gateway.connect());
    let client = thread::spawn(move || tungstenite::client(url, stream).expect("a handshake"));
    let instance = socket(upstream.accept());
    let server = thread::spawn(move || echo(instance));
    let (client, response) = client.join().expect("it is connected");
    (client, response, server)
}

fn echo(instance: TcpStream) -> Fields {
    let mut fields = Vec::new();
    #[expect(clippy::result_large_err, reason = "tungstenite wants it so")]
    let seen = |request: &server::Request, mut response: server::Response| {
        for (name, value) in request.headers() {
            fields.push((name.to_string(), value.to_str().expect("text").to_owned()));
        }
        fields.push((":uri".into(), request.uri().to_string()));
        response.headers_mut().insert("x-from", "instance".parse().expect("a value"));
        Ok(response)
    };
    let mut server = tungstenite::accept_hdr(instance, seen).expect("a handshake");
    loop {
        match server.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                server.send(message).expect("it is read");
            }
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return fields,
            Err(error) => panic!("{error}"),
        }
    }
}

for_each_engine_and_driver! {
    fn messages_pass_both_ways_until_a_side_closes(engine) {
        let upstream = Upstream::manual();
        let gateway = start(engine, &upstream);
        let (mut client, response, server) = open(&gateway, &upstream, "/v1/realtime?model=m");
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["x-from"], "instance");
        assert!(response.headers().contains_key("x-request-id"));
        assert!(response.headers().contains_key("x-atalho-instance"));
        assert_eq!(gateway.in_flight(), 1);
        for size in [0, 1, 125, 126, 65_536, 1_000_000] {
            let bytes = payload::bytes(size as u64, size);
            client.send(Message::binary(bytes.clone())).expect("sent");
            assert_eq!(client.read().expect("a message"), Message::binary(bytes));
        }
        client.send(Message::text("d\u{e9}j\u{e0} vu")).expect("sent");
        assert_eq!(client.read().expect("a message"), Message::text("d\u{e9}j\u{e0} vu"));
        client.send(Message::Ping(b"1".to_vec().into())).expect("sent");
        assert_eq!(client.read().expect("an answer"), Message::Pong(b"1".to_vec().into()));
        assert_eq!(gateway.in_flight(), 1, "it counts for as long as it is open");

        client.close(None).expect("sent");
        loop {
            match client.read() {
                Ok(_) => {}
                Err(Error::ConnectionClosed) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let fields = server.join().expect("it ended well");
        let field = |name: &str| {
            let found = fields.iter().find(|(field, _)| field == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(field(":uri"), Some("/v1/realtime?model=m"));
        assert_eq!(field("host"), Some(&*upstream.address().to_string()));
        assert!(field("x-forwarded-for").is_some() && field("x-request-id").is_some());
        drop(client);
        gateway.expect_idle();
        gateway.expect_outcomes("ok", 1);
        assert_eq!(gateway.metric("atalho_responses_total", &[("class", "1xx")]), 1.0);

        let line = access_line(&gateway);
        assert_eq!((&line["method"], &line["path"]), (&"GET".into(), &PATH.into()));
        assert_eq!((&line["api"], &line["outcome"]), (&"realtime".into(), &"ok".into()));
        assert_eq!(line["engine"], "userspace");
        let bytes = |field: &str| line[field].as_u64().expect("a number");
        let payload = 126 + 125 + 1 + 65_536 + 1_000_000;
        for field in ["request_bytes", "response_bytes"] {
            assert!((payload..payload + 200).contains(&bytes(field)), "{line}");
        }
        assert_eq!(gateway.carried(Engine::Userspace, "request"), bytes("request_bytes"));
    }

    fn a_connection_whose_bodies_were_handed_over_can_become_a_websocket(engine) {
        let upstream = Upstream::manual();
        let gateway = start(engine, &upstream);
        let mut client = gateway.connect();
        client.send(request("POST", "/v1/completions", "{}"));
        let mut instance = upstream.accept();
        instance.request();
        let (pieces, size) = (32, 10_000);
        let length = format!("Content-Length: {}\r\n", pieces * size);
        instance.send(format!("HTTP/1.1 200 OK\r\n{length}\r\n"));
        assert_eq!(client.head().status(), 200);
        for piece in 0..pieces {
            let piece = payload::bytes(piece as u64, size);
            instance.send(&piece);
            client.expect(&piece);
        }
        if engine != Engine::Userspace {
            gateway.expect_carried("response");
        }
        // The same connections, both of them.
        client.send(handshake(PATH));
        instance.head();
        instance.send(switch());
        assert_eq!(client.head().status(), 101);
        let (up, down) = (payload::bytes(4, 1 << 20), payload::bytes(5, 1 << 20));
        let returned = down.clone();
        let sending = thread::spawn(move || {
            instance.send(&returned);
            instance
        });
        client.expect(&down);
        let mut instance = sending.join().expect("sent");
        let sent = up.clone();
        let sending = thread::spawn(move || {
            client.send(&sent);
            client.finish();
            client
        });
        instance.expect(&up);
        assert_eq!(instance.expect_end(), End::Closed);
        instance.send("bye");
        instance.finish();
        let mut client = sending.join().expect("sent");
        client.expect("bye");
        assert_eq!(client.expect_end(), End::Closed);
        gateway.expect_outcomes("ok", 2);
        gateway.expect_idle();
    }

    fn both_sides_may_send_without_a_pause(engine) {
        let upstream = Upstream::manual();
        let gateway = start(engine, &upstream);
        let (client, instance) = tunnel(&gateway, &upstream);
        let flow = |from: &Peer, to: &Peer, seed: u64| {
            let (mut from, mut to) =
                (Peer::new(socket_of(from)), Peer::new(socket_of(to)));
            let bytes = payload::bytes(seed, 8 << 20);
            let sent = bytes.clone();
            let sending = thread::spawn(move || {
                from.send(&sent);
                from.finish();
            });
            thread::spawn(move || {
                let (got, end) = to.end();
                payload::assert_same("what passed", &got, &bytes);
                assert_eq!(end, End::Closed);
                sending.join().expect("sent");
            })
        };
        let flows = [flow(&client, &instance, 1), flow(&instance, &client, 2)];
        for flow in flows {
            flow.join().expect("it arrived");
        }
        gateway.expect_outcomes("ok", 1);
    }
}

/// A tunnel between two peers, by hand.
fn tunnel(gateway: &Gateway, upstream: &Upstream) -> (Peer, Peer) {
    let mut client = gateway.connect();
    client.send(handshake(PATH));
    let mut instance = upstream.accept();
    assert_eq!(instance.head().get("sec-websocket-key"), Some(KEY.0));
    instance.send(switch());
    let head = client.head();
    assert_eq!(head.status(), 101);
    assert_eq!(head.get("sec-websocket-accept"), Some(KEY.1));
    assert!(head.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")));
    assert_eq!(head.get("upgrade"), Some("websocket"));
    (client, instance)
}

fn handshake(path: &str) -> Vec<u8> {
    let fields = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY.0),
    ];
    request_with("GET", path, &fields, "")
}

fn switch() -> Vec<u8> {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        KEY.1
    )
    .into_bytes()
}

for_each_engine_and_driver! {
    fn closes_and_resets_are_passed_on(engine) {
        let upstream = Upstream::manual();
        let gateway = start(engine, &upstream);
        // A side that has closed still gets what the other sends.
        let (mut client, mut instance) = tunnel(&gateway, &upstream);
        client.send("last words");
        client.finish();
        instance.expect("last words");
        assert_eq!(instance.expect_end(), End::Closed);
        instance.send("answer");
        instance.finish();
        client.expect("answer");
        assert_eq!(client.expect_end(), End::Closed);
        gateway.expect_outcomes("ok", 1);

        let (mut client, mut instance) = tunnel(&gateway, &upstream);
        instance.send("going");
        instance.finish();
        client.expect("going");
        assert_eq!(client.expect_end(), End::Closed);
        client.send("bye");
        client.finish();
        instance.expect("bye");
        assert_eq!(instance.expect_end(), End::Closed);
        gateway.expect_outcomes("ok", 2);

        // One that breaks off ends both.
        let (client, mut instance) = tunnel(&gateway, &upstream);
        client.reset();
        assert_eq!(instance.expect_end(), End::Reset);
        gateway.expect_outcomes("client_gone", 1);
        let (mut client, instance) = tunnel(&gateway, &upstream);
        instance.reset();
        assert_eq!(client.expect_end(), End::Reset);
        gateway.expect_outcomes("upstream_aborted", 1);
        gateway.expect_idle();
    }
}

#[test]
fn bytes_pass_only_once_the_instance_has_agreed() {
    let upstream = Upstream::manual();
    let gateway = start(Engine::Userspace, &upstream);
    let mut client = gateway.connect();
    // Frames ahead of the answer, as no client should send them.
    client.send([&handshake(PATH)[..], b"early"].concat());
    let mut instance = upstream.accept();
    instance.head();
    client.send(" bird");
    // Only the handshake has come; the rest is held back.
    instance.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert_eq!(client.head().status(), 103);
    assert!(instance.pending().is_empty());
    instance.send([&switch()[..], b"hello"].concat());
    assert_eq!(client.head().status(), 101);
    client.expect("hello");
    instance.expect("early bird");
}

#[test]
fn an_instance_may_refuse_and_http_goes_on() {
    let upstream = Upstream::answering(|request| {
        let upgrade = request.get("upgrade").unwrap_or_default();
        match request.target() {
            PATH => response_with(403, &[("X-Saw", upgrade)], "no"),
            _ => response(200, "ok"),
        }
    });
    let gateway = start(Engine::Userspace, &upstream);
    let mut client = gateway.connect();
    let answer = client.ask(handshake(PATH));
    assert_eq!((answer.status(), answer.get("x-saw")), (403, Some("websocket")));
    assert_eq!(client.ask(request("POST", "/v1/completions", "{}")).status(), 200);
    gateway.expect_idle();
}

#[test]
fn what_was_sent_ahead_of_a_refusal_is_no_request() {
    let upstream = Upstream::answering(|_| response(403, "no"));
    let gateway = start(Engine::Userspace, &upstream);
    let ahead = request("POST", "/v1/completions", "{}");
    for (path, status) in [(PATH, 403), ("/v1/models/m", 426), ("/flush_cache", 404)] {
        let mut client = gateway.connect();
        client.send([handshake(path), ahead.clone()].concat());
        assert_eq!(client.response().status(), status, "{path}");
        assert_eq!(client.end(), (Vec::new(), End::Closed), "{path}");
    }
    let paths: Vec<_> = upstream.requests().iter().map(|m| m.target().to_owned()).collect();
    assert_eq!(paths, [PATH]);
    // Behind a request that asks for no WebSocket it is one, as ever.
    let mut client = gateway.connect();
    client.send([request("GET", "/v1/models/m", ""), ahead].concat());
    assert_eq!((client.response().status(), client.response().status()), (403, 403));
}

#[test]
fn other_upgrades_are_ignored() {
    let upstream = Upstream::answering(|request| {
        let fields = ["upgrade", "http2-settings"].map(|name| request.get(name).is_some());
        response(200, format!("{fields:?}"))
    });
    let gateway = start(Engine::Userspace, &upstream);
    let mut client = gateway.connect();
    // As Java's client does with its first request.
    let h2c = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"),
    ];
    for (method, path) in [("POST", "/v1/completions"), ("GET", "/v1/models/m")] {
        let answer = client.ask(request_with(method, path, &h2c, ""));
        assert_eq!((answer.status(), &*answer.payload()), (200, &b"[false, false]"[..]));
    }
    // A body is no handshake's.
    let websocket = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    let answer = client.ask(request_with("POST", "/v1/completions", &websocket, "{}"));
    assert_eq!((answer.status(), &*answer.payload()), (200, &b"[false, false]"[..]));
}

#[test]
fn web_pages_open_websockets_if_they_may_call_the_api() {
    let upstream = Upstream::answering(|_| response(403, "from the instance"));
    let setup = Setup::single(Engine::Userspace, &upstream).default_paths();
    let gateway = setup.set("cors.origins", vec!["https://app.example".to_owned()]).start();
    let ask = |origin: Option<&str>| {
        let mut bytes = handshake(PATH);
        bytes.truncate(bytes.len() - 2);
        bytes.extend(
            origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default().bytes(),
        );
        bytes.extend_from_slice(b"\r\n");
        gateway.ask(bytes).get("x-atalho-error").map(str::to_owned)
    };
    assert_eq!(ask(Some("https://evil.example")).as_deref(), Some("cors_origin"));
    assert_eq!(ask(Some("null")).as_deref(), Some("cors_origin"));
    assert_eq!(upstream.count(), 0);
    assert_eq!(ask(Some("https://app.example")), None);
    assert_eq!(ask(None), None, "it is no web page");
    assert_eq!(upstream.count(), 2);
}

#[test]
fn a_handshake_on_a_connection_that_was_closed_goes_out_again() {
    let upstream = Upstream::manual();
    let gateway = start(Engine::Userspace, &upstream);
    let mut client = gateway.connect();
    client.send(request("POST", "/v1/completions", "{}"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "ok"));
    client.response();
    // It is read, and the connection closed at its idle limit, as servers do.
    client.send([&handshake(PATH)[..], b"ahead"].concat());
    instance.head();
    instance.close();
    let mut instance = upstream.accept();
    instance.head();
    instance.send(switch());
    assert_eq!(client.head().status(), 101);
    instance.expect("ahead");
    // On a fresh one it may be what broke the connection.
    let mut client = gateway.connect();
    client.send(handshake(PATH));
    let mut instance = upstream.accept();
    instance.head();
    instance.close();
    assert_eq!(client.response().status(), 502);
}

#[test]
fn tunnels_count_against_the_limit_of_requests() {
    let upstream = Upstream::manual();
    let setup = Setup::single(Engine::Userspace, &upstream).default_paths();
    let gateway = setup.routing("max_in_flight", 1).routing("concurrency_threshold", 1).start();
    let (client, instance) = tunnel(&gateway, &upstream);
    assert_eq!(gateway.ask(handshake(PATH)).status(), 429);
    assert_eq!(gateway.ask(request("POST", "/v1/completions", "{}")).status(), 429);
    client.finish();
    instance.finish();
    gateway.expect_idle();
    tunnel(&gateway, &upstream);
}

#[test]
fn what_is_no_websocket_is_told_so() {
    let upstream = Upstream::ok();
    let gateway = start(Engine::Userspace, &upstream);
    let mut client = gateway.connect();
    let plain = client.ask(request("GET", PATH, ""));
    assert_eq!((plain.status(), plain.get("upgrade")), (426, Some("websocket")));
    assert_eq!(plain.get("x-atalho-error"), Some("upgrade_required"));
    let other = client.ask(handshake("/v1/models/m"));
    assert_eq!((other.status(), other.get("upgrade")), (426, Some("HTTP/1.1")));
    assert_eq!(client.ask(handshake("/v1/chat/completions")).status(), 405);
    assert_eq!(client.ask(handshake("/flush_cache")).status(), 404);
    assert_eq!(client.ask(request("POST", PATH, "")).status(), 405);
    let mut with_body = handshake(PATH);
    with_body.truncate(with_body.len() - 2);
    with_body.extend_from_slice(b"Content-Length: 3\r\n\r\nabc");
    assert_eq!(gateway.ask(with_body).status(), 400);
    assert_eq!(upstream.count(), 0);
    // To another protocol nobody switches.
    let h2c = [("Connection", "Upgrade"), ("Upgrade", "h2c")];
    assert_eq!(client.ask(request_with("GET", PATH, &h2c, "")).status(), 426);
}

#[test]
fn an_instance_that_switches_otherwise_is_not_believed() {
    let upstream = Upstream::manual();
    let gateway = start(Engine::Userspace, &upstream);
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.0 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let mut client = gateway.connect();
        client.send(handshake(PATH));
        let mut instance = upstream.accept();
        instance.head();
        instance.send(answer);
        assert_eq!(client.response().status(), 502, "{answer:?}");
        instance.end();
    }
    // Nor one that was not asked.
    let mut client = gateway.connect();
    client.send(request("GET", "/v1/models/m", ""));
    let mut instance = upstream.accept();
    instance.head();
    instance.send(switch());
    assert_eq!(client.response().status(), 502);
}

#[test]
fn a_silent_tunnel_ends() {
    let upstream = Upstream::manual();
    let setup = Setup::single(Engine::Userspace, &upstream).default_paths();
    let gateway = setup.set("timeouts.stream_idle", "1s").start();
    let (mut client, mut instance) = tunnel(&gateway, &upstream);
    let began = Instant::now();
    // Whoever sends keeps it open.
    for _ in 0..3 {
        client.send("ping");
        instance.expect("ping");
        instance.send("pong");
        client.expect("pong");
    }
    client.end();
    instance.end();
    assert!(began.elapsed() >= Duration::from_secs(1));
    gateway.expect_outcomes("timeout_idle", 1);
    gateway.expect_idle();
}

#[test]
fn a_side_that_does_not_close_in_its_turn_is_cut() {
    let upstream = Upstream::manual();
    let gateway = start(Engine::Userspace, &upstream);
    let (mut client, mut instance) = tunnel(&gateway, &upstream);
    let began = Instant::now();
    client.finish();
    assert_eq!(instance.expect_end(), End::Closed);
    // It is still there, and says nothing more.
    assert_eq!(client.expect_end(), End::Reset);
    assert!(began.elapsed() >= Duration::from_secs(10));
    gateway.expect_outcomes("timeout_idle", 1);
    gateway.expect_idle();
}

#[test]
fn a_gateway_that_drains_lets_a_tunnel_end() {
    let upstream = Upstream::manual();
    let mut gateway = start(Engine::Userspace, &upstream);
    let (mut client, _, server) = open(&gateway, &upstream, PATH);
    gateway.terminate();
    eventually("it drains", || gateway.admin_get("/readyz").status() == 503);
    client.send(Message::text("still there?")).expect("sent");
    assert_eq!(client.read().expect("a message"), Message::text("still there?"));
    let frame = CloseFrame { code: CloseCode::Away, reason: "done".into() };
    client.close(Some(frame)).expect("sent");
    while client.read().is_ok() {}
    drop(client);
    server.join().expect("it ended well");
    assert!(gateway.wait().success());
}

#[test]
fn tunnels_are_cut_at_the_end_of_the_drain_time() {
    let upstream = Upstream::manual();
    let setup = Setup::single(Engine::Userspace, &upstream).default_paths();
    let setup = setup.set("access_log", true).set("log.format", "json");
    let mut gateway = setup.set("timeouts.drain", "1s").start();
    let (mut client, mut instance) = tunnel(&gateway, &upstream);
    client.send("12345");
    instance.expect("12345");
    instance.send("123");
    client.expect("123");
    gateway.terminate();
    client.end();
    instance.end();
    let line = access_line(&gateway);
    assert_eq!(line["outcome"], "shutdown");
    assert_eq!((&line["request_bytes"], &line["response_bytes"]), (&5.into(), &3.into()));
    gateway.wait();
}

#[test]
fn a_path_of_the_configuration_can_be_a_websocket() {
    let upstream = Upstream::manual();
    let path: toml::Value =
        toml::from_str::<toml::Table>("path = [{ path = \"/ws/{room}\", api = \"realtime\" }]")
            .expect("TOML")["path"]
            .clone();
    let gateway = Setup::single(Engine::Userspace, &upstream).set("path", path).start();
    let (mut client, response, server) = open(&gateway, &upstream, "/ws/7");
    assert_eq!(response.status(), 101);
    client.close(None).expect("sent");
    while client.read().is_ok() {}
    server.join().expect("it ended well");
}
