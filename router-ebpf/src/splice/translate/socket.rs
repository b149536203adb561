//! Packets that one of the pair's sockets sends.

use super::{
    acknowledge,
    at_rest::{egress_at_rest, observe_own, restamp, stamp_own},
};
use crate::splice::{
    options::Sack,
    packet::{Packet, flag},
    seq,
    state::{Pair, Socket, mode},
    timestamps::Timestamps,
    verdict::{Outcome, Plan, Side, Verdict},
    window,
};

/// A packet that one of the sockets sends.
pub fn egress(pair: &mut Pair, side: Side, packet: &Packet) -> Verdict {
    let mut outcome = Outcome::default();
    from_socket(pair, side, packet, &mut outcome);
    (&outcome).into()
}

/// As [`egress`], in place.
#[inline(always)]
pub fn from_socket(pair: &mut Pair, side: Side, packet: &Packet, out: &mut Outcome) {
    out.events = 0;
    out.plan = Plan::Pass;
    if pair.mode() == mode::DEAD || packet.has(flag::SYN) {
        out.socket = *packet;
        return;
    }
    match (pair.mode(), side) {
        (mode::PASS, Side::Source) => out.socket = egress_at_rest(&mut pair.source, packet),
        (mode::PASS, Side::Receiver) => out.socket = egress_at_rest(&mut pair.receiver, packet),
        (_, Side::Source) => out.socket = egress_of_source_socket(pair, packet),
        (_, Side::Receiver) => egress_of_receiver_socket(pair, packet, out),
    }
}

#[inline(always)]
fn egress_of_source_socket(pair: &mut Pair, packet: &Packet) -> Packet {
    let seq = packet.seq.wrapping_add(pair.source.tx);
    let value = pair.source.ts_last;
    pair.source.ts_floor = value;
    let timestamps = restamp(&packet.timestamps, |stamp| Timestamps { value, echo: stamp.echo });
    let acked = acknowledge(pair, timestamps, Sack::default());
    if packet.len == 0 && !packet.has(flag::FIN | flag::RST) && seq::before(seq, pair.source.next) {
        pair.source.asks = 1;
    }
    let wire = Packet { seq, len: packet.len, flags: packet.flags, ..acked };
    if packet.has(flag::ACK) {
        pair.source.own_ack = packet.ack.wrapping_add(pair.source.rx);
        if pair.mode() == mode::DRAIN {
            // It may have more bytes that nobody has read, and take fewer. In LIVE it gets none.
            let Socket { limit, scale_own, .. } = pair.source;
            pair.source.own_window = window::at_most(packet.window, limit, scale_own);
        }
    }
    pair.source.next = seq::later(pair.source.next, wire.end());
    wire
}

#[inline(always)]
fn egress_of_receiver_socket(pair: &mut Pair, packet: &Packet, out: &mut Outcome) {
    let at = seq::distance(pair.splice.a_socket, packet.seq);
    let numbers = packet.len as i64 + (packet.flags & flag::FIN) as i64;
    let early = numbers > 0 && at + numbers > 0;
    if early && at >= 0 && pair.mode() == mode::LIVE {
        out.plan = Plan::Drop;
        return;
    }
    let forwarded = pair.splice.forwarded as i64;
    // Written before the receiver has everything, whose window is not known to the socket: it asks for
    // an acknowledgement instead, and is repeated by the socket.
    let place = if at < 0 { at } else { forwarded + at };
    let (place, len) = match (early, at < 0) {
        // A repetition into which what was written too early was merged: there is a gap between.
        (true, true) => (at, -at as u32),
        (true, false) => (forwarded - 1, 0),
        (false, _) => (place, packet.len),
    };
    if at < 0 || early {
        // A repetition or a probe: the socket must see the answer.
        pair.receiver.asks = 1;
    }
    let timestamps = stamp_own(&mut pair.receiver, packet);
    let wire = Packet {
        seq: seq::shift(pair.splice.a, place),
        ack: packet.ack.wrapping_add(pair.receiver.rx),
        sack: packet.sack.shifted(pair.receiver.rx),
        timestamps,
        len,
        flags: if early { packet.flags & !flag::FIN } else { packet.flags },
        window: window::at_most(packet.window, pair.receiver.limit, pair.receiver.scale_own),
    };
    // Its end is where the splice has left it, or will.
    let next = pair.receiver.next;
    observe_own(&mut pair.receiver, &wire);
    pair.receiver.next = next;
    out.socket = wire;
}
