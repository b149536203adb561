//! A slow client slows its instance, and nobody else; a slow instance slows its client.

use std::time::Duration;

use tests::{
    Engine, Peer, Setup, Upstream, chunked, for_each_engine_and_driver,
    message::{CHUNKED_HEAD, chat, request, response},
    payload,
};

const CALM: Duration = Duration::from_millis(300);

/// What may lie between a sender that is never done and a reader that has stopped: buffers of the
/// gateway and of the kernel on both connections, of which receive buffers may grow (docs/kernel.md).
const BETWEEN: usize = 12 << 20;

for_each_engine_and_driver! {
    fn a_client_that_stops_reading_stops_the_instance(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        for sized in [true, false] {
            let mut client = Peer::connect_narrow(gateway.address(), 64 * 1024);
            client.send(chat("flood"));
            let mut instance = upstream.accept();
            socket2::SockRef::from(instance.stream()).set_send_buffer_size(64 * 1024).unwrap();
            instance.request();
            let body = payload::bytes(1, 32 << 20);
            let flood =
                if sized { body } else { chunked::encode(body.chunks(50_000)) };
            if sized {
                instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", flood.len()));
            } else {
                instance.send(CHUNKED_HEAD);
            }
            client.head();
            let taken = instance.stuff(&flood, CALM);
            assert!(taken < BETWEEN, "{taken} bytes were taken for a client that does not read");

            // Another client is served meanwhile.
            let mut other = gateway.connect();
            other.send(chat("quick"));
            let mut second = upstream.accept();
            second.request();
            second.send(response(200, payload::bytes(2, 500_000)));
            payload::assert_same("other", &other.response().body, &payload::bytes(2, 500_000));
            second.close();

            // Once it reads on, everything comes.
            let calm = flood.len() - (2 << 20);
            let got = std::thread::scope(|scope| {
                scope.spawn(|| instance.send(&flood[taken..calm]));
                client.take_exact(calm)
            });
            payload::assert_same("flood", &got, &flood[..calm]);
            // An instance that is ahead all the time may leave no moment for a hand-over.
            for piece in flood[calm..].chunks(100_000) {
                instance.send(piece);
                payload::assert_same("the rest", &client.take_exact(piece.len()), piece);
            }
            instance.close();
        }
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn an_instance_that_stops_reading_stops_the_client(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let body = payload::bytes(3, 32 << 20);
        let sent = request("POST", "/any", &body);
        let mut client = gateway.connect();
        socket2::SockRef::from(client.stream()).set_send_buffer_size(64 * 1024).unwrap();
        client.send(&sent[..1_000]);
        let mut instance = upstream.accept();
        let head = instance.head();
        let taken = 1_000 + client.stuff(&sent[1_000..], CALM);
        // The instance's own receive buffer grows as it likes: it is not the gateway's.
        assert!(taken < 2 * BETWEEN + (8 << 20), "{taken} bytes were taken");
        let sender = std::thread::spawn(move || {
            client.send(&sent[taken..]);
            client
        });
        payload::assert_same("upload", &instance.request_body(&head), &body);
        instance.send(response(200, "got it"));
        assert_eq!(sender.join().unwrap().response().payload(), b"got it");
        if !matches!(engine, Engine::Splice | Engine::SpliceXdp) {
            // That one waits until the instance has acknowledged what the client may send: a client
            // that is ahead all the time leaves no such moment.
            gateway.expect_carried("request");
        }
        gateway.expect_idle();
    }

    fn a_last_answer_waits_for_a_client_that_reads_late(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = Peer::connect_narrow(gateway.address(), 16 * 1024);
        client.send(tests::message::request_with("GET", "/x", &[("Connection", "close")], ""));
        let mut instance = upstream.accept();
        instance.request();
        // More than the client has room for, and less than the kernel keeps for it.
        let body = payload::bytes(5, 100_000);
        instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        assert!(client.head().closes());
        instance.send(&body);
        gateway.expect_outcomes("ok", 1);
        // The gateway is done with it, and closes in the end. The kernel has the rest.
        tests::eventually("the connection is closed", || {
            gateway.metric("atalho_client_connections_open", &[]) == 0.0
        });
        payload::assert_same("body", &client.take_exact(body.len()), &body);
        assert_eq!(client.expect_end(), tests::End::Closed);
    }

    fn a_client_that_reads_in_drips_gets_everything(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = Peer::connect_narrow(gateway.address(), 8 * 1024);
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        let body = payload::bytes(4, 3_000_000);
        let flood = chunked::encode(body.chunks(777));
        // The head alone first, so that the body is handed over before it comes.
        instance.send(CHUNKED_HEAD);
        client.head();
        let sender = std::thread::spawn({
            let flood = flood.clone();
            move || {
                instance.send(&flood);
                instance
            }
        });
        let mut got = Vec::new();
        let mut size = 1;
        while got.len() < flood.len() {
            size = (size * 7 + 13) % 9001 + 1;
            let next = size.min(flood.len() - got.len());
            got.extend(client.take_exact(next));
        }
        payload::assert_same("drips", &got, &flood);
        sender.join().unwrap();
        // The flood may come before the hand-over, and leaves no moment for one then; and the client's
        // window is smaller than what the instance was promised.
        let excuses =
            [(Engine::Sockmap, "unread"), (Engine::Splice, "unread"), (Engine::Splice, "window")];
        gateway.expect_carried_unless("response", &excuses);
        gateway.expect_idle();
    }

    fn a_stopped_client_does_not_stop_its_threads_other_streams(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut stopped = Vec::new();
        for _ in 0..8 {
            let mut client = Peer::connect_narrow(gateway.address(), 16 * 1024);
            client.send(chat("flood"));
            let mut instance = upstream.accept();
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            instance
                .stuff(&chunked::chunk(&[b'x'; 100_000]).repeat(100), Duration::from_millis(50));
            stopped.push((client, instance));
        }
        let mut client = gateway.connect();
        client.send(chat("stream"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..200 {
            let chunk = chunked::chunk(format!("token {number}").as_bytes());
            instance.send(&chunk);
            client.expect(&chunk);
        }
    }
}
