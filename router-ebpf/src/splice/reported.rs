//! Whom an error report of a router concerns.
//!
//! A router that cannot pass a packet on sends its beginning back (ICMP), in the numbers that it had
//! there. Whoever sent it finds its connection and judges the report by them.

use super::state::{Pair, mode};

/// Who sent a packet towards the receiver, and its number for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The receiver's socket.
    Socket(u32),
    /// The source.
    Source(u32),
}

impl Pair {
    /// Who sent the receiver the packet that begins with this number.
    #[inline(always)]
    pub const fn reported(&self, number: u32) -> Reported {
        let splice = &self.splice;
        if self.mode() != mode::LIVE && self.mode() != mode::DRAIN {
            return Reported::Socket(number.wrapping_sub(self.receiver.tx));
        }
        let position = splice.ack_position(number);
        if position >= 0 && position < splice.forwarded as i64 {
            return Reported::Source(splice.h.wrapping_add(position as u32));
        }
        Reported::Socket(splice.in_receiver_socket(position))
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
        assert_eq!(pair.reported(550), Reported::Socket(500));
        pair.prepare(100, 1000, 200, Framing::none()).unwrap();
        pair.word = super::super::state::word::with_mode(pair.word, mode::LIVE);
        pair.splice.forwarded = 150;
        assert_eq!(pair.reported(900), Reported::Socket(850), "before the splice");
        assert_eq!(pair.reported(1000), Reported::Source(100));
        assert_eq!(pair.reported(1149), Reported::Source(249));
        assert_eq!(pair.reported(1150), Reported::Socket(950), "a bare one");
        assert!(pair.stop());
        assert_eq!(pair.mode(), mode::DRAIN);
        assert_eq!(pair.reported(1149), Reported::Source(249));
        assert_eq!(pair.reported(1160), Reported::Socket(960), "behind it");
        assert_eq!(pair.reported(999), Reported::Socket(949));
    }
}
