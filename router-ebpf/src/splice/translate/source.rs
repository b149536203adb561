//! Packets that arrive from the source.

use super::{
    acknowledge,
    at_rest::{for_socket, ingress_at_rest, observe_peer, restamp},
};
use crate::splice::{
    options::Sack,
    packet::{Packet, flag},
    seq,
    state::{Pair, mode, word},
    timestamps::{self, Timestamps},
    verdict::{Outcome, Plan, Verdict, event},
};

/// A packet that arrives from the source.
///
/// With an unknown length, its payload is looked at first, if [`Pair::accepts`] it: see
/// [`Splice::look`](crate::splice::state::Splice::look).
pub fn ingress_from_source(pair: &mut Pair, packet: &Packet) -> Verdict {
    let mut outcome = Outcome::default();
    from_source(pair, packet, &mut outcome);
    (&outcome).into()
}

/// As [`ingress_from_source`], in place.
#[inline(always)]
pub fn from_source(pair: &mut Pair, packet: &Packet, out: &mut Outcome) {
    out.events = 0;
    out.plan = Plan::Pass;
    if pair.mode() == mode::DEAD {
        out.socket = *packet;
        return;
    }
    if packet.has(flag::SYN) {
        out.socket = ingress_at_rest(&mut pair.source, packet);
        return;
    }
    let closing = if packet.has(flag::FIN | flag::RST) { event::SOURCE_CLOSED } else { 0 };
    if pair.mode() == mode::PASS {
        pair.word = word::passed(pair.word, packet.end());
        out.socket = ingress_at_rest(&mut pair.source, packet);
        out.events = closing;
        return;
    }
    let at = pair.splice.position(packet.seq);
    if packet.has(flag::RST) {
        reset_from_source(pair, packet, at, out);
        return;
    }
    if !pair.accepts(packet.ack) {
        // Nobody has sent what it acknowledges.
        out.plan = Plan::Drop;
        return;
    }
    observe_peer(&mut pair.source, packet);
    if packet.len == 0 && !packet.has(flag::FIN) {
        bare_from_source(pair, packet, at, out);
        return;
    }
    data_from_source(pair, packet, at, out);
    if !packet.has(flag::FIN) {
        return;
    }
    let fin_at = at + packet.len as i64;
    let behind_hole = pair.mode() == mode::LIVE && fin_at > pair.splice.forwarded as i64;
    match out.plan {
        Plan::Pass if packet.len == 0 && behind_hole => out.plan = Plan::Drop,
        Plan::Pass => out.events |= closing,
        Plan::Forward if !behind_hole && out.peer.len == packet.len => {
            out.socket = for_source_socket(pair, packet, fin_at);
            out.socket.flags &= !flag::PSH;
            out.plan = Plan::Split;
            out.events |= closing;
        }
        _ => {}
    }
}

/// The source's packet goes back to it as a bare acknowledgement.
#[inline(always)]
fn turn_round(pair: &mut Pair, packet: &Packet, out: &mut Outcome) {
    let value = pair.source.ts_last;
    pair.source.ts_floor = value;
    let stamp = restamp(&packet.timestamps, |stamp| Timestamps { value, echo: stamp.value });
    out.plan = Plan::TurnRound;
    out.socket = acknowledge(pair, stamp, Sack::default());
}

/// The source's packet for the receiver, at `position`, with `len` bytes of its payload.
#[inline(always)]
fn for_receiver(pair: &mut Pair, packet: &Packet, position: i64, len: u32) -> Packet {
    let splice = &mut pair.splice;
    let receiver = &mut pair.receiver;
    let timestamps = restamp(&packet.timestamps, |stamp| {
        let (floor, last) = (&mut receiver.ts_floor, receiver.ts_last);
        let value = timestamps::forwarded(stamp.value, splice.ts_forth, floor, last);
        receiver.ts_last = seq::later(receiver.ts_last, value);
        let oldest = &mut splice.oldest_receiver;
        let echo = timestamps::echo(stamp.echo, splice.ts_back, oldest, receiver.ts_peer);
        Timestamps { value, echo }
    });
    Packet {
        seq: seq::shift(splice.a, position),
        ack: receiver.own_ack,
        len,
        window: receiver.own_window,
        // Congestion echoed is the socket's business. What is urgent is a byte like others, or the
        // receiver's program would not find it in its place in the body.
        flags: packet.flags & !(flag::FIN | flag::URG | flag::ECE),
        timestamps,
        sack: Sack::default(),
    }
}

/// The source's packet for its own socket, at `position`, without payload.
#[inline(always)]
fn for_source_socket(pair: &Pair, packet: &Packet, position: i64) -> Packet {
    let source = &pair.source;
    let seq = pair.splice.in_source_socket(position);
    let ack = packet.ack.wrapping_sub(source.tx);
    Packet { len: 0, ..for_socket(source, packet, seq, ack, Sack::default()) }
}

/// The source's socket judges a reset by what it has received itself: it gets the number it waits for
/// when the reset has one that the source can know to be waited for. That is what follows the last byte
/// it has sent, or, when it answers for a connection that is gone, what was acknowledged to it.
#[inline(always)]
fn reset_from_source(pair: &Pair, packet: &Packet, at: i64, out: &mut Outcome) {
    let forwarded = pair.splice.forwarded as i64;
    let acked = pair.splice.acked as i64;
    let exact = at == forwarded || at == acked;
    if !exact && (at < acked || at > pair.splice.promised) {
        out.plan = Plan::Drop;
        return;
    }
    out.socket = for_source_socket(pair, packet, at);
    let expected = pair.source.own_ack.wrapping_sub(pair.source.rx);
    if exact {
        out.socket.seq = expected;
        out.events = event::SOURCE_CLOSED;
    } else if at < forwarded || pair.mode() == mode::LIVE {
        // Within the window: the socket asks whether it is meant, and the answer will be exact.
        out.socket.seq = expected.wrapping_add(1);
    }
}

/// No payload: an answer, or a probe.
#[inline(always)]
fn bare_from_source(pair: &mut Pair, packet: &Packet, at: i64, out: &mut Outcome) {
    let forwarded = pair.splice.forwarded as i64;
    if pair.mode() == mode::DRAIN || at < -1 {
        out.socket = for_source_socket(pair, packet, at);
        return;
    }
    let seq_at = if at < forwarded { at } else { forwarded };
    if pair.source.asks != 0 {
        // One of the socket's probes is answered; the receiver need not hear of it.
        pair.source.asks = 0;
        out.plan = Plan::Split;
        out.socket = for_source_socket(pair, packet, seq_at);
        out.peer = for_receiver(pair, packet, seq_at, 0);
        return;
    }
    if at < pair.splice.acked as i64 - 1 {
        turn_round(pair, packet, out);
        return;
    }
    out.plan = Plan::Forward;
    out.peer = for_receiver(pair, packet, seq_at, 0);
}

#[inline(always)]
fn data_from_source(pair: &mut Pair, packet: &Packet, at: i64, out: &mut Outcome) {
    let end = at + packet.len as i64;
    let length = pair.splice.length as i64; // UNKNOWN becomes -1
    let known = length >= 0;
    if end <= 0 && at < 0 || known && at >= length {
        if pair.mode() == mode::LIVE && at > 0 {
            // Beyond the end, and the end has not come yet: the source repeats it.
            out.plan = Plan::Drop;
            return;
        }
        pair.word = word::passed(pair.word, packet.end());
        out.socket = for_source_socket(pair, packet, at);
        out.socket.len = packet.len;
        return;
    }
    if at < 0 {
        turn_round(pair, packet, out);
        return;
    }
    if end > pair.splice.promised && pair.mode() == mode::LIVE {
        // A probe with a byte of data, or not from the source: the receiver tells its window. It answers
        // what is before the number that it waits for.
        let acked = pair.splice.acked as i64;
        out.plan = Plan::Forward;
        out.peer = for_receiver(pair, packet, acked - 1, 0);
        return;
    }
    if packet.len == 0 {
        // A FIN alone.
        out.socket = for_source_socket(pair, packet, at);
        return;
    }
    let end = if known && end > length { length } else { end };
    if end <= pair.splice.acked as i64 {
        turn_round(pair, packet, out);
        return;
    }
    if !pair.splice.may_forward(end) {
        out.plan = Plan::Drop;
        return;
    }
    pair.forwards(end);
    if pair.mode() == mode::LIVE && known && end == length {
        pair.end();
        out.events = event::ENDED;
    }
    out.plan = Plan::Forward;
    out.peer = for_receiver(pair, packet, at, (end - at) as u32);
}
