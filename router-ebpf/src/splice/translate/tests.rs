use super::*;
use crate::{
    framing::Framing,
    splice::{
        options::Block,
        state::{Socket, mode},
        verdict::{Action, Side, event},
    },
};

fn live(length: u64) -> Pair {
    let source = Socket { next: 50, own_window: 1000, own_edge: 1100, ..Socket::default() };
    let receiver = Socket { peer_edge: 9000, own_ack: 70, ..Socket::default() };
    let mut pair = Pair::new(source, receiver, 1, 100);
    pair.word = pair.prepare(100, 500, length, Framing::none()).unwrap().1;
    pair.receiver.asks = 0;
    pair
}

fn ack(ack: u32, window: u16) -> Packet {
    Packet { seq: 70, ack, window, flags: flag::ACK, ..Packet::default() }
}

/// The source may wait for a window with nothing under way.
#[test]
fn an_acknowledgement_of_the_first_number_reaches_the_source() {
    let mut pair = live(10);
    let Action::Forward(peer) = ingress_from_receiver(&mut pair, &ack(500, 2000)).action else {
        panic!("not forwarded");
    };
    assert_eq!((peer.seq, peer.ack), (50, 100));
}

#[test]
fn the_last_acknowledgement_tells_both_sides() {
    let mut pair = live(10);
    let data = Packet { seq: 100, len: 12, flags: flag::ACK, ..Packet::default() };
    let verdict = ingress_from_source(&mut pair, &data);
    assert_eq!(verdict.events, event::ENDED);
    assert!(matches!(verdict.action, Action::Forward(Packet { seq: 500, len: 10, .. })));
    let verdict = ingress_from_receiver(&mut pair, &ack(510, 30));
    assert_eq!(verdict.events, event::QUIET);
    let Action::Split { socket, peer, zero_window_first } = verdict.action else {
        panic!("not for both");
    };
    assert!(zero_window_first, "or the socket would not believe a smaller window");
    assert_eq!((socket.ack, peer.ack, pair.mode()), (500, 110, mode::PASS));
}

fn passed(action: Action) -> Packet {
    match action {
        Action::Pass(packet) => packet,
        other => panic!("not passed: {other:?}"),
    }
}

fn data(seq: u32, len: u32, flags: u8) -> Packet {
    Packet { seq, ack: 50, len, flags: flag::ACK | flags, ..Packet::default() }
}

/// What a host answers with a number that it cannot know to be expected is asked back.
#[test]
fn resets_of_the_source_are_exact_for_its_socket_or_not() {
    let mut pair = live(1000);
    ingress_from_source(&mut pair, &data(100, 300, 0));
    ingress_from_receiver(&mut pair, &ack(600, 2000));
    pair.splice.promised = 900;
    let reset = |pair: &mut Pair, at: u32| {
        let packet = Packet { seq: 100 + at, flags: flag::RST, ..Packet::default() };
        let verdict = ingress_from_source(pair, &packet);
        (verdict.action, verdict.events)
    };
    pair.source.own_ack = 100;
    for (at, seq, events) in [
        (300, 100, event::SOURCE_CLOSED),
        (100, 100, event::SOURCE_CLOSED),
        (200, 101, 0),
        (400, 101, 0),
    ] {
        let (action, noted) = reset(&mut pair, at);
        assert_eq!((passed(action).seq, noted), (seq, events), "{at}");
    }
    assert_eq!(reset(&mut pair, 99).0, Action::Drop);
    assert_eq!(reset(&mut pair, 901).0, Action::Drop);
}

/// Anybody can send one.
#[test]
fn a_syn_ends_nothing() {
    let mut pair = live(1000);
    pair.source.rx = 7;
    let syn = Packet { seq: 5000, flags: flag::SYN, window: 1, ..Packet::default() };
    let (source, receiver) = (pair.source, pair.receiver);
    let verdict = ingress_from_source(&mut pair, &syn);
    assert_eq!(passed(verdict.action).seq, 4993, "the socket answers it");
    ingress_from_receiver(&mut pair, &syn);
    assert_eq!((pair.mode(), pair.source, pair.receiver), (mode::LIVE, source, receiver));
}

/// What the socket takes is offered to a source that uses it, up to the receiver's window.
#[test]
fn the_offer_grows_with_its_use() {
    let mut pair = live(1 << 40);
    pair.receiver.scale_peer = 7;
    pair.source.scale_own = 7;
    pair.widen(1 << 20);
    let mut at = 0;
    let mut round = |pair: &mut Pair, bytes: u32, window: u16| {
        ingress_from_source(pair, &data(100 + at, bytes, 0));
        at += bytes;
        let Action::Forward(peer) = ingress_from_receiver(pair, &ack(500 + at, window)).action
        else {
            panic!("not forwarded")
        };
        i64::from(peer.window) << 7
    };
    for _ in 0..9 {
        assert_eq!(round(&mut pair, 400, 20_000), 1000 >> 7 << 7, "no need for more");
    }
    let mut last = 1000;
    while last < 1 << 20 {
        let offered = round(&mut pair, last as u32, 20_000);
        assert!(offered > last && offered <= 2 * last + 2000, "{offered} after {last}");
        last = offered;
    }
    assert_eq!(round(&mut pair, last as u32, 20_000), 1 << 20);
    assert_eq!(round(&mut pair, 1 << 20, 100), 1 << 20, "what the receiver promised stays");
    assert_eq!(round(&mut pair, 1 << 20, 100), (20_000 << 7) - (2 << 20), "it takes no more");
}

/// So that the source believes in no larger window afterwards than the socket has announced.
#[test]
fn nothing_is_promised_far_beyond_a_known_end() {
    let mut pair = live(5000);
    pair.widen(1 << 20);
    for at in 0..5u32 {
        ingress_from_source(&mut pair, &data(100 + 1000 * at, 1000, 0));
        ingress_from_receiver(&mut pair, &ack(1500 + 1000 * at, 50_000));
    }
    assert_eq!((pair.mode(), pair.source.own_edge), (mode::PASS, 6100));
}

/// RFC 9293, section 3.10.7.4.
#[test]
fn a_smaller_window_is_believed_with_something_new() {
    let mut socket = Socket { limit: 1000, own_edge: 5000, own_ack: 100, ..Socket::default() };
    socket.number = 50;
    socket.next = 50;
    let own = |seq, len, ack| Packet {
        seq,
        ack,
        len,
        window: 60_000,
        flags: flag::ACK,
        ..Packet::default()
    };
    assert_eq!(egress_at_rest(&mut socket, &own(50, 0, 100)).window, 1000);
    assert_eq!(socket.own_edge, 5000);
    egress_at_rest(&mut socket, &own(50, 10, 100));
    assert_eq!(socket.own_edge, 5000, "the peer has seen this number already");
    egress_at_rest(&mut socket, &own(60, 10, 100));
    assert_eq!(socket.own_edge, 1100);
    socket.own_edge = 5000;
    egress_at_rest(&mut socket, &own(60, 10, 101));
    assert_eq!(socket.own_edge, 1101);
}

/// From elsewhere, or a window probe: the receiver answers, and no number is believed.
#[test]
fn data_beyond_the_promised_window_becomes_a_probe() {
    let mut pair = live(1 << 40);
    let before = pair.splice;
    for seq in [1099, 1100, 50_000, 100 + (1 << 30)] {
        let verdict = ingress_from_source(&mut pair, &data(seq, 2, 0));
        let Action::Forward(probe) = verdict.action else { panic!("{verdict:?}") };
        assert_eq!((probe.seq, probe.len), (499, 0));
        assert_eq!(pair.splice.forwarded, before.forwarded);
    }
    let unsent = Packet { ack: 51, ..data(100, 2, 0) };
    assert_eq!(ingress_from_source(&mut pair, &unsent).action, Action::Drop);
}

/// It would come in the middle of the body, and its acknowledgement be one of nothing.
#[test]
fn a_fin_of_the_receivers_socket_waits_for_the_end() {
    let mut pair = live(10);
    let fin = Packet { seq: 500, ack: 70, flags: flag::FIN | flag::ACK, ..Packet::default() };
    assert_eq!(egress(&mut pair, Side::Receiver, &fin).action, Action::Drop);
    let merged = Packet { seq: 490, len: 10, ..fin };
    let cut = passed(egress(&mut pair, Side::Receiver, &merged).action);
    assert_eq!((cut.seq, cut.len, cut.flags), (490, 10, flag::ACK));
    ingress_from_source(&mut pair, &data(100, 10, 0));
    assert_eq!(pair.mode(), mode::DRAIN);
    let probe = passed(egress(&mut pair, Side::Receiver, &fin).action);
    assert_eq!((probe.seq, probe.flags), (509, flag::ACK));
    ingress_from_receiver(&mut pair, &ack(510, 30));
    let sent = passed(egress(&mut pair, Side::Receiver, &fin).action);
    assert_eq!((sent.seq, sent.flags), (510, flag::FIN | flag::ACK));
}

#[test]
fn what_is_ahead_is_told_from_what_came_twice() {
    let mut packet = Packet { ack: 5, ..Packet::default() };
    assert!(!packet.holds_ahead());
    let before = u32::MAX - 9;
    packet.sack.push(Block { left: before, right: before.wrapping_add(15) });
    assert!(!packet.holds_ahead());
    packet.sack.push(Block { left: 8, right: 9 });
    assert!(packet.holds_ahead());
    packet.sack.count = 1;
    assert!(!packet.holds_ahead());
}

/// Or it would take the answer for one to what it had sent before (RFC 3522), and not repeat the rest.
#[test]
fn the_receivers_socket_knows_what_was_answered_to_a_repetition() {
    // The source's clock stands still, goes as the socket's, or faster.
    for ticks in [0, 200, 200_000] {
        let mut pair = live(1 << 20);
        pair.receiver = Socket {
            ts_own: 10_000,
            ts_last: 30_000,
            ts_floor: 30_000,
            ts_offset: 20_000,
            ..pair.receiver
        };
        pair.splice.ts_forth = 29_000;
        let mut last = 30_000;
        for round in 1..6 {
            let stamp = |value, echo| Some(Timestamps { value, echo });
            let timestamps = stamp(1_000 + (round - 1) * ticks, 0);
            let sent = Packet { timestamps, ..data(100 + round, 1, 0) };
            let Action::Forward(sent) = ingress_from_source(&mut pair, &sent).action else {
                panic!("not forwarded");
            };
            let own = 10_000 + round * 200;
            let again = Packet { timestamps: stamp(own, 0), ..data(490, 10, 0) };
            let again = passed(egress(&mut pair, Side::Receiver, &again).action);
            for value in [sent, again].map(|packet| packet.timestamps.unwrap().value) {
                assert!(!seq::before(value, last), "{value} after {last}");
                last = value;
            }
            let got = Packet { timestamps: stamp(0, last), ..ack(491, 2000) };
            let got = passed(ingress_from_receiver(&mut pair, &got).action);
            assert_eq!(got.timestamps.unwrap().echo, own);
        }
    }
}

/// The acknowledgements that told of it went to the source.
#[test]
fn the_receivers_socket_keeps_to_a_window_that_has_become_smaller() {
    let mut pair = live(10);
    ingress_from_source(&mut pair, &data(100, 10, 0));
    pair.receiver.peer_edge = 500;
    ingress_from_receiver(&mut pair, &ack(510, 30));
    let send = |pair: &mut Pair, len| {
        let packet = Packet { seq: 500, ack: 70, len, flags: flag::ACK, ..Packet::default() };
        let sent = passed(egress(pair, Side::Receiver, &packet).action);
        (sent.seq, sent.len)
    };
    assert_eq!(send(&mut pair, 31), (509, 0), "asks");
    assert_eq!(send(&mut pair, 30), (510, 30));
    // It may be sending while what tells it better waits for it.
    ingress_from_receiver(&mut pair, &ack(511, 20));
    assert_eq!(send(&mut pair, 31), (509, 0), "still beyond");
    ingress_from_receiver(&mut pair, &ack(511, 30));
    assert_eq!(send(&mut pair, 31), (510, 31));
}

#[test]
fn congestion_and_urgency() {
    let mut pair = live(1000);
    let sent = data(100, 10, flag::CWR | flag::ECE | flag::URG | flag::PSH);
    let Action::Forward(peer) = ingress_from_source(&mut pair, &sent).action else { panic!() };
    assert_eq!(peer.flags, flag::ACK | flag::PSH | flag::CWR);
    let told = Packet { flags: flag::ACK | flag::ECE, ..ack(510, 100) };
    let Action::Forward(peer) = ingress_from_receiver(&mut pair, &told).action else { panic!() };
    assert_eq!(peer.flags, flag::ACK | flag::ECE);
}

/// 3 GiB are a quarter of the way back.
#[test]
fn numbers_are_right_after_a_body_of_any_length() {
    let mut pair = live(3 << 30);
    let sixteenth = (3u32 << 30) / 16;
    for i in 0..16u32 {
        pair.splice.promised = 4 << 30;
        let seq = 100u32.wrapping_add(i.wrapping_mul(sixteenth));
        ingress_from_source(&mut pair, &data(seq, sixteenth, 0));
        let all = 500u32.wrapping_add((i + 1).wrapping_mul(sixteenth));
        ingress_from_receiver(&mut pair, &ack(all, 9000));
        // A keep-alive probe of the receiver's socket.
        let probe = Packet { seq: 499, ack: 70, flags: flag::ACK, ..Packet::default() };
        egress(&mut pair, Side::Receiver, &probe);
    }
    assert_eq!(pair.mode(), mode::PASS);
    assert_eq!(pair.receiver.next, 500u32.wrapping_add(3 << 30));
    assert_eq!(pair.source.own_ack, 100u32.wrapping_add(3 << 30));
    assert_eq!(pair.source.own_edge, 100, "4 GiB on");
}
