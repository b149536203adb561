//! Whom an ICMP error concerns.
//!
//! A router that cannot pass a packet on returns its beginning (RFC 792, RFC 4443), with the sequence
//! numbers that it had there. Its sender finds the connection by them, and judges the error.

use super::state::{Pair, mode};

/// Who sent a packet towards the receiver, and its number for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The receiver's socket.
    Socket(u32),
    /// The source.
    Source(u32),
}

impl Pair {
    /// Who sent the receiver the packet that begins with this number.
    #[inline(always)]
    pub const fn sender_of(&self, number: u32) -> Sender {
        let splice = &self.splice;
        if self.mode() != mode::LIVE && self.mode() != mode::DRAIN {
            return Sender::Socket(number.wrapping_sub(self.receiver.tx));
        }
        let position = splice.ack_position(number);
        if position >= 0 && position < splice.forwarded as i64 {
            return Sender::Source(splice.h.wrapping_add(position as u32));
        }
        Sender::Socket(splice.in_receiver_socket(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{framing::Framing, splice::state::Socket};

    #[test]
    fn the_one_who_sent_it() {
        let mut pair = Pair::new(Socket::default(), Socket::default(), 1, 100);
        pair.receiver.tx = 50;
        (pair.receiver.peer_edge, pair.source.own_edge) = (2000, 300);
        assert_eq!(pair.sender_of(550), Sender::Socket(500));
        pair.prepare(100, 1000, 200, Framing::none()).unwrap();
        pair.word = super::super::state::word::with_mode(pair.word, mode::LIVE);
        pair.splice.forwarded = 150;
        assert_eq!(pair.sender_of(900), Sender::Socket(850), "before the splice");
        assert_eq!(pair.sender_of(1000), Sender::Source(100));
        assert_eq!(pair.sender_of(1149), Sender::Source(249));
        assert_eq!(pair.sender_of(1150), Sender::Socket(950), "a bare one");
        assert!(pair.stop());
        assert_eq!(pair.mode(), mode::DRAIN);
        assert_eq!(pair.sender_of(1149), Sender::Source(249));
        assert_eq!(pair.sender_of(1160), Sender::Socket(960), "behind it");
        assert_eq!(pair.sender_of(999), Sender::Socket(949));
    }
}
