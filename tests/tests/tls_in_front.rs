//! The configurations of docs/tls-in-front.md, in the real proxies.

use std::io::Write;

use tests::{
    Engine, Gateway, Peer, Setup, Upstream, chunked, for_each_engine_on_loopback,
    front::{self, Front, HOST, Kind},
    message::{CHUNKED_HEAD, chat_body, response},
    payload,
};

/// The client's address; the proxy's is 127.0.0.1.
const CLIENT: &str = "127.0.0.9";

fn page() -> String {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tls-in-front.md");
    std::fs::read_to_string(page).expect("the page")
}

struct Row {
    front: Front,
    gateway: Gateway,
    upstream: Upstream,
    kind: Kind,
}

impl Row {
    fn start(engine: Engine, kind: Kind) -> Option<Self> {
        let page = page();
        let ours = kind.gateways(&page);
        assert_eq!(ours["listen"].as_array().map(Vec::len), Some(1));
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream)
            .default_paths()
            .set("proxies", ours["proxies"].clone())
            .set("timeouts.pool_idle", "60s")
            .start();
        let front = Front::start(kind, &page, &gateway)?;
        Some(Self { front, gateway, upstream, kind })
    }

    /// Asks for a stream, and takes the request; the instance's connection is the one that there is.
    fn ask(&self, instance: &mut Option<Peer>, version: &str) -> front::Curl {
        let body = String::from_utf8(chat_body("hello")).expect("text");
        let claim = "X-Forwarded-For: 203.0.113.66";
        let curl = self.front.curl(
            &[version, "--interface", CLIENT, "--header", claim, "--json", &body],
            "/v1/chat/completions",
        );
        let instance = instance.get_or_insert_with(|| self.upstream.accept());
        let request = instance.request();
        assert_eq!(request.payload(), body.as_bytes());
        let (whom, scheme) = match self.kind {
            // The proxy's own address comes last.
            Kind::Nginx | Kind::Haproxy => (format!("{CLIENT}, 127.0.0.1"), "https"),
            Kind::HaproxyTcp => (CLIENT.to_owned(), "http"),
        };
        assert_eq!(request.get("x-forwarded-for"), Some(&*whom));
        assert_eq!(request.get("x-forwarded-proto"), Some(scheme));
        assert!(request.get("x-forwarded-host").is_some_and(|host| host.starts_with(HOST)));
        curl
    }
}

fn streams_pass_event_by_event(engine: Engine, kind: Kind) {
    let Some(row) = Row::start(engine, kind) else { return };
    let mut connection = None;
    for version in ["--http1.1", "--http2"] {
        let mut curl = row.ask(&mut connection, version);
        let instance = connection.as_mut().expect("it was taken");
        instance.send(CHUNKED_HEAD);
        for number in 0..20 {
            let event = format!("data: {{\"token\":{number}}}\n\n");
            instance.send(chunked::chunk(event.as_bytes()));
            // Before the next one is sent.
            curl.expect(event.as_bytes());
        }
        instance.send("0\r\n\r\n");
        assert!(curl.rest().is_empty());
    }
    row.gateway.expect_idle();
}

fn clients_that_leave_cancel_the_work(engine: Engine, kind: Kind) {
    let Some(row) = Row::start(engine, kind) else { return };
    for version in ["--http1.1", "--http2"] {
        for begun in [false, true] {
            let mut connection = None;
            let mut curl = row.ask(&mut connection, version);
            let instance = connection.as_mut().expect("it was taken");
            if begun {
                instance.send(CHUNKED_HEAD);
                instance.send(chunked::chunk(b"data: 1\n\n"));
                curl.expect(b"data: 1\n\n");
            }
            drop(curl);
            instance.expect_end();
        }
    }
    row.gateway.expect_outcomes("client_gone", 4);
    row.gateway.expect_idle();
}

fn websockets_open(engine: Engine, kind: Kind) {
    let Some(row) = Row::start(engine, kind) else { return };
    // The key and its answer are RFC 6455's example.
    let mut arguments = vec!["--http1.1"];
    for field in [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ] {
        arguments.extend(["--header", field]);
    }
    let mut curl = row.front.curl(&arguments, "/v1/realtime");
    let mut instance = row.upstream.accept();
    assert_eq!(instance.head().get("upgrade"), Some("websocket"));
    instance.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
    for frame in [&b"\x81\x05hello"[..], b"\x82\x03\x00\xff\x00"] {
        instance.send(frame);
        curl.expect(frame);
    }
    drop(curl);
    instance.end();
    drop(instance);
    row.gateway.expect_idle();
}

fn uploads_pass_while_they_come(engine: Engine, kind: Kind) {
    let Some(row) = Row::start(engine, kind) else { return };
    let body = payload::bytes(3, 3 << 20);
    let mut curl = row.front.curl(
        &["--http1.1", "--request", "POST", "--header", "Expect:", "--upload-file", "-"],
        "/invocations",
    );
    let mut input = curl.input();
    let (first, second) = body.split_at(1 << 20);
    std::thread::scope(|scope| {
        // Once the instance has much of the first part.
        let (arrived, wait) = std::sync::mpsc::channel();
        scope.spawn(move || {
            input.write_all(first).expect("curl reads");
            wait.recv().expect("word from the instance");
            input.write_all(second).expect("curl reads");
        });
        let mut instance = row.upstream.accept();
        let head = instance.head();
        assert!(head.chunked());
        while instance.pending().len() < 500_000 {
            instance.fill().expect("more of the body");
        }
        arrived.send(()).expect("curl's writer");
        let raw = instance.request_body(&head);
        payload::assert_same("upload", &chunked::decode(&raw).0, &body);
        instance.send(response(200, "got it"));
    });
    assert_eq!(curl.rest(), b"got it");
    row.gateway.expect_idle();
}

for_each_engine_on_loopback! {
    fn streams_pass_nginx_event_by_event(engine) {
        streams_pass_event_by_event(engine, Kind::Nginx);
    }

    fn streams_pass_haproxy_event_by_event(engine) {
        streams_pass_event_by_event(engine, Kind::Haproxy);
    }

    fn streams_pass_haproxy_without_a_look_at_them(engine) {
        streams_pass_event_by_event(engine, Kind::HaproxyTcp);
    }

    fn clients_that_leave_nginx_cancel_the_work(engine) {
        clients_that_leave_cancel_the_work(engine, Kind::Nginx);
    }

    fn clients_that_leave_haproxy_cancel_the_work(engine) {
        clients_that_leave_cancel_the_work(engine, Kind::Haproxy);
    }

    fn clients_that_leave_a_haproxy_that_does_not_look_cancel_the_work(engine) {
        clients_that_leave_cancel_the_work(engine, Kind::HaproxyTcp);
    }

    fn websockets_open_through_nginx(engine) {
        websockets_open(engine, Kind::Nginx);
    }

    fn websockets_open_through_haproxy(engine) {
        websockets_open(engine, Kind::Haproxy);
    }

    fn uploads_pass_nginx_while_they_come(engine) {
        uploads_pass_while_they_come(engine, Kind::Nginx);
    }

    fn uploads_pass_haproxy_while_they_come(engine) {
        uploads_pass_while_they_come(engine, Kind::Haproxy);
    }
}
