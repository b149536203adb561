//! The harness tested against itself: client and instance joined directly, without a gateway.

use std::time::Duration;

use tests::{
    End, Engine, Network, Next, Peer, Setup, Topology, Upstream, chunked, eventually,
    message::{CHUNKED_HEAD, chunked_request, request, response},
    netns::Namespace,
    payload,
};

#[test]
fn an_exchange_by_hand() {
    let upstream = Upstream::manual();
    let mut client = Peer::connect(upstream.address());
    let sent = request("POST", "/x", payload::bytes(1, 300_000));
    client.send_in_pieces(&sent[..1000], 7);
    let mut instance = upstream.accept();
    let head = instance.head();
    assert_eq!((head.method(), head.target()), ("POST", "/x"));
    client.send(&sent[1000..]);
    let body = instance.request_body(&head);
    payload::assert_same("body", &body, &payload::bytes(1, 300_000));

    instance.send(CHUNKED_HEAD);
    let head = client.head();
    assert!(head.chunked());
    instance.send(b"3\r\nab");
    client.expect("3\r\nab");
    instance.send(b"c\r\n0\r\nTrailer: yes\r\n\r\nsurplus");
    client.expect("c\r\n0\r\nTrailer: yes\r\n\r\nsurplus");
    instance.finish();
    assert_eq!(client.expect_end(), End::Closed);
}

#[test]
fn an_exchange_with_a_serving_instance() {
    let upstream = Upstream::answering(|request| response(200, request.payload()));
    let mut client = Peer::connect(upstream.address());
    assert_eq!(client.ask(request("POST", "/", "one")).payload(), b"one");
    let body = chunked::encode([&b"t"[..], b"wo"]);
    assert_eq!(client.ask(chunked_request("/", &body)).payload(), b"two");
    assert_eq!((upstream.accepted(), upstream.open(), upstream.count()), (1, 1, 2));
    assert_eq!(upstream.requests()[1].body, body);
    client.close();
    eventually("the instance has seen it", || upstream.open() == 0);
}

#[test]
fn resets_are_told_from_closes() {
    let upstream = Upstream::serve(|_, head| match head.target() {
        "/reset" => Next::Reset,
        _ => Next::Close,
    });
    for (target, end) in [("/reset", End::Reset), ("/close", End::Closed)] {
        let mut client = Peer::connect(upstream.address());
        client.send(request("GET", target, ""));
        assert_eq!(client.expect_end(), end, "{target}");
    }
    let by_hand = Upstream::manual();
    let client = Peer::connect(by_hand.address());
    let mut instance = by_hand.accept();
    client.reset();
    assert_eq!(instance.expect_end(), End::Reset);
}

#[test]
fn a_dead_instance_refuses_and_can_come_back() {
    let mut upstream = Upstream::ok();
    let address = upstream.address();
    let mut client = Peer::connect(address);
    assert_eq!(client.ask(request("GET", "/", "")).status(), 200);
    upstream.die();
    client.expect_end();
    assert!(std::net::TcpStream::connect(address).is_err());
    let again = Upstream::answering_at(address, |_| response(201, ""));
    assert_eq!(Peer::connect(again.address()).ask(request("GET", "/", "")).status(), 201);
}

#[test]
fn a_stalled_reader_stops_the_sender() {
    let upstream = Upstream::manual();
    let client = Peer::connect_narrow(upstream.address(), 16 * 1024);
    let mut instance = upstream.accept();
    let taken = instance.stuff(&vec![0; 64 << 20], Duration::from_millis(300));
    assert!(taken < 16 << 20, "{taken} bytes went into a connection nobody reads");
    drop(client);
}

#[test]
fn namespaces_are_joined_and_removed() {
    let (Some(left), Some(right)) = (Namespace::new(), Namespace::new()) else { return };
    left.join(&right, "10.99.0.1/24", "10.99.0.2/24");
    left.join(&right, "fd99::1/64", "fd99::2/64");
    for address in ["10.99.0.1:0", "[fd99::1]:0"] {
        let upstream = left.run(|| Upstream::manual_at(address.parse().unwrap()));
        let mut client = right.run(|| Peer::connect(upstream.address()));
        client.send("hello");
        let mut instance = upstream.accept();
        instance.expect("hello");
        assert_ne!(instance.stream().peer_addr().unwrap().ip(), upstream.address().ip());
    }
    let name = left.name().to_owned();
    drop((left, right));
    assert!(!std::path::Path::new(&format!("/var/run/netns/{name}")).exists());
}

#[test]
fn on_a_network_everyone_has_a_host() {
    for topology in [Topology::Veth, Topology::Veth6] {
        let Some(entered) = topology.enter() else { return };
        let network = entered.network().expect("a network");
        let upstream = Upstream::answering(|_| response(200, "here"));
        assert_eq!(upstream.address().ip(), network.instance_address().ip());
        // The client's host reaches the instance's through the gateway's; so do its threads.
        let address = upstream.address();
        let ask = move || Peer::connect(address).ask(request("GET", "/", "")).payload();
        assert_eq!(std::thread::spawn(ask).join().unwrap(), b"here");
        let gateway = Setup::single(Engine::Userspace, &upstream).start();
        assert_eq!(gateway.address().ip(), network.listen().ip());
        let mut client = gateway.connect();
        assert_ne!(client.local_addr().ip(), gateway.address().ip());
        assert_eq!(client.ask(request("GET", "/", "")).payload(), b"here");
        gateway.expect_idle();
    }
    assert!(Network::current().is_none(), "we are back");
    let upstream = Upstream::ok();
    assert_eq!(Peer::connect(upstream.address()).ask(request("GET", "/", "")).status(), 200);
}
