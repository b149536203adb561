//! Tokens reach the client as they come: no frame waits for the next one, for a full buffer, or for
//! an acknowledgement.

use tests::{
    Engine, Gateway, Peer, Setup, Upstream, chunked, for_each_engine_and_network,
    message::{CHUNKED_HEAD, chat, response},
    payload,
};

fn started(engine: Engine) -> (Gateway, Upstream, Peer, Peer) {
    let upstream = Upstream::manual();
    let gateway = Setup::single(engine, &upstream).start();
    let mut client = gateway.connect();
    client.send(chat("stream, please"));
    let mut instance = upstream.accept();
    instance.request();
    (gateway, upstream, client, instance)
}

fn frame(number: usize) -> Vec<u8> {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"token {number}\"}}}}]}}\n\n").into()
}

for_each_engine_and_network! {
    fn every_frame_arrives_before_the_next_is_sent(engine) {
        let (gateway, upstream, mut client, mut instance) = started(engine);
        for round in 0..3 {
            instance.send(CHUNKED_HEAD);
            assert!(client.head().chunked());
            for number in 0..300 {
                let chunk = chunked::chunk(&frame(number));
                instance.send(&chunk);
                client.expect(&chunk);
            }
            instance.send(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
            client.expect(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
            client.send(chat(&format!("again {round}")));
            instance.request();
        }
        instance.send(response(200, "end"));
        assert_eq!(client.response().payload(), b"end");
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn frames_split_anywhere_arrive_piece_by_piece(engine) {
        let (gateway, _upstream, mut client, mut instance) = started(engine);
        instance.send(CHUNKED_HEAD);
        client.head();
        // A chunk's size line, payload and line end each on their own, as some servers write them.
        for number in 0..50 {
            let frame = frame(number);
            for piece in [format!("{:x}", frame.len()).as_bytes(), b"\r\n", &frame, b"\r", b"\n"] {
                instance.send(piece);
                client.expect(piece);
            }
        }
        for piece in [&b"0"[..], b"\r\n", b"X-Usage: 1", b"\r\n", b"\r", b"\n"] {
            instance.send(piece);
            client.expect(piece);
        }
        client.send(chat("next"));
        instance.request();
        instance.send(response(200, "end"));
        assert_eq!(client.response().payload(), b"end");
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn frames_of_a_sized_or_closing_response_arrive_too(engine) {
        let (gateway, upstream, mut client, mut instance) = started(engine);
        instance.send("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n");
        client.head();
        for number in 0..30 {
            let piece = payload::bytes(number, 10);
            instance.send(&piece);
            client.expect(&piece);
        }
        client.send(chat("next"));
        instance.request();
        instance.send("HTTP/1.1 200 OK\r\n\r\n");
        client.head();
        for number in 0..30 {
            let frame = frame(number);
            instance.send(&frame);
            client.expect(&frame);
        }
        instance.finish();
        client.expect_end();
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn the_head_arrives_before_the_first_frame_is_made(engine) {
        let (gateway, _upstream, mut client, mut instance) = started(engine);
        instance.send(CHUNKED_HEAD);
        assert_eq!(client.head().get("content-type"), Some("text/event-stream"));
        let first = chunked::chunk(&frame(0));
        instance.send(&first);
        client.expect(&first);
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        gateway.expect_idle();
    }

    fn many_streams_do_not_mix(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).set("threads", 2).start();
        let mut streams = Vec::new();
        for number in 0..64 {
            let mut client = gateway.connect();
            client.send(chat(&format!("stream {number}")));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            streams.push((client, instance));
        }
        assert_eq!(gateway.in_flight(), 64);
        for round in 0..30 {
            for (number, (_, instance)) in streams.iter_mut().enumerate() {
                let piece = payload::bytes(number as u64 * 1000 + round, 100 + number);
                instance.send(chunked::chunk(&piece));
            }
            for (number, (client, _)) in streams.iter_mut().enumerate() {
                let piece = payload::bytes(number as u64 * 1000 + round, 100 + number);
                client.expect(chunked::chunk(&piece));
            }
        }
        for (client, instance) in &mut streams {
            instance.send("0\r\n\r\n");
            client.expect("0\r\n\r\n");
        }
        gateway.expect_carried("response");
        gateway.expect_idle();
    }
}
