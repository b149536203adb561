//! What a program knows of the packet that it is at, and what is to become of it.

use core::mem::offset_of;

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::splice::{layout::Flow, options::Options, packet::Packet, verdict::Outcome};

use crate::headers::Header;

/// What becomes of a packet.
pub(super) mod plan {
    /// Nothing.
    pub(crate) const DROP: u32 = 0;
    /// On its way, as the outcome says for the socket.
    pub(crate) const PASS: u32 = 1;
    /// To the other peer.
    pub(crate) const FORWARD: u32 = 2;
    /// Back to its sender.
    pub(crate) const TURN_ROUND: u32 = 3;
    /// On its way, and as the outcome says to the other peer.
    pub(crate) const SPLIT: u32 = 4;
    /// Once more to where it came from, behind what has arrived meanwhile.
    pub(crate) const WAIT: u32 = 5;
}

/// What a packet is.
pub(super) mod kind {
    /// Not usual, or not looked at.
    pub(crate) const OTHER: u32 = 0;
    /// Without options.
    pub(crate) const PLAIN: u32 = 1;
    /// With timestamps.
    pub(crate) const STAMPED: u32 = 2;
}

/// Room for the payload of a packet that is cut, for whatever its mask lets through, and for the zeros behind it.
const MAX_CUT_BYTES: usize = 520;

/// What a program works on.
#[repr(C)]
pub(super) struct Work {
    /// Whose packet it is.
    pub(super) flow: Flow,
    /// See [`kind`].
    pub(super) kind: u32,
    /// Not zero: IPv6.
    pub(super) six: u32,
    /// Offset of the TCP header.
    pub(super) at: u32,
    /// Its length.
    pub(super) header: u32,
    /// See [`plan`].
    pub(super) plan: u32,
    /// The element of the other peer's connection.
    pub(super) other: u32,
    /// Not zero: the way to the other peer is to be noted on it.
    pub(super) notes: u32,
    /// Not zero: `link` is the way to the other peer.
    pub(super) linked: u32,
    pub(super) link: [u32; 3],
    /// How often it has [waited](super::reorder), as its mark says it.
    pub(super) turns: u32,
    /// Addresses and ports of the packet: its source first.
    pub(super) addresses: [u32; 8],
    pub(super) ports: [u16; 2],
    pub(super) old: Header,
    pub(super) new: Header,
    pub(super) pseudo: [u32; 10],
    pub(super) new_pseudo: [u32; 10],
    pub(super) options: Options,
    /// What is left of the payload of a packet that is cut.
    pub(super) rest: [u8; MAX_CUT_BYTES],
    /// The packet as it came.
    pub(super) packet: Packet,
    /// What becomes of it.
    pub(super) outcome: Outcome,
}

impl Work {
    /// Takes the flow from addresses and ports: the packet arrives, or leaves.
    #[inline(always)]
    pub(super) fn set_flow(&mut self, arrives: bool) {
        let [a, b, c, d, e, f, g, h] = self.addresses;
        let [source, destination] = self.ports;
        self.flow = if arrives {
            Flow { local: [e, f, g, h], remote: [a, b, c, d], ports: [destination, source] }
        } else {
            Flow { local: [a, b, c, d], remote: [e, f, g, h], ports: self.ports }
        };
    }

    /// Offset of the payload.
    #[inline(always)]
    pub(super) fn payload(&self) -> u32 {
        self.at + self.header
    }
}

const _: () = assert!(offset_of!(Work, flow) == 0);

/// Copies bytes of a packet. False when it does not have them.
#[inline(always)]
pub(super) unsafe fn load<T>(skb: *mut __sk_buff, at: u32, to: *mut T) -> bool {
    // SAFETY: the helper writes as many bytes as `to` has.
    unsafe { raw::bpf_skb_load_bytes(skb.cast(), at, to.cast(), size_of::<T>() as u32) == 0 }
}
