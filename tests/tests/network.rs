//! Over links between network namespaces rather than over loopback: packets of the size of a link,
//! merged and split on their way as real ones are, other addresses, and a link that goes down.

use std::time::{Duration, Instant};

use tests::{
    End, Gateway, Network, Peer, Setup, Upstream, chunked, for_each_engine_on_loopback,
    message::{CHUNKED_HEAD, chat, chunked_request, request, request_with, response},
    payload,
};

/// Less than a segment.
const CARRIED: usize = 500;

trait Hosts {
    fn upstream(&self, address: &str) -> Upstream;
    fn connect(&self, gateway: &Gateway, index: usize) -> Peer;
}

impl Hosts for Network {
    fn upstream(&self, address: &str) -> Upstream {
        self.instance.run(|| Upstream::manual_at(address.parse().unwrap()))
    }

    fn connect(&self, gateway: &Gateway, index: usize) -> Peer {
        self.client.run(|| Peer::connect(gateway.addresses()[index]))
    }
}

for_each_engine_on_loopback! {
    fn bodies_cross_real_links_unchanged(engine) {
        let Some(network) = Network::new(false) else { return };
        for (address, from) in [("10.98.2.2:0", "10.98.1.1"), ("[fd98:2::2]:0", "fd98:1::1")] {
            let upstream = network.upstream(address);
            let gateway = Setup::single(engine, &upstream)
                .within(&network.gateway)
                .set("listen", vec!["10.98.1.2:0", "[fd98:1::2]:0"])
                .start();
            let mut client = network.connect(&gateway, usize::from(from.contains(':')));
            client.send(chat("warm"));
            let mut instance = upstream.accept();
            assert_eq!(instance.request().get("x-forwarded-for"), Some(from));
            instance.send(response(200, "w"));
            client.response();
            for (round, size) in [1_000, 100_000, 5_000_000].into_iter().enumerate() {
                // A sized request, answered in chunks; then the other way round.
                let (up, down) = (
                    payload::bytes(round as u64, size),
                    chunked::encode(payload::bytes(9, size).chunks(7_000)),
                );
                relay(&mut client, &mut instance, &request("POST", "/a", &up), &up, CHUNKED_HEAD, &down);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
                relay(&mut client, &mut instance, &chunked_request("/b", &down), &down, head.as_bytes(), &up);
            }
            // Token by token.
            client.send(chat("stream"));
            instance.request();
            instance.send(CHUNKED_HEAD);
            client.head();
            for number in 0..200 {
                let chunk = chunked::chunk(format!("token {number}").as_bytes());
                instance.send(&chunk);
                client.expect(&chunk);
            }
            instance.send("0\r\n\r\n");
            client.expect("0\r\n\r\n");
            assert_eq!(upstream.accepted(), 1);
            gateway.expect_carried("response");
            gateway.expect_carried("request");
            gateway.expect_idle();
        }
    }

    fn an_address_is_used_again_before_the_gateway_has_looked(engine) {
        let Some(network) = Network::new(false) else { return };
        let upstream = network.upstream("10.98.2.2:0");
        let gateway = Setup::single(engine, &upstream)
            .within(&network.gateway)
            .set("listen", vec!["10.98.1.2:0"])
            .start();
        let from = "10.98.1.1:40001".parse().unwrap();
        let connect = || network.client.run(|| Peer::connect_from(from, gateway.address()));
        let mut client = connect();
        client.send(chat("first"));
        let mut instance = upstream.accept();
        for round in 0..3 {
            instance.request();
            instance.send(response(200, "w"));
            client.response();
            // Bodies of this connection are carried, which moves its numbers.
            let before = gateway.carried(engine, "request");
            for attempt in 0.. {
                upload(&mut client, &mut instance, round);
                if gateway.carried(engine, "request") > before {
                    break;
                }
                assert!(attempt < 20, "never carried");
            }
            // The gateway closes, and waits for the client to close.
            client.send(request_with("GET", "/last", &[("Connection", "close")], ""));
            instance.request();
            instance.send(response(200, "bye"));
            client.response();
            assert_eq!(client.expect_end(), End::Closed);
            gateway.signal(libc::SIGSTOP);
            client.close();
            client = connect();
            client.send(chat(&"again".repeat(CARRIED)));
            gateway.signal(libc::SIGCONT);
        }
        instance.request();
        instance.send(response(200, "end"));
        assert_eq!(client.response().payload(), b"end");
        gateway.expect_idle();
    }

    fn an_instance_that_falls_silent_is_given_up(engine) {
        let Some(network) = Network::new(false) else { return };
        let upstream = network.upstream("10.98.2.2:0");
        let gateway = Setup::single(engine, &upstream)
            .within(&network.gateway)
            .set("listen", vec!["10.98.1.2:0"])
            .set("timeouts.stream_idle", "500ms")
            .start();
        let mut client = network.connect(&gateway, 0);
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        instance.send("3\r\nabc\r\n");
        client.expect("3\r\nabc\r\n");
        // As when its power fails: no FIN, no RST.
        network.instance.ip(&["link", "set", &network.instance_link.1, "down"]);
        let start = Instant::now();
        let (rest, end) = client.end();
        assert!(rest.is_empty() && matches!(end, End::Closed | End::Reset));
        assert!(start.elapsed() < Duration::from_secs(10));
        gateway.expect_idle();
    }
}

/// A body that is handed over on its way: no more than [`CARRIED`] bytes of it can be carried.
#[track_caller]
fn upload(client: &mut Peer, instance: &mut Peer, seed: u64) {
    let body = chunked::encode(payload::bytes(seed, 20_000).chunks(1_000));
    let sent = chunked_request("/upload", &body);
    let (begin, rest) = sent.split_at(sent.len() - CARRIED);
    client.send(begin);
    assert!(instance.head().chunked());
    let mut got = instance.take_exact(body.len() - CARRIED);
    for piece in rest.chunks(20) {
        client.send(piece);
        got.extend(instance.take_exact(piece.len()));
    }
    payload::assert_same("upload", &got, &body);
    instance.send(response(200, "got it"));
    client.response();
}

/// Relays a request and its response, each larger than any buffer may be, and compares them.
#[track_caller]
fn relay(client: &mut Peer, instance: &mut Peer, sent: &[u8], up: &[u8], head: &[u8], down: &[u8]) {
    // The beginning alone first, so that the rest is handed over before it comes.
    let (begin, rest) = sent.split_at(sent.len() - up.len() / 2);
    std::thread::scope(|scope| {
        client.send(begin);
        let head = instance.head();
        let sender = scope.spawn(|| client.send(rest));
        payload::assert_same("request", &instance.request_body(&head), up);
        sender.join().unwrap();
    });
    instance.send(head);
    client.head();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| instance.send(down));
        payload::assert_same("response", &client.take_exact(down.len()), down);
        sender.join().unwrap();
    });
}
