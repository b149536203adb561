//! The bad wires do what they are told: otherwise tests over them prove nothing.

use std::{collections::BTreeMap, net::UdpSocket, time::Duration};

use tests::{
    DEADLINE, Network, Peer, Upstream, eventually,
    message::{request, response},
    payload,
    wire::{Fate, Shares, Wire},
};

/// Numbered datagrams from one end to the other: how often each came, and how many came behind a
/// later one.
fn datagrams(
    network: &Network,
    wire: impl Fn() -> [u64; 5],
    count: u64,
) -> (BTreeMap<u64, u32>, u64) {
    let receiver = network.gateway.run(|| UdpSocket::bind(network.listen()).unwrap());
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    let sender = network.client.run(|| UdpSocket::bind(network.client_address()).unwrap());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let (mut came, mut overtaken, mut latest) = (BTreeMap::new(), 0, 0);
    let mut received = 0;
    let before = wire();
    for number in 0..count {
        sender.send(&number.to_be_bytes()).unwrap();
        // Never more under way than a socket takes.
        if number % 50 < 49 && number + 1 < count {
            continue;
        }
        let mut fates = [0; 5];
        eventually("the wire has seen them", || {
            fates = std::array::from_fn(|fate| wire()[fate] - before[fate]);
            fates.iter().sum::<u64>() == number + 1
        });
        let [pass, _, repeat, delay, echo] = fates;
        while received < pass + 2 * repeat + delay + 2 * echo {
            let mut bytes = [0; 8];
            assert_eq!(receiver.recv(&mut bytes).expect("another datagram"), 8);
            let number = u64::from_be_bytes(bytes);
            *came.entry(number).or_default() += 1;
            overtaken += u64::from(number < latest);
            latest = latest.max(number);
            received += 1;
        }
    }
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert!(receiver.recv(&mut [0; 8]).is_err(), "one more than the wire knows of");
    (came, overtaken)
}

fn counts(wire: &Wire, end: usize) -> [u64; 5] {
    [Fate::Pass, Fate::Lose, Fate::Repeat, Fate::Delay, Fate::Echo]
        .map(|fate| wire.count(fate)[end])
}

#[test]
fn packets_meet_the_fates_that_the_seed_says() {
    const COUNT: u64 = 5_000;
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let Some(network) = Network::wired(seed == 2, seed) else { return };
        let wires = network.wires.as_ref().unwrap();
        let seen = || counts(&wires.client(), 0);
        let (came, overtaken) = datagrams(&network, seen, 500);
        assert!(came.len() == 500 && overtaken == 0 && came.values().all(|times| *times == 1));
        assert_eq!(seen(), [500, 0, 0, 0, 0], "a good wire");
        wires.set(Shares { lose: 10_000, repeat: 20_000, delay: 30_000, echo: 40_000 });
        let (came, overtaken) = datagrams(&network, seen, COUNT);
        let fates = seen();
        let lost = COUNT - came.len() as u64;
        let twice = came.values().filter(|times| **times == 2).count() as u64;
        assert_eq!((lost, twice), (fates[1], fates[2] + fates[4]));
        for (fate, share) in fates[1..].iter().zip([1, 2, 3, 4]) {
            assert!(fate.abs_diff(share * COUNT / 100) < 40, "{fates:?}");
        }
        // Some come early enough.
        assert!(overtaken > COUNT / 100, "{overtaken}");
        assert_eq!(counts(&wires.instance(), 0)[1..], [0; 4]);
        runs.push(came);
    }
    assert_eq!(runs[0], runs[1], "the same seed");
    assert_ne!(runs[0], runs[2], "another seed");
}

#[test]
fn connections_live_through_it() {
    // With packets as they are on a wire, and with aggregates of them.
    for (six, plain) in [(false, true), (true, false)] {
        let Some(network) = Network::wired(six, 3) else { return };
        if plain {
            network.plain_packets();
        }
        let entered = network.enter().unwrap();
        let wires = entered.network().unwrap().wires.as_ref().unwrap();
        let upstream = Upstream::answering(|request| response(200, request.payload()));
        let mut client = Peer::connect(upstream.address());
        wires.set(Shares::all(if plain { 5_000 } else { 30_000 }));
        for (seed, size) in [(1, 1_000), (2, 100_000), (3, 4_000_000)] {
            let body = payload::bytes(seed, size);
            let mut sender = Peer::new(client.stream().try_clone().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| sender.send(request("POST", "/", &body)));
                payload::assert_same("echo", &client.response().payload(), &body);
            });
        }
        let fates = [wires.client(), wires.instance()].map(|wire| {
            println!("plain {plain}: {}", wire.describe());
            [counts(&wire, 0), counts(&wire, 1)]
        });
        for fate in 0..5 {
            let seen: u64 = fates.as_flattened().iter().map(|counts| counts[fate]).sum();
            assert!(seen > 0, "{fates:?}");
        }
        let packets: u64 = fates.as_flattened().as_flattened().iter().sum();
        assert!(!plain || packets > 5_000, "{packets} packets are not of the size of a wire's");
    }
}
