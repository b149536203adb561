//! InvokeEndpointWithResponseStream.

use std::time::Duration;

use router::aws::event_stream::decode::{Message as Event, messages};
use tests::{
    Engine, Gateway, Next, Peer, Setup, Upstream, chunked, for_each_engine_on_loopback,
    message::{CHUNKED_HEAD, Head, response_with},
    payload,
};

use crate::{call, variant};

/// How long a socket must have taken nothing to be full.
const CALM: Duration = Duration::from_millis(500);

fn started(setup: impl FnOnce(Setup) -> Setup, engine: Engine) -> (Gateway, Upstream) {
    let upstream = Upstream::manual();
    let gateway = setup(Setup::single(engine, &upstream)).start();
    (gateway, upstream)
}

fn ask(gateway: &Gateway, upstream: &Upstream, question: &str) -> (Peer, Peer) {
    let mut client = gateway.connect();
    client.send(call("invocations-response-stream", &[], question));
    let mut instance = upstream.accept();
    instance.request();
    (client, instance)
}

#[track_caller]
fn expect_head(client: &mut Peer) -> Head {
    let head = client.head();
    assert_eq!((head.status(), variant(&head)), (200, Some("main")));
    assert_eq!(head.get("content-type"), Some("application/vnd.amazon.eventstream"));
    head
}

/// The next chunk, which is one event.
#[track_caller]
fn event(client: &mut Peer) -> Event {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.take_exact(1));
    }
    let line = String::from_utf8(line).expect("a chunk's size");
    let size = usize::from_str_radix(line.trim_end(), 16).expect("a chunk's size");
    assert!(size > 0, "the end of the stream");
    let chunk = client.take_exact(size);
    client.expect("\r\n");
    let mut events = messages(&chunk).expect("an event");
    assert_eq!(events.len(), 1);
    events.remove(0)
}

#[track_caller]
fn expect_part(client: &mut Peer, payload: &[u8]) {
    let event = event(client);
    assert_eq!(event.header(":message-type"), Some("event"));
    assert_eq!(event.header(":event-type"), Some("PayloadPart"));
    assert_eq!(event.header(":content-type"), Some("application/octet-stream"));
    payload::assert_same("a part", &event.payload, payload);
}

#[track_caller]
fn expect_exception(client: &mut Peer, name: &str, code: Option<&str>) {
    let event = event(client);
    assert_eq!(event.header(":message-type"), Some("exception"));
    assert_eq!(event.header(":exception-type"), Some(name));
    assert_eq!(event.header(":content-type"), Some("application/json"));
    let members: serde_json::Value = serde_json::from_slice(&event.payload).expect("JSON");
    assert_eq!(members["ErrorCode"].as_str(), code);
    assert!(members["Message"].as_str().is_some_and(|message| !message.is_empty()));
}

/// What came back, from the first part to the last.
fn joined(raw: &[u8]) -> Vec<u8> {
    let events = messages(raw).expect("events");
    assert!(events.iter().all(|event| event.header(":event-type") == Some("PayloadPart")));
    events.into_iter().flat_map(|event| event.payload).collect()
}

for_each_engine_on_loopback! {
    fn every_token_is_a_part_before_the_next_is_sent(engine) {
        let (gateway, upstream) = started(|setup| setup, engine);
        let (mut client, mut instance) = ask(&gateway, &upstream, "x");
        for round in 0..2 {
            instance.send(CHUNKED_HEAD);
            let head = expect_head(&mut client);
            assert!(head.chunked() && head.content_length().is_none());
            assert_eq!(head.get("x-amzn-sagemaker-content-type"), Some("text/event-stream"));
            for number in 0..100 {
                let token = format!("data: token {number}\n\n");
                instance.send(chunked::chunk(token.as_bytes()));
                expect_part(&mut client, token.as_bytes());
            }
            // A chunk that comes in pieces is parts that come as it does, its framing none.
            for piece in ["5", "\r\n"] {
                instance.send(piece);
            }
            instance.send("ab");
            expect_part(&mut client, b"ab");
            instance.send("cde");
            expect_part(&mut client, b"cde");
            // Several chunks at once are one.
            instance.send(b"\r\n1\r\nf\r\n2\r\ngh\r\n0\r\nTrailer: t\r\n\r\n");
            expect_part(&mut client, b"fgh");
            client.expect("0\r\n\r\n");
            if round == 0 {
                client.send(call("invocations-response-stream", &[], "again"));
                instance.request();
            }
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_outcomes("ok", 2);
        gateway.expect_idle();
    }

    fn whatever_the_instance_frames_its_answer_by(engine) {
        let body = payload::bytes(3, 5_000_000);
        let sent = body.clone();
        let upstream = Upstream::serve(move |peer, head| {
            let question = peer.request_body(head);
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: x/y\r\nContent-Encoding: z\r\n");
            match &*question {
                b"chunked" => {
                    peer.send("Transfer-Encoding: chunked\r\n\r\n");
                    peer.send(chunked::encode(sent.chunks(77_777)));
                }
                b"sized" => {
                    peer.send(format!("Content-Length: {}\r\n\r\n", sent.len()));
                    peer.send(&sent);
                }
                b"empty" => peer.send("Content-Length: 0\r\n\r\n"),
                _ => {
                    peer.send("Connection: close\r\n\r\n");
                    peer.send(&sent);
                    return Next::Close;
                }
            }
            Next::Keep
        });
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        for question in ["chunked", "sized", "until close", "empty", "sized"] {
            let answer = client.ask(call("invocations-response-stream", &[], question));
            assert_eq!(answer.status(), 200, "{question}");
            assert_eq!(answer.get("x-amzn-sagemaker-content-type"), Some("x/y"));
            assert_eq!(answer.get("content-encoding"), None);
            let expected = if question == "empty" { &[][..] } else { &body };
            payload::assert_same(question, &joined(&answer.payload()), expected);
        }
        // Clients of HTTP/1.0 know no chunks.
        let mut old = gateway.connect();
        old.send(
            "POST /endpoints/default/invocations-response-stream HTTP/1.0\r\n\
             Content-Length: 7\r\n\r\nchunked",
        );
        let head = expect_head(&mut old);
        assert!(head.closes() && !head.chunked());
        let (raw, _) = old.end();
        payload::assert_same("HTTP/1.0", &joined(&raw), &body);
        gateway.expect_idle();
    }

    fn a_stream_that_breaks_off_says_so_and_ends(engine) {
        let (gateway, upstream) = started(|setup| setup, engine);
        let (mut client, mut instance) = ask(&gateway, &upstream, "x");
        instance.send(CHUNKED_HEAD);
        instance.send(chunked::chunk(b"half a"));
        expect_head(&mut client);
        expect_part(&mut client, b"half a");
        instance.reset();
        expect_exception(&mut client, "ModelStreamError", Some("StreamBroken"));
        client.expect("0\r\n\r\n");
        gateway.expect_outcomes("upstream_aborted", 1);
        // The client's connection is in order.
        client.send(call("invocations-response-stream", &[], "x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        instance.send("2\r\nok\r\nnonsense");
        expect_head(&mut client);
        // What is no chunk is found with what came before it, or behind that.
        let first = event(&mut client);
        if first.header(":message-type") == Some("event") {
            assert_eq!(first.payload, b"ok");
            expect_exception(&mut client, "InternalStreamFailure", None);
        } else {
            assert_eq!(first.header(":exception-type"), Some("InternalStreamFailure"));
        }
        client.expect("0\r\n\r\n");
        gateway.expect_outcomes("bad_response", 1);
        gateway.expect_idle();
    }

    fn a_stream_that_stands_still_says_so_and_ends(engine) {
        let slow = |setup: Setup| setup.set("timeouts.stream_idle", "300ms");
        let (gateway, upstream) = started(slow, engine);
        let (mut client, mut instance) = ask(&gateway, &upstream, "x");
        instance.send(CHUNKED_HEAD);
        instance.send(chunked::chunk(b"and then"));
        expect_head(&mut client);
        expect_part(&mut client, b"and then");
        expect_exception(&mut client, "ModelStreamError", Some("ModelInvocationTimeExceeded"));
        client.expect("0\r\n\r\n");
        gateway.expect_outcomes("timeout_idle", 1);
        instance.expect_end();
    }

    fn a_client_that_leaves_ends_the_work(engine) {
        let (gateway, upstream) = started(|setup| setup, engine);
        let (mut client, mut instance) = ask(&gateway, &upstream, "x");
        instance.send(CHUNKED_HEAD);
        instance.send(chunked::chunk(b"and then"));
        expect_head(&mut client);
        expect_part(&mut client, b"and then");
        client.close();
        instance.expect_end();
        gateway.expect_outcomes("client_gone", 1);
        gateway.expect_idle();
    }
}

#[test]
fn the_instance_is_asked_for_what_the_client_accepts() {
    let upstream = Upstream::answering(|_| response_with(200, &[("Content-Type", "a/b")], "ok"));
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let own = [("Accept", "application/vnd.amazon.eventstream"), ("Accept-Encoding", "gzip")];
    for (more, accept) in [(None, None), (Some(("X-Amzn-SageMaker-Accept", "a/b")), Some("a/b"))] {
        let fields: Vec<_> = own.into_iter().chain(more).collect();
        let answer = gateway.ask(call("invocations-response-stream", &fields, "x"));
        assert_eq!(joined(&answer.payload()), b"ok");
        let got = upstream.requests().pop().expect("a request");
        assert_eq!((got.get("accept"), got.get("accept-encoding")), (accept, None));
        assert_eq!(got.target(), "/invocations");
    }
}

#[test]
fn a_reader_that_is_slow_slows_its_instance() {
    let (gateway, upstream) = started(|setup| setup, Engine::Userspace);
    let (mut client, mut instance) = ask(&gateway, &upstream, "x");
    instance.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    let body = payload::bytes(9, 64 << 20);
    // As much as the sockets take, and one read of the gateway's.
    let taken = instance.stuff(&body, CALM);
    assert!(taken < body.len() / 2, "{taken} bytes were taken for a client that does not read");
    let rest = body[taken..].to_vec();
    let sender = std::thread::spawn(move || {
        instance.send(rest);
        instance.finish();
        instance
    });
    let answer = client.response();
    payload::assert_same("the stream", &joined(&answer.payload()), &body);
    drop(sender.join());
    gateway.expect_idle();
}
