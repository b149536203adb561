//! The splice engine's program in drivers: what it forwards, and what it leaves to the other programs.

use tests::{
    Engine, Gateway, Network, Peer, Setup, Topology, Upstream, chunked, eventually,
    message::{CHUNKED_HEAD, chat, chunked_request, response},
    payload,
};

/// Sends on one side, takes on the other.
fn pass(from: &mut Peer, to: &mut Peer, bytes: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.send(bytes));
        payload::assert_same("bytes", &to.take_exact(bytes.len()), bytes);
    });
}

/// The body's beginning comes in pieces, each when the one before is there, so that the rest is handed over.
fn carry(from: &mut Peer, to: &mut Peer, body: &[u8], most: usize) {
    let (begin, rest) = body.split_at(10_000);
    for part in begin.chunks(1_000).chain(rest.chunks(most)) {
        pass(from, to, part);
    }
}

fn forwarded(gateway: &Gateway) -> f64 {
    gateway.metric("atalho_xdp_packets_total", &[])
}

/// Runs a test on hosts whose links were made ready by `prepare`, if there can be such.
fn between_hosts(
    network: fn() -> Option<Network>,
    prepare: impl FnOnce(&Network),
    test: impl FnOnce(&Network),
) {
    if !Engine::SpliceXdp.available() {
        return;
    }
    let Some(network) = network() else { return };
    prepare(&network);
    let entered = network.enter().unwrap();
    test(entered.network().unwrap());
}

fn joined() -> Option<Network> {
    Network::new(false)
}

/// An instance, a gateway with a setting changed, and a pair of connections.
fn start(change: impl FnOnce(Setup) -> Setup) -> (Upstream, Gateway, Pair) {
    let upstream = Upstream::manual();
    let gateway = change(Setup::single(Engine::SpliceXdp, &upstream)).start();
    let pair = Pair::open(&gateway, &upstream);
    (upstream, gateway, pair)
}

/// Exchanges on one connection to each side, the bulk of which is handed over.
struct Pair {
    client: Peer,
    instance: Peer,
}

impl Pair {
    fn open(gateway: &Gateway, upstream: &Upstream) -> Self {
        let mut client = gateway.connect();
        client.send(chat("first"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "first"));
        client.response();
        Self { client, instance }
    }

    fn sized(&mut self, body: &[u8]) {
        self.client.send(chat("sized"));
        self.instance.request();
        self.instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        self.client.head();
        carry(&mut self.instance, &mut self.client, body, body.len());
    }

    fn chunked(&mut self, body: &[u8]) {
        self.client.send(chat("chunked"));
        self.instance.request();
        self.instance.send(CHUNKED_HEAD);
        self.client.head();
        let encoded = chunked::encode(body.chunks(5_000));
        carry(&mut self.instance, &mut self.client, &encoded, 50_000);
    }

    fn upload(&mut self, body: &[u8]) {
        let encoded = chunked::encode(body.chunks(5_000));
        let sent = chunked_request("/upload", &encoded);
        let head = sent.len() - encoded.len();
        self.client.send(&sent[..head]);
        assert!(self.instance.head().chunked());
        carry(&mut self.client, &mut self.instance, &encoded, 50_000);
        self.instance.send(response(200, "got it"));
        self.client.response();
    }
}

fn bodies_in_all_directions(topology: Topology) {
    let engine = Engine::SpliceXdp;
    tests::engine::run(engine, topology, |engine| {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let mut pair = Pair::open(&gateway, &upstream);
        for round in 0..3 {
            for exchange in [Pair::sized, Pair::chunked, Pair::upload] {
                let before = forwarded(&gateway);
                exchange(&mut pair, &payload::bytes(round, 1_000_000));
                let packets = forwarded(&gateway) - before;
                // Some 700 segments, and acknowledgements.
                assert!(packets > 300.0, "{packets} packets in round {round}");
            }
        }
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_carried("response");
        gateway.expect_carried("request");
        pair.client.close();
        gateway.expect_idle();
    });
}

#[test]
fn bodies_in_all_directions_over_ipv4() {
    bodies_in_all_directions(Topology::Veth);
}

#[test]
fn bodies_in_all_directions_over_ipv6() {
    bodies_in_all_directions(Topology::Veth6);
}

/// As between hosts on one machine: checksums are unfinished, several segments are one packet.
#[test]
fn unfinished_packets_are_left_to_the_stack() {
    let take_redirected = |network: &Network| {
        network.client.set_receive_offload(&network.client_link.0, true);
        network.instance.set_receive_offload(&network.instance_link.1, true);
    };
    between_hosts(joined, take_redirected, |_| {
        let (_upstream, gateway, mut pair) = start(|setup| setup);
        for round in 0..3 {
            pair.sized(&payload::bytes(round, 1_000_000));
            pair.chunked(&payload::bytes(round, 1_000_000));
        }
        assert_eq!(forwarded(&gateway), 0.0);
        gateway.expect_carried("response");
    });
}

/// A driver that takes no redirected frames would lose them all.
#[test]
fn nothing_goes_where_nothing_is_taken() {
    // The client's end takes none; acknowledgements may go to the instance's.
    let one_way = |network: &Network| {
        network.allow_xdp();
        network.client.set_receive_offload(&network.client_link.0, false);
    };
    between_hosts(joined, one_way, |network| {
        let (_upstream, gateway, mut pair) = start(|setup| setup);
        pair.sized(&payload::bytes(1, 1_000_000));
        let acknowledgements = forwarded(&gateway);
        assert!(acknowledgements > 0.0);
        pair.upload(&payload::bytes(2, 1_000_000));
        let both = forwarded(&gateway);
        assert!(both > acknowledgements + 300.0, "{both}");
        // It stops in the middle: what is lost is repeated on the other way.
        network.instance.set_receive_offload(&network.instance_link.1, false);
        pair.upload(&payload::bytes(3, 100_000));
        gateway.expect_carried("request");
    });
}

/// A cable that is pulled and another one that is plugged in.
#[test]
fn an_interface_that_comes_later_forwards_too() {
    between_hosts(joined, Network::allow_xdp, |network| {
        let (_upstream, gateway, mut pair) = start(|setup| setup.set("timeouts.pool_idle", "60s"));
        let native = || gateway.metric("atalho_xdp_interfaces", &[("state", "native")]);
        assert_eq!(native(), 2.0);
        network.gateway.ip(&["link", "del", &network.client_link.1]);
        eventually("one interface is left", || native() == 1.0);
        let addresses = ("10.98.1.1/24", "10.98.1.2/24");
        let (there, here) = network.client.join(&network.gateway, addresses.0, addresses.1);
        network.client.xdp_peer(&there);
        network.client.ip(&["route", "replace", "default", "via", "10.98.1.2"]);
        gateway.expect_line(&[&here, "splicing its packets in the driver"]);
        pair.client = gateway.connect();
        for round in 0..2 {
            let before = forwarded(&gateway);
            pair.sized(&payload::bytes(round, 1_000_000));
            pair.upload(&payload::bytes(round, 1_000_000));
            let packets = forwarded(&gateway) - before;
            assert!(packets > 600.0, "{packets}");
        }
        assert_eq!(native(), 2.0);
    });
}

/// Asked for or not, and whether it works, is told.
#[test]
fn where_it_is_off_says_so() {
    between_hosts(joined, Network::allow_xdp, |_| {
        let upstream = Upstream::manual();
        for (setting, reason, interfaces) in
            [("on", "ok", 2.0), ("auto", "disabled", 0.0), ("off", "disabled", 0.0)]
        {
            let gateway =
                Setup::single(Engine::Splice, &upstream).set("engine.xdp", setting).start();
            let labels = [("engine", "xdp"), ("reason", reason)];
            let works = f64::from(u8::from(reason == "ok"));
            assert_eq!(gateway.metric("atalho_engine_available", &labels), works, "{setting}");
            let native = gateway.metric("atalho_xdp_interfaces", &[("state", "native")]);
            assert_eq!(native, interfaces, "{setting}");
            assert_eq!(forwarded(&gateway), 0.0, "the self-test's frames do not count");
        }
    });
}

/// One hook, two programs.
#[test]
fn behind_the_guard() {
    between_hosts(joined, Network::allow_xdp, |network| {
        // One interface is guarded, the other is not.
        let (_upstream, gateway, mut pair) = start(|setup| {
            setup
                .set("guard.interfaces", vec![network.client_link.1.clone()])
                .set("guard.deny", vec!["10.98.1.77/32"])
        });
        for round in 0..2 {
            pair.sized(&payload::bytes(round, 1_000_000));
            let before = forwarded(&gateway);
            // From the guarded interface.
            pair.upload(&payload::bytes(round, 1_000_000));
            let packets = forwarded(&gateway) - before;
            assert!(packets > 600.0, "{packets}");
        }
        assert!(gateway.metric("atalho_guard_packets_total", &[("rule", "passed")]) > 600.0);
    });
}

/// Packets of one aggregate may change places on their source's host. Those in front of a gap wait.
#[test]
fn packets_that_overtake_others_leave_no_hole() {
    let wired = || Network::wired(false, 1);
    between_hosts(wired, Network::allow_xdp, |network| {
        let (_upstream, gateway, mut pair) = start(|setup| setup);
        let wires = network.wires.as_ref().unwrap();
        wires.overtake();
        let holes = || {
            let labels = [("engine", "splice"), ("reason", "hole")];
            gateway.metric("atalho_fallbacks_total", &labels)
        };
        let mut rounds = Vec::new();
        for seed in 0..20 {
            let before = (holes(), wires.instance().overtaken(), forwarded(&gateway));
            pair.chunked(&payload::bytes(seed, 1_000_000));
            let holes = holes() - before.0;
            let overtaken = wires.instance().overtaken() - before.1;
            let packets = forwarded(&gateway) - before.2;
            rounds.push((holes, overtaken, packets));
            // Not every round: a processor may be busy with something else for longer than packets wait.
            if holes == 0.0 && overtaken >= 20 && packets > 50.0 {
                return gateway.expect_idle();
            }
        }
        panic!("holes, packets overtaken, packets forwarded by drivers: {rounds:?}");
    });
}
