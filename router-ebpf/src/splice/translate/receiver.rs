//! Packets that arrive from the receiver.

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
    window,
};

/// A packet that arrives from the receiver.
pub fn ingress_from_receiver(pair: &mut Pair, packet: &Packet) -> Verdict {
    let mut outcome = Outcome::default();
    from_receiver(pair, packet, &mut outcome);
    (&outcome).into()
}

/// As [`ingress_from_receiver`], in place.
#[inline(always)]
pub fn from_receiver(pair: &mut Pair, packet: &Packet, out: &mut Outcome) {
    out.events = 0;
    out.plan = Plan::Pass;
    if pair.mode() == mode::DEAD {
        out.socket = *packet;
        return;
    }
    let closing = if packet.has(flag::FIN | flag::RST) { event::RECEIVER_CLOSED } else { 0 };
    out.events = closing;
    if pair.mode() == mode::PASS || packet.has(flag::SYN) || !packet.has(flag::ACK) {
        out.socket = ingress_at_rest(&mut pair.receiver, packet);
        return;
    }
    let forwarded = pair.splice.forwarded as i64;
    let at = pair.splice.ack_position(packet.ack);
    let seq = packet.seq.wrapping_sub(pair.receiver.rx);
    let socket_ack = pair.splice.in_receiver_socket(at);
    out.socket = for_socket(&pair.receiver, packet, seq, socket_ack, Sack::default());
    if packet.has(flag::RST) {
        return;
    }
    if at > forwarded {
        out.events = 0;
        out.plan = Plan::Drop;
        return;
    }
    observe_peer(&mut pair.receiver, packet);
    let edge = at + window::bytes(packet.window, pair.receiver.scale_peer);
    let moved = edge > pair.splice.edge || at > pair.splice.acked as i64;
    if edge > pair.splice.edge {
        pair.splice.edge = edge;
    }
    let splice = &pair.splice;
    let blocks = &mut out.socket.sack;
    packet.sack.cut_into(blocks, splice.a, 0, i32::MIN as i64, 0, splice.a_socket);
    if at < 0 {
        return;
    }
    if at > pair.splice.acked as i64 {
        pair.splice.acked = at as u64;
    }
    let splice = &mut pair.splice;
    let source = &mut pair.source;
    let timestamps = restamp(&packet.timestamps, |stamp| {
        let (floor, last) = (&mut source.ts_floor, source.ts_last);
        let value = timestamps::forwarded(stamp.value, splice.ts_back, floor, last);
        source.ts_last = seq::later(source.ts_last, value);
        let oldest = &mut splice.oldest_source;
        let echo = timestamps::echo(stamp.echo, splice.ts_forth, oldest, source.ts_peer);
        Timestamps { value, echo }
    });
    let bare = packet.len == 0 && !packet.has(flag::FIN);
    out.peer = acknowledge(pair, timestamps, Sack::default());
    let splice = &pair.splice;
    let base = seq::shift(splice.a, forwarded);
    packet.sack.cut_into(&mut out.peer.sack, base, forwarded, 0, forwarded, splice.h);
    // An old acknowledgement stays one: the source counts repetitions.
    out.peer.ack = seq::shift(pair.splice.h, at);
    out.peer.window = pair.window_for_source(at);
    out.peer.flags |= packet.flags & flag::ECE;
    if bare && packet.seq.wrapping_add(1) == pair.receiver.own_ack {
        out.peer.seq = out.peer.seq.wrapping_sub(1);
    }
    if pair.mode() == mode::DRAIN && at == pair.splice.length as i64 {
        // The last of this splice: from here on, the permanent offsets do it all.
        pair.word = word::with_mode(pair.word, mode::PASS);
        pair.receiver.asks = 0;
        pair.source.own_edge = seq::shift(pair.splice.h, pair.splice.promised);
        out.plan = Plan::SplitAndQuiet;
        out.events = event::QUIET | closing;
        return;
    }
    out.plan = if bare && pair.receiver.asks == 0 {
        Plan::Forward
    } else if bare || moved {
        pair.receiver.asks = 0;
        Plan::Split
    } else {
        Plan::Pass
    };
}
