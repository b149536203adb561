//! Which packets go where, and with which numbers.
//!
//! The tables of `docs/splice.md`, one function per hook. Each takes the pair and a packet's header,
//! changes the pair, and says where the packet goes and with which numbers.

mod at_rest;
mod receiver;
mod socket;
mod source;
#[cfg(test)]
mod tests;

pub use at_rest::{egress_at_rest, ingress_at_rest};
pub use receiver::{from_receiver, ingress_from_receiver};
pub use socket::{egress, from_socket};
pub use source::{from_source, ingress_from_source};

use super::{
    options::Sack,
    packet::{Packet, flag},
    seq,
    state::Pair,
    timestamps::Timestamps,
};

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
