//! Packets on both sides of the gateway, judged by tshark and by rules that hold for every packet
//! (see `tests::capture`).

use std::time::Duration;

use router::kernel::guard::{Guard, Mode, Rules};
use tests::{
    Engine, Network, Peer, Setup, Upstream,
    capture::Capture,
    chunked, for_each_engine_on_own_networks,
    message::{CHUNKED_HEAD, chat, chunked_request, request, response},
    network::Wires,
    payload, process,
    traffic::{self, Baseline, Kind, Traffic},
    wire::Shares,
};

/// Makes the hosts take what XDP redirects to them, packet by packet: by programs of their own.
fn drivers(network: &Network, engine: Engine) -> Option<[Guard; 2]> {
    let start = |link: &String| {
        Guard::start(std::slice::from_ref(link), Mode::Native, &[], &Rules::default())
            .expect("a guard")
    };
    (engine == Engine::SpliceXdp && engine.available()).then(|| {
        network.wires.iter().for_each(Wires::take_redirected);
        [
            network.client.run(|| start(&network.client_link.0)),
            network.instance.run(|| start(&network.instance_link.1)),
        ]
    })
}

/// Captures on the client's host and on the instance's, while `exchanges` happen.
fn captured(network: &Network, good_wires: bool, exchanges: impl FnOnce()) {
    let sides = [
        ("client", &network.client, &network.client_link.0),
        ("instance", &network.instance, &network.instance_link.1),
    ];
    let captures = sides.map(|(_, namespace, link)| Capture::start(namespace, link));
    exchanges();
    for ((side, ..), capture) in sides.iter().zip(captures) {
        let Some(capture) = capture else { return };
        let verdict = capture.judge();
        println!(
            "{side}: {} packets of {} connections; {:?}",
            verdict.packets, verdict.streams, verdict.notes
        );
        assert!(verdict.packets > 500 && verdict.streams > 0, "nothing was captured");
        verdict.expect_clean(side, good_wires);
    }
}

/// Sends on one side, takes on the other.
fn pass(from: &mut Peer, to: &mut Peer, bytes: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.send(bytes));
        payload::assert_same("bytes", &to.take_exact(bytes.len()), bytes);
    });
}

/// What makes a difference to TCP: tokens, bulk, a reader that stops, bodies in both directions,
/// requests that share packets with acknowledgements, and again on the same connections.
fn exchanges(engine: Engine) {
    let upstream = Upstream::manual();
    let gateway = Setup::single(engine, &upstream).start();
    let mut client = gateway.connect();
    client.send(chat("first"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "first"));
    client.response();
    // On a busy machine a hand-over may fail, and the next one does not.
    let carried = |round| round >= 3 && gateway.takes_part(&["response", "request"]);
    for round in (0..20).take_while(|round| !carried(*round)) {
        client.send(chat("tokens"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..50 {
            let chunk = chunked::chunk(&payload::bytes(number, 120));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");

        let bulk = payload::bytes(round, 1_500_000);
        client.send(chat("bulk"));
        instance.request();
        instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
        client.head();
        pass(&mut instance, &mut client, &bulk[..100_000]);
        // The client stops reading until nothing fits any more, and goes on.
        let taken = instance.stuff(&bulk[100_000..], Duration::from_millis(100));
        payload::assert_same("bulk", &client.take_exact(taken), &bulk[100_000..][..taken]);
        pass(&mut instance, &mut client, &bulk[100_000 + taken..]);

        let upload = chunked::encode(payload::bytes(round, 400_000).chunks(5_000));
        let sent = chunked_request("/upload", &upload);
        let at = sent.len() - upload.len() / 2;
        client.send(&sent[..at]);
        let head = instance.head();
        assert!(head.chunked());
        let begin = instance.take_exact(at - (sent.len() - upload.len()));
        payload::assert_same("upload", &begin, &upload[..begin.len()]);
        pass(&mut client, &mut instance, &upload[begin.len()..]);
        instance.send(response(200, "got it"));
        client.response();

        // Two requests at once.
        client.send([request("POST", "/a", "a"), request("POST", "/b", "b")].concat());
        for name in ["/a", "/b"] {
            assert_eq!(instance.request().head.target(), name);
            instance.send(response(200, payload::bytes(round, 20_000)));
            client.response();
        }
    }
    assert_eq!(upstream.accepted(), 1);
    gateway.expect_carried("response");
    gateway.expect_carried("request");
    gateway.expect_drivers_took_part();
    client.close();
    gateway.expect_idle();
    drop(gateway);
    instance.end();
}

for_each_engine_on_own_networks! {
    fn packets_are_those_of_correct_hosts(engine) {
        // Or packets would overtake each other, without anyone's fault.
        process::on_one_processor();
        for six in [false, true] {
            let Some(network) = Network::new(six) else { return };
            network.plain_packets();
            let _drivers = drivers(&network, engine);
            let entered = network.enter().unwrap();
            // What the driver's program leaves to the stack overtakes what it holds until its turn ends.
            let ordered = engine != Engine::SpliceXdp;
            captured(entered.network().unwrap(), ordered, || exchanges(engine));
        }
    }

    fn over_bad_wires_too(engine) {
        let Some(network) = Network::wired(false, 5) else { return };
        network.plain_packets();
        let _drivers = drivers(&network, engine);
        let entered = network.enter().unwrap();
        let network = entered.network().unwrap();
        let wires = network.wires.as_ref().unwrap();
        captured(network, false, || {
            let fleet = [traffic::instance()];
            let gateway = Setup::new(engine)
                .instances(&fleet)
                .set("timeouts.connect", "60s")
                .set("timeouts.pool_idle", "500ms")
                .start();
            let baseline = Baseline::of(&gateway);
            wires.set(Shares::all(10_000));
            let traffic = Traffic {
                seed: fastrand::u64(..),
                kind: Kind::Patient,
                limit: Duration::from_secs(5),
                exchanges: 300,
            };
            traffic.run_until(&gateway, &fleet, |tally| {
                tally.exchanges() > 100 && gateway.takes_part(&["response"])
            });
            gateway.expect_carried("response");
            gateway.expect_drivers_took_part();
            wires.set(Shares::default());
            baseline.expect(&gateway, &fleet);
        });
    }
}
