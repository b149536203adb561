//! What is to be done with a packet, on each hook.
//!
//! The tables of `docs/splice.md`, one function per hook. Each takes the pair and a packet's header,
//! changes the pair, and says where the packet goes and with which numbers.

use super::{
    options::Sack,
    seq,
    state::{Pair, Socket, mode, word},
    timestamps::{self, Timestamps},
    window,
};

/// Bits of the flags byte of a TCP header.
pub mod flag {
    /// The sender has no more to send.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Aborts the connection.
    pub const RST: u8 = 4;
    /// The receiver should hand on what it has.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
    /// Urgent data: see RFC 6093.
    pub const URG: u8 = 32;
    /// The sender has met congestion, or its path (RFC 3168).
    pub const ECE: u8 = 64;
    /// The sender has slowed down (RFC 3168).
    pub const CWR: u8 = 128;
}

/// The fields of a packet that matter, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Sequence number of the first byte of payload.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bytes of payload. In an action: how many of the packet's first bytes are kept.
    pub len: u32,
    /// Window field, as it is in the header.
    pub window: u16,
    /// See [`flag`].
    pub flags: u8,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// The SACK option.
    pub sack: Sack,
}

impl Packet {
    #[inline(always)]
    const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Whether its sender has bytes ahead of what it waits for. (It may say as well what it has got twice:
    /// RFC 2883.)
    #[inline(always)]
    pub fn holds_ahead(&self) -> bool {
        let mut i = 0;
        while i < self.sack.blocks.len() {
            if i < self.sack.count as usize && seq::before(self.ack, self.sack.blocks[i].right) {
                return true;
            }
            i += 1;
        }
        false
    }

    /// A bare acknowledgement like this packet, with window zero.
    #[inline(always)]
    pub const fn closed_window(&self) -> Self {
        Self { len: 0, window: 0, flags: flag::ACK, ..*self }
    }

    /// The number after the payload and a FIN.
    #[inline(always)]
    pub const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len).wrapping_add((self.flags & flag::FIN) as u32)
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes nowhere.
    Drop,
    /// On its way, with these fields: to the socket at ingress, to the wire at egress.
    Pass(Packet),
    /// To the other peer.
    Forward(Packet),
    /// Back to the one who sent it, without payload.
    TurnRound(Packet),
    /// Both to the socket and, as a copy, to the other peer.
    Split {
        /// For the socket.
        socket: Packet,
        /// For the other peer.
        peer: Packet,
        /// The socket gets [`Packet::closed_window`] of its packet first: a smaller window that comes
        /// with nothing newly acknowledged is believed only after that.
        zero_window_first: bool,
    },
}

/// What happened, as bits.
pub mod event {
    /// The last byte was forwarded: the ticket is to be released.
    pub const ENDED: u8 = 1;
    /// Everything was acknowledged.
    pub const QUIET: u8 = 2;
    /// The source closed or reset its connection.
    pub const SOURCE_CLOSED: u8 = 4;
    /// The receiver closed or reset its connection.
    pub const RECEIVER_CLOSED: u8 = 8;
}

/// An [`Action`], and what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is to be done.
    pub action: Action,
    /// See [`event`].
    pub events: u8,
}

impl From<Action> for Verdict {
    #[inline(always)]
    fn from(action: Action) -> Self {
        Self { action, events: 0 }
    }
}

/// Which of an [`Outcome`]'s packets go where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Plan {
    /// As [`Action::Drop`].
    #[default]
    Drop,
    /// As [`Action::Pass`], with `socket`.
    Pass,
    /// As [`Action::Forward`], with `peer`.
    Forward,
    /// As [`Action::TurnRound`], with `socket`.
    TurnRound,
    /// As [`Action::Split`].
    Split,
    /// As [`Action::Split`], with the window of zero first.
    SplitAndQuiet,
}

/// A [`Verdict`] in a form that is written in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What is to be done.
    pub plan: Plan,
    /// See [`event`].
    pub events: u8,
    /// For the socket.
    pub socket: Packet,
    /// For the other peer.
    pub peer: Packet,
}

impl From<&Outcome> for Verdict {
    fn from(outcome: &Outcome) -> Self {
        let (socket, peer) = (outcome.socket, outcome.peer);
        let action = match outcome.plan {
            Plan::Drop => Action::Drop,
            Plan::Pass => Action::Pass(socket),
            Plan::Forward => Action::Forward(peer),
            Plan::TurnRound => Action::TurnRound(socket),
            Plan::Split => Action::Split { socket, peer, zero_window_first: false },
            Plan::SplitAndQuiet => Action::Split { socket, peer, zero_window_first: true },
        };
        Self { action, events: outcome.events }
    }
}

/// Which of the pair's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source's.
    Source,
    /// The receiver's.
    Receiver,
}

/// Other timestamps, where there are any. In place: a copy of none would be a copy of what was never
/// written, which the kernel's verifier does not allow.
#[inline(always)]
fn restamp(
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
fn observe_peer(socket: &mut Socket, packet: &Packet) {
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
fn for_socket(socket: &Socket, packet: &Packet, seq: u32, ack: u32, sack: Sack) -> Packet {
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
fn observe_own(socket: &mut Socket, wire: &Packet) {
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
fn stamp_own(socket: &mut Socket, packet: &Packet) -> Option<Timestamps> {
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

/// A bare acknowledgement to the source, as the receiver's state is now, stamped `timestamps`.
#[inline(always)]
fn acknowledge(pair: &mut Pair, timestamps: Option<Timestamps>, sack: Sack) -> Packet {
    let acked = pair.splice.acked as i64;
    Packet {
        seq: pair.source.next,
        ack: seq::shift(pair.splice.h, acked),
        len: 0,
        window: pair.window_for_source(acked),
        flags: flag::ACK,
        timestamps,
        sack,
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

/// A packet that arrives from the source.
///
/// With an unknown length, its payload is looked at first, if [`Pair::accepts`] it: see
/// [`Splice::look`](super::state::Splice::look).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Framing;
    use crate::splice::options::Block;

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
        let Action::Forward(peer) = ingress_from_receiver(&mut pair, &told).action else {
            panic!()
        };
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
}
