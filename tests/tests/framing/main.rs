//! Messages of every framing go through unchanged, and the connections are used again where they
//! may be.

mod heads;

use tests::{
    End, Engine, Gateway, Message, Peer, Setup, Upstream, chunked, for_each_engine_and_network,
    for_each_engine_on_loopback,
    message::{
        CHUNKED_HEAD, chat, chunked_request, request, request_with, response, response_with,
    },
    payload,
};

fn start(engine: Engine) -> (Upstream, Gateway) {
    let upstream = Upstream::manual();
    let gateway = Setup::single(engine, &upstream).start();
    (upstream, gateway)
}

/// Sends a request, lets the instance answer with `reply`, and returns what either side got.
#[track_caller]
fn exchange(
    client: &mut Peer,
    instance: &mut Peer,
    sent: impl AsRef<[u8]>,
    reply: impl AsRef<[u8]>,
) -> (Message, Message) {
    client.send(sent);
    let got = instance.request();
    instance.send(reply);
    (got, client.response())
}

/// The first exchange of a connection, which makes the gateway open one to the instance.
#[track_caller]
fn first(gateway: &Gateway, upstream: &Upstream) -> (Peer, Peer) {
    let mut client = gateway.connect();
    client.send(request("POST", "/first", "x"));
    let mut instance = upstream.accept();
    assert_eq!(instance.request().payload(), b"x");
    instance.send(response(200, "y"));
    assert_eq!(client.response().payload(), b"y");
    (client, instance)
}

for_each_engine_and_network! {
    fn sized_bodies_keep_both_connections(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        for (round, size) in [0, 1, 1, 17, 4096, 65_537, 1_000_000, 3].into_iter().enumerate() {
            let up = payload::bytes(round as u64, size);
            let down = payload::bytes(round as u64 + 100, size * 2);
            // At the same time: nobody says how much is under way that nobody takes.
            let got = std::thread::scope(|scope| {
                scope.spawn(|| client.send(request("POST", "/echo", &up)));
                instance.request()
            });
            payload::assert_same("request body", &got.body, &up);
            // The head alone first, so that the body is still to come when it is handed over.
            let reply = response(200, &down);
            let head = reply.len() - down.len();
            instance.send(&reply[..head]);
            let answer = client.head();
            assert_eq!(answer.status(), 200);
            std::thread::scope(|scope| {
                scope.spawn(|| instance.send(&reply[head..]));
                payload::assert_same("response body", &client.take_exact(down.len()), &down);
            });
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_idle();
        gateway.expect_carried("response");
        gateway.expect_outcomes("ok", 9);
    }

    fn request_bodies_are_handed_over_beyond_the_prefix(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let body = payload::bytes(7, 3_000_000);
        let sent = request("POST", "/invocations", &body);
        // What the decision needs, and then the rest once the instance has seen what came before:
        // a client that is ahead all the time may leave no moment for a hand-over.
        let begin = sent.len() - body.len() + 100_000;
        client.send(&sent[..begin]);
        let head = instance.head();
        let mut got = instance.take_exact(100_000);
        for piece in sent[begin..].chunks(500_000) {
            client.send(piece);
            got.extend(instance.take_exact(piece.len()));
        }
        payload::assert_same("body", &got, &body);
        assert_eq!(head.content_length(), Some(body.len()));
        instance.send(response(200, "done"));
        assert_eq!(client.response().payload(), b"done");
        gateway.expect_carried("request");
        gateway.expect_idle();
    }

    fn chunked_bodies_pass_byte_for_byte(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let bodies: Vec<Vec<u8>> = vec![
            b"0\r\n\r\n".to_vec(),
            b"5\r\nhello\r\n0\r\n\r\n".to_vec(),
            b"00005;a=b;c=\"d e\"\r\nhello\r\n1;x\r\n!\r\n000\r\n\r\n".to_vec(),
            b"A\r\n0123456789\r\n0;last\r\nChecksum: abc\r\nX-Two:  2\r\n\r\n".to_vec(),
            // Payload that looks like framing.
            b"b\r\n\r\n0\r\n\r\nGET \r\n0\r\n\r\n".to_vec(),
            chunked::encode((1..200).map(|n| &b"abcdefgh"[..1 + n % 8])),
            chunked::encode(payload::bytes(3, 700_000).chunks(8191)),
            chunked::encode([&payload::bytes(4, 2_000_000)[..]]),
        ];
        // A source that is ahead all the time is never handed over: then all of them go once more.
        for round in 0.. {
            for body in &bodies {
                // At the same time: nobody says how much is under way that nobody takes.
                let got = std::thread::scope(|scope| {
                    scope.spawn(|| client.send(chunked_request("/echo", body)));
                    instance.request()
                });
                payload::assert_same("request body", &got.body, body);
                assert!(got.chunked());
                assert_eq!(got.get("content-length"), None);
                instance.send(CHUNKED_HEAD);
                let head = client.head();
                assert!(head.chunked());
                std::thread::scope(|scope| {
                    scope.spawn(|| instance.send(body));
                    payload::assert_same("response body", &client.take_exact(body.len()), body);
                });
            }
            if gateway.takes_part(&["response"]) {
                break;
            }
            assert!(round < 20, "never carried");
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn chunked_bodies_survive_any_cut(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let body = b"3;e=1\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nT: v\r\n\r\n";
        for cut in 1..body.len() {
            client.send(chunked_request("/echo", &body[..cut]));
            let head = instance.head();
            instance.take_exact(0);
            client.send(&body[cut..]);
            payload::assert_same("request", &instance.request_body(&head), body);
            instance.send(CHUNKED_HEAD);
            assert!(client.head().chunked());
            instance.send(&body[..cut]);
            client.expect(&body[..cut]);
            instance.send(&body[cut..]);
            client.expect(&body[cut..]);
        }
        for body in [&body[..], b"1\r\nx\r\n0\r\n\r\n"] {
            client.send(chunked_request("/echo", ""));
            let head = instance.head();
            client.send_in_pieces(body, 1);
            payload::assert_same("request", &instance.request_body(&head), body);
            instance.send(CHUNKED_HEAD);
            assert!(client.head().chunked());
            instance.send_in_pieces(body, 1);
            client.expect(body);
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn responses_without_a_body_end_at_their_head(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let cases: [(&str, &[u8]); 7] = [
            ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
            ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ("HEAD", b"HTTP/1.1 404 No\r\n\r\n"),
            ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
            ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
            ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
            ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ];
        for (method, reply) in cases {
            client.send(request(method, "/x", ""));
            assert_eq!(instance.request().method(), method);
            instance.send(reply);
            let got = client.response_to(method);
            assert!(got.body.is_empty() && !got.closes(), "{method} {reply:?}");
            assert!(client.pending().is_empty(), "{method} {reply:?}");
        }
        let (_, last) = exchange(&mut client, &mut instance, chat("hi"), response(200, "still"));
        assert_eq!(last.payload(), b"still");
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_idle();
    }

    fn interim_responses_are_forwarded(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        client.send(chat("hi"));
        instance.request();
        instance.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        let hints = client.head();
        assert_eq!((hints.status(), hints.get("link")), (103, Some("</a>")));
        instance.send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
        assert_eq!(client.head().status(), 102);
        assert_eq!(client.head().status(), 102);
        instance.send(response(200, "final"));
        assert_eq!(client.response().payload(), b"final");
        let (_, next) = exchange(&mut client, &mut instance, chat("more"), response(200, "n"));
        assert_eq!(next.payload(), b"n");
        gateway.expect_idle();
    }

    fn expect_continue_is_answered_by_the_gateway(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let fields = [("Expect", "100-continue")];
        for size in [5, 300_000] {
            let body = payload::text(1, size);
            let sent = request_with("POST", "/v1/chat/completions", &fields, &body);
            client.send(&sent[..sent.len() - size]);
            let go = client.head();
            assert_eq!((go.status(), go.fields.len()), (100, 0));
            client.send(&sent[sent.len() - size..]);
            let got = instance.request();
            payload::assert_same("body", &got.body, body.as_bytes());
            assert_eq!(got.get("expect"), None);
            instance.send(response(200, "ok"));
            assert_eq!(client.response().payload(), b"ok");
        }
        // A client that does not wait, and one that has no body to send.
        client.send(request_with("POST", "/x", &fields, "now"));
        assert_eq!(instance.request().payload(), b"now");
        instance.send(response(200, "ok"));
        let mut answer = client.head();
        while answer.status() == 100 {
            answer = client.head();
        }
        assert_eq!(answer.status(), 200);
        client.expect("ok");
        gateway.expect_idle();
    }

    fn pipelined_requests_are_answered_in_order(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let big = payload::bytes(5, 200_000);
        let mut all = Vec::new();
        all.extend(request("GET", "/1", ""));
        all.extend(request("POST", "/2", &big));
        all.extend(chunked_request("/3", b"3\r\nabc\r\n0\r\nA: b\r\n\r\n"));
        all.extend(request("HEAD", "/4", ""));
        all.extend(request("POST", "/5", "five"));
        client.send(&all);
        for (number, body) in
            [(1, &b""[..]), (2, &big), (3, b"3\r\nabc\r\n0\r\nA: b\r\n\r\n"), (4, b""), (5, b"five")]
        {
            let got = instance.request();
            assert_eq!(got.target(), format!("/{number}"));
            payload::assert_same(got.target(), &got.body, body);
            assert!(instance.pending().is_empty(), "one at a time");
            let text = payload::bytes(number, 50_000);
            let reply = response(200, &text);
            if number == 4 {
                instance.send(&reply[..reply.len() - text.len()]);
                assert_eq!(client.response_to("HEAD").status(), 200);
            } else {
                instance.send_in_pieces(&reply, 9_999);
                payload::assert_same("response", &client.response().body, &text);
            }
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_idle();
    }

    fn a_pipelined_request_behind_a_handed_over_body_is_kept(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let body = payload::bytes(6, 400_000);
        for round in 0..8 {
            // The next request's beginning shares a packet with the body's end.
            let mut sent = request("POST", "/invocations", &body);
            let cut = sent.len() + 1 + round * 4;
            sent.extend(request("GET", "/next", ""));
            let begin = sent.len() - request("GET", "/next", "").len() - body.len() + 100_000;
            client.send(&sent[..begin]);
            instance.head();
            let mut got = instance.take_exact(100_000);
            client.send(&sent[begin..cut]);
            got.extend(instance.take_exact(body.len() - got.len()));
            payload::assert_same("body", &got, &body);
            client.send(&sent[cut..]);
            instance.send(response(200, "a"));
            assert_eq!(client.response().payload(), b"a");
            assert_eq!(instance.request().target(), "/next");
            instance.send(response(200, "b"));
            assert_eq!(client.response().payload(), b"b");
        }
        // A client that is ahead all the time may leave no moment for it.
        gateway.expect_carried_unless("request", &[(Engine::Splice, "unread")]);
        gateway.expect_idle();
    }

    fn a_response_until_close_ends_with_the_connection(engine) {
        let (upstream, gateway) = start(engine);
        for (head, body) in [("HTTP/1.1", 200_000), ("HTTP/1.0", 3), ("HTTP/1.1", 0)] {
            let mut client = gateway.connect();
            client.send(request("GET", "/x", ""));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(format!("{head} 200 OK\r\nServer: old\r\n\r\n"));
            let answer = client.head();
            assert!(answer.closes());
            assert_eq!(answer.first, "HTTP/1.1 200 OK");
            let body = payload::bytes(8, body);
            instance.send(&body);
            payload::assert_same("body", &client.take_exact(body.len()), &body);
            instance.finish();
            assert_eq!(client.expect_end(), End::Closed);
            instance.expect_end();
        }
        gateway.expect_outcomes("ok", 3);
        gateway.expect_idle();
    }

    fn http_1_0_clients_are_served(engine) {
        let (upstream, gateway) = start(engine);
        // With a length: closes behind the response, without being told to keep the connection.
        let mut client = gateway.connect();
        client.send("POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi");
        let mut instance = upstream.accept();
        let got = instance.request();
        assert_eq!((&got.first[..], &got.body[..]), ("POST /a HTTP/1.1", &b"hi"[..]));
        instance.send(response(200, "body"));
        let (all, end) = client.end();
        let all = String::from_utf8(all).unwrap();
        assert!(all.ends_with("\r\n\r\nbody"), "{all}");
        assert_eq!(end, End::Closed);

        // Chunked: without its framing, until the end of the connection; the instance's
        // connection is used again.
        let mut client = gateway.connect();
        client.send("GET /b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(instance.request().target(), "/b");
        instance.send(CHUNKED_HEAD);
        let head = client.head();
        assert!(!head.chunked() && head.get("trailer").is_none());
        assert!(!head.all("connection").iter().any(|value| value.contains("keep-alive")));
        instance.send("5;ext=1\r\nhello\r\n");
        client.expect("hello");
        let large = payload::bytes(1, 150_000);
        instance.send(chunked::chunk(&large));
        payload::assert_same("chunk", &client.take_exact(large.len()), &large);
        instance.send("0\r\nTrailer: x\r\n\r\n");
        assert_eq!(client.expect_end(), End::Closed);

        // With a length and keep-alive: stays.
        let mut client = gateway.connect();
        for target in ["/c", "/d"] {
            client.send(format!("GET {target} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
            assert_eq!(instance.request().target(), target);
            instance.send(response(200, "kept"));
            let answer = client.response();
            assert_eq!(answer.payload(), b"kept");
            assert_eq!(answer.get("connection").map(str::to_ascii_lowercase).as_deref(),
                Some("keep-alive"));
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_idle();
    }

    fn a_broken_dechunked_response_is_no_clean_end(engine) {
        let (upstream, gateway) = start(engine);
        let mut client = gateway.connect();
        client.send("GET /b HTTP/1.0\r\n\r\n");
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        instance.send("5\r\nhello\r\n");
        client.expect("hello");
        instance.close();
        assert_eq!(client.expect_end(), End::Reset);
        gateway.expect_outcomes("upstream_aborted", 1);
    }

    fn connection_close_is_honoured_on_both_sides(engine) {
        let (upstream, gateway) = start(engine);
        let close = [("Connection", "close")];
        let mut client = gateway.connect();
        client.send(request_with("POST", "/x", &close, "x"));
        let mut instance = upstream.accept();
        let got = instance.request();
        assert!(!got.closes(), "the client's connection is not the instance's");
        instance.send(response(200, "bye"));
        let answer = client.response();
        assert!(answer.closes());
        assert_eq!(client.expect_end(), End::Closed);

        // The instance closes: the client's connection stays, the next request gets a fresh one.
        let mut client = gateway.connect();
        client.send(request("POST", "/x", "x"));
        instance.request();
        instance.send(response_with(200, &close, payload::bytes(1, 100_000)));
        let answer = client.response();
        assert!(!answer.closes());
        instance.expect_end();
        client.send(request("POST", "/y", "y"));
        let mut fresh = upstream.accept();
        assert_eq!(fresh.request().target(), "/y");
        fresh.send(response(200, "again"));
        assert_eq!(client.response().payload(), b"again");
        gateway.expect_idle();
    }

    fn surplus_bytes_spoil_the_instances_connection(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        client.send(request("POST", "/x", "x"));
        instance.request();
        let mut reply = response(200, payload::bytes(1, 50_000));
        reply.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        instance.send(&reply);
        let answer = client.response();
        payload::assert_same("body", &answer.body, &payload::bytes(1, 50_000));
        client.send(request("POST", "/y", "y"));
        let mut fresh = upstream.accept();
        assert_eq!(fresh.request().target(), "/y");
        fresh.send(response(200, "good"));
        assert_eq!(client.response().payload(), b"good");
        instance.end();
        gateway.expect_idle();
    }

    fn an_answer_before_the_end_of_the_request_ends_both(engine) {
        let (upstream, gateway) = start(engine);
        let (mut client, mut instance) = first(&gateway, &upstream);
        let sent = request("POST", "/invocations", payload::bytes(1, 5_000_000));
        client.send(&sent[..200_000]);
        instance.head();
        instance.send(response_with(413, &[("Connection", "close")], "too large"));
        let answer = client.response();
        assert_eq!((answer.status(), &answer.payload()[..]), (413, &b"too large"[..]));
        assert!(answer.closes());
        client.end();
        instance.end();
        gateway.expect_idle();
    }
}

for_each_engine_on_loopback! {
    fn ipv6_works_on_both_sides(engine) {
        let upstream = Upstream::manual_at("[::1]:0".parse().unwrap());
        let gateway = Setup::single(engine, &upstream)
            .set("listen", vec!["[::1]:0", "127.0.0.1:0"])
            .start();
        assert_eq!(gateway.addresses().len(), 2);
        for (address, seen) in gateway.addresses().iter().zip(["::1", "127.0.0.1"]) {
            let mut client = Peer::connect(*address);
            client.send(chat("hi"));
            let mut instance = upstream.accept();
            let got = instance.request();
            assert_eq!(got.get("host"), Some(&*upstream.address().to_string()));
            assert_eq!(got.get("x-forwarded-for"), Some(seen));
            let body = payload::bytes(2, 100_000);
            instance.send(&response(200, &body)[..50]);
            instance.send(&response(200, &body)[50..]);
            payload::assert_same("body", &client.response().body, &body);
            // Its listener may belong to another thread than the next one's: no pooled connection
            // shall be left for it.
            instance.close();
        }
        gateway.expect_idle();
    }
}
