//! Packets of a connection that is not spliced, and what those of every state have in common.

use crate::splice::{
    options::Sack,
    packet::{Packet, flag},
    seq,
    state::Socket,
    timestamps::{self, Timestamps},
    window,
};

/// Other timestamps, where there are any. In place: a copy of none would be a copy of what was never
/// written, which the kernel's verifier does not allow.
#[inline(always)]
pub(super) fn restamp(
    old: &Option<Timestamps>,
    change: impl FnOnce(Timestamps) -> Timestamps,
) -> Option<Timestamps> {
    let mut new = *old;
    if let Some(stamp) = &mut new {
        *stamp = change(*stamp);
    }
    new
}

/// Notes what a peer's packet says, whoever gets it.
#[inline(always)]
pub(super) fn observe_peer(socket: &mut Socket, packet: &Packet) {
    if let Some(stamp) = packet.timestamps {
        socket.ts_peer = seq::later(socket.ts_peer, stamp.value);
    }
    if packet.has(flag::ACK) {
        let edge = seq::shift(packet.ack, window::bytes(packet.window, socket.scale_peer));
        socket.peer_edge = seq::later(socket.peer_edge, edge);
    }
}

/// A packet of a peer as its socket is to get it, but for what `seq`, `ack` and `sack` say.
#[inline(always)]
pub(super) fn for_socket(
    socket: &Socket,
    packet: &Packet,
    seq: u32,
    ack: u32,
    sack: Sack,
) -> Packet {
    let timestamps = restamp(&packet.timestamps, |stamp| Timestamps {
        value: stamp.value,
        echo: timestamps::own_echo(stamp.echo, socket.ts_offset, socket.ts_own),
    });
    Packet { seq, ack, sack, timestamps, ..*packet }
}

/// A packet of a peer whose connection is not spliced.
#[inline(always)]
pub fn ingress_at_rest(socket: &mut Socket, packet: &Packet) -> Packet {
    if !packet.has(flag::SYN | flag::RST) {
        observe_peer(socket, packet);
    }
    let seq = packet.seq.wrapping_sub(socket.rx);
    let ack = packet.ack.wrapping_sub(socket.tx);
    for_socket(socket, packet, seq, ack, packet.sack.shifted(0u32.wrapping_sub(socket.tx)))
}

/// Notes what a socket says, by the packet as it goes to the wire.
#[inline(always)]
pub(super) fn observe_own(socket: &mut Socket, wire: &Packet) {
    let fresh = seq::before(socket.number, wire.seq) || seq::before(socket.own_ack, wire.ack);
    socket.number = seq::later(socket.number, wire.seq);
    socket.next = seq::later(socket.next, wire.end());
    if wire.has(flag::ACK) && !wire.has(flag::RST) {
        socket.own_ack = wire.ack;
        socket.own_window = wire.window;
        let edge = seq::shift(wire.ack, window::bytes(wire.window, socket.scale_own));
        // What has a higher number, or acknowledges more, is believed, also when its window is smaller.
        socket.own_edge = if fresh { edge } else { seq::later(socket.own_edge, edge) };
    }
}

/// The timestamps of a packet that a socket sends. Its own values, moved, so that an echo tells it which of
/// its packets has arrived: it would take an older one for that of a packet that it repeats without need.
#[inline(always)]
pub(super) fn stamp_own(socket: &mut Socket, packet: &Packet) -> Option<Timestamps> {
    restamp(&packet.timestamps, |stamp| {
        socket.ts_own = stamp.value;
        let value = timestamps::own(stamp.value, &mut socket.ts_offset, &mut socket.ts_last);
        socket.ts_floor = value;
        Timestamps { value, echo: stamp.echo }
    })
}

/// A packet of a socket whose connection is not spliced.
#[inline(always)]
pub fn egress_at_rest(socket: &mut Socket, packet: &Packet) -> Packet {
    let timestamps = stamp_own(socket, packet);
    let mut wire = Packet {
        seq: packet.seq.wrapping_add(socket.tx),
        ack: packet.ack.wrapping_add(socket.rx),
        sack: packet.sack.shifted(socket.rx),
        window: window::at_most(packet.window, socket.limit, socket.scale_own),
        timestamps,
        ..*packet
    };
    if socket.doubt != 0
        && wire.len != 0
        && seq::distance(wire.seq, socket.peer_edge) < wire.len as i64
    {
        // Beyond what the peer takes. It is asked what that is; the socket repeats the data.
        wire.seq = wire.seq.wrapping_sub(1);
        wire.len = 0;
        wire.flags &= !(flag::FIN | flag::PSH);
    }
    observe_own(socket, &wire);
    wire
}
