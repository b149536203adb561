//! What is read from a packet's TCP header, and written to it.

use super::{options::Sack, seq, timestamps::Timestamps};

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
    pub(super) const fn has(&self, flags: u8) -> bool {
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
