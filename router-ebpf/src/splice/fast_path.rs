//! Which packets are forwarded as they are, but for their numbers.
//!
//! An XDP program sees packets before the `tc` programs, and can neither copy nor deliver them. It
//! takes the packets named here, and decides by [`translate`](super::translate) like everybody else;
//! all others go on to the `tc` program with nothing changed. What is repeated is left to it as
//! well: should a driver lose what XDP sends, the repetition still arrives.

use super::{
    packet::{Packet, flag},
    state::{Pair, UNKNOWN, mode},
};

/// Not in the middle of a stream.
const SPECIAL: u8 = flag::SYN | flag::FIN | flag::RST | flag::URG;

/// Whether a packet of the source is new data within the spliced range, and not its end. Such a packet
/// is forwarded with no event, if it can be parsed where that is asked for
/// ([`Splice::look`](super::state::Splice::look)) and does not complete the body.
#[inline(always)]
pub fn from_source(pair: &Pair, packet: &Packet) -> bool {
    if pair.mode() != mode::LIVE || packet.len == 0 || !plain(packet) || !pair.accepts(packet.ack) {
        return false;
    }
    let splice = &pair.splice;
    let at = splice.position(packet.seq);
    let end = at + packet.len as i64;
    if at < splice.forwarded as i64 || end > splice.promised {
        return false;
    }
    if splice.length == UNKNOWN { at == splice.parsed as i64 } else { end < splice.length as i64 }
}

/// Whether a packet of the receiver acknowledges something new and says nothing else, while the
/// source's socket and the receiver's wait for nothing. Such a packet is forwarded with no event.
#[inline(always)]
pub fn from_receiver(pair: &Pair, packet: &Packet) -> bool {
    if pair.mode() != mode::LIVE || packet.len != 0 || !plain(packet) || pair.receiver.asks != 0 {
        return false;
    }
    let at = pair.splice.ack_position(packet.ack);
    at > pair.splice.acked as i64 && at <= pair.splice.forwarded as i64
}

#[inline(always)]
const fn plain(packet: &Packet) -> bool {
    packet.flags & (SPECIAL | flag::ACK) == flag::ACK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        framing::Framing,
        splice::{
            seq,
            state::Socket,
            translate::{ingress_from_receiver, ingress_from_source},
            verdict::Action,
        },
    };
    use proptest::prelude::*;

    fn pair(length: u64) -> Pair {
        let source = Socket { next: 50, own_window: 1000, own_edge: 1100, ..Socket::default() };
        let receiver = Socket { peer_edge: 9000, own_ack: 70, ..Socket::default() };
        let mut pair = Pair::new(source, receiver, 1, 100);
        pair.word = pair.prepare(100, 500, length, Framing::chunked()).unwrap().1;
        pair.receiver.asks = 0;
        pair
    }

    proptest! {
        /// What is taken is forwarded whole, without an event; what changes the state in another way
        /// is not taken.
        #[test]
        fn what_is_taken_is_forwarded(
            length in prop_oneof![Just(UNKNOWN), 1u64..900],
            asks in 0u32..4,
            packets in proptest::collection::vec(
                (any::<bool>(), 0i64..900, 0u32..300, 0u8..=255, 0u32..4, 0u32..80), 1..60),
        ) {
            let mut pair = pair(length);
            pair.receiver.asks = u32::from(asks == 0);
            for (source, at, len, flags, usual, ack) in packets {
                let flags = if usual > 0 { flag::ACK } else { flags };
                let position = if usual > 1 { pair.splice.forwarded as i64 } else { at };
                let before = pair;
                if source {
                    let seq = seq::shift(100, position);
                    let packet = Packet { seq, ack, len, flags, window: 9, ..Packet::default() };
                    let taken = from_source(&pair, &packet);
                    if length == UNKNOWN && (taken || position == pair.splice.parsed as i64) {
                        // As if it had been parsed.
                        pair.splice.parsed += u64::from(len);
                    }
                    let verdict = ingress_from_source(&mut pair, &packet);
                    if taken {
                        let Action::Forward(peer) = verdict.action else { panic!("{verdict:?}") };
                        prop_assert_eq!((peer.len, verdict.events), (len, 0));
                        prop_assert_eq!(peer.seq, seq::shift(500, position));
                        prop_assert_eq!(pair.mode(), mode::LIVE);
                        prop_assert!(pair.splice.forwarded > before.splice.forwarded);
                    }
                } else {
                    let packet = Packet {
                        seq: 70, ack: seq::shift(500, position), len: len / 290, flags, window: 1000,
                        ..Packet::default()
                    };
                    let taken = from_receiver(&pair, &packet);
                    let verdict = ingress_from_receiver(&mut pair, &packet);
                    if taken {
                        let Action::Forward(peer) = verdict.action else { panic!("{verdict:?}") };
                        prop_assert_eq!((peer.len, verdict.events), (0, 0));
                        prop_assert_eq!(peer.ack, seq::shift(100, position));
                        prop_assert!(pair.splice.acked > before.splice.acked);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_usual_is_taken() {
        let mut pair = pair(1000);
        let data = Packet { seq: 100, ack: 50, len: 20, flags: flag::ACK, ..Packet::default() };
        assert!(from_source(&pair, &data));
        ingress_from_source(&mut pair, &data);
        assert!(!from_source(&pair, &data), "a repetition");
        let ack = Packet { seq: 70, ack: 520, flags: flag::ACK, window: 9000, ..Packet::default() };
        assert!(from_receiver(&pair, &ack));
        ingress_from_receiver(&mut pair, &ack);
        assert!(!from_receiver(&pair, &ack), "a repetition");
        pair.splice.promised = 5000;
        let last = Packet { seq: 120, len: 980, ..data };
        assert!(!from_source(&pair, &last), "the end");
        assert!(from_source(&pair, &Packet { len: 979, ..last }));
    }
}
