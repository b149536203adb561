//! Reading packets and changing them.

use core::mem::offset_of;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_PSEUDO_HDR},
    helpers::generated as raw,
};
use router_ebpf::splice::{
    layout::{Conn, Flow},
    options::Options,
    timestamps::Timestamps,
    translate::{Outcome, Packet},
};

use super::{
    DROP, MARK, NEXT, NOTE, SENT, conn,
    usual::{self, kind},
};
use crate::headers::{
    self, CHECKSUM, ETHERNET, FIXED, FRAGMENT, Header, IPV4, IPV6, MAPPED, TCP, bounded, fold,
    is_partial, pseudo_sum,
};

const HOP_BY_HOP: u8 = 0;
/// The option that holds a length (RFC 2675).
const JUMBO: u8 = 0xc2;
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

/// What a program works on.
#[repr(C)]
pub(super) struct Work {
    /// Whose packet it is.
    pub(super) flow: Flow,
    /// See [`usual::kind`].
    pub(super) usual: u32,
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
    /// How often it has [waited](super::wait), as its mark says it.
    pub(super) turns: u32,
    /// Addresses and ports of the packet: its source first.
    pub(super) addresses: [u32; 8],
    pub(super) ports: [u16; 2],
    pub(super) old: Header,
    pub(super) new: Header,
    pseudo: [u32; 10],
    new_pseudo: [u32; 10],
    options: Options,
    /// What is left of the payload of a packet that is cut.
    rest: [u8; REST],
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

/// The most payload that a packet has which is cut, in bytes.
const KEPT: u32 = 508;
/// Room for it, for whatever its mask lets through, and for the zeros behind it.
const REST: usize = 520;

#[inline(always)]
pub(super) unsafe fn load<T>(skb: *mut __sk_buff, at: u32, to: *mut T) -> bool {
    // SAFETY: the helper writes as many bytes as `to` has.
    unsafe { raw::bpf_skb_load_bytes(skb.cast(), at, to.cast(), size_of::<T>() as u32) == 0 }
}

/// Reads the headers but for the TCP options. False when it is no TCP segment that could be of a
/// spliced connection: fragments, extension headers and tagged frames are not.
#[inline(always)]
pub(super) fn read(skb: *mut __sk_buff, work: *mut Work, arrives: bool) -> bool {
    usual::read(skb, work, arrives) || read_copy(skb, work, arrives)
}

/// As [`read`], by copies.
#[inline(always)]
fn read_copy(skb: *mut __sk_buff, work: *mut Work, arrives: bool) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let protocol = (*skb).protocol as u16;
        if (*skb).vlan_present != 0 || protocol != IPV4 && protocol != IPV6 {
            return false;
        }
        let w = &mut *work;
        let segment;
        if protocol == IPV4 {
            let mut ip = [0u8; 20];
            if !load(skb, ETHERNET, &raw mut ip) {
                return false;
            }
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT;
            if ip[9] != TCP || fragment != 0 || ip[0] >> 4 != 4 {
                return false;
            }
            // An aggregate may be longer than the field can say; it is zero then.
            let length = match u16::from_be_bytes([ip[2], ip[3]]) {
                0 => (*skb).len.wrapping_sub(ETHERNET),
                length => length as u32,
            };
            let header = (ip[0] & 15) as u32 * 4;
            if header < 20 || length < header + FIXED {
                return false;
            }
            let source = u32::from_ne_bytes([ip[12], ip[13], ip[14], ip[15]]);
            let destination = u32::from_ne_bytes([ip[16], ip[17], ip[18], ip[19]]);
            w.addresses = [0, 0, MAPPED, source, 0, 0, MAPPED, destination];
            w.six = 0;
            w.at = ETHERNET + header;
            segment = length - header;
        } else {
            let mut start = [0u8; 8];
            if !load(skb, ETHERNET, &raw mut start) || start[0] >> 4 != 6 {
                return false;
            }
            w.at = ETHERNET + 40;
            let length = u16::from_be_bytes([start[4], start[5]]) as u32;
            if start[6] == HOP_BY_HOP && length == 0 {
                // An aggregate that is longer than the field can say: its length is in an option.
                let mut jumbo = [0u8; 8];
                if !load(skb, w.at, &raw mut jumbo) || jumbo[0] != TCP || jumbo[2] != JUMBO {
                    return false;
                }
                w.at += 8;
            } else if start[6] != TCP {
                return false;
            }
            if !load(skb, ETHERNET + 8, &raw mut w.addresses) {
                return false;
            }
            segment = if length == 0 { (*skb).len.wrapping_sub(w.at) } else { length };
            w.six = 1;
        }
        if raw::bpf_skb_load_bytes(skb.cast(), w.at, (&raw mut w.old).cast(), FIXED) != 0 {
            return false;
        }
        w.header = headers::length(&w.old);
        if w.header < FIXED || segment < w.header {
            return false;
        }
        w.ports = headers::ports(&w.old);
        w.set_flow(arrives);
        w.packet.len = segment - w.header;
        headers::read(&w.old, &mut w.packet);
        true
    }
}

/// Reads the TCP options. False when they are malformed.
#[inline(always)]
pub(super) fn read_options(skb: *mut __sk_buff, work: *mut Work) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        if w.usual != kind::OTHER {
            return true;
        }
        w.options = Options::default();
        w.packet.timestamps = None;
        w.packet.sack.count = 0;
        let header = w.header;
        if header <= FIXED {
            return true;
        }
        let header = bounded(header);
        if header < FIXED {
            return false;
        }
        if raw::bpf_skb_load_bytes(skb.cast(), w.at, (&raw mut w.old).cast(), header) != 0 {
            return false;
        }
        headers::read_options(&raw mut w.old, header, &raw mut w.options, &raw mut w.packet)
    }
}

/// Lets a packet go on as the outcome says for the socket.
#[inline(always)]
pub(super) fn pass<const IN_PLACE: bool>(skb: *mut __sk_buff, work: *mut Work) -> i32 {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let out = &raw const (*work).outcome.socket;
        if (*work).plan == plan::PASS && same(&(*work).packet, &*out) {
            return NEXT;
        }
        if apply::<IN_PLACE>(skb, work, out, core::ptr::null(), None) { NEXT } else { DROP }
    }
}

/// Whether a packet stays as it is. The blocks of SACK are not looked at: they change with the
/// acknowledgement alone, or in their number.
#[inline(always)]
fn same(a: &Packet, b: &Packet) -> bool {
    let stamps = match (a.timestamps, b.timestamps) {
        (Some(Timestamps { value, echo }), Some(other)) => {
            value == other.value && echo == other.echo
        }
        _ => true,
    };
    stamps
        && a.seq == b.seq
        && a.ack == b.ack
        && a.len == b.len
        && a.window == b.window
        && a.flags == b.flags
        && a.sack.count == b.sack.count
        && (a.sack.count == 0 || a.sack.blocks[0].left == b.sack.blocks[0].left)
}

/// Sends a packet that arrived on, to the peer of `other`, as the outcome says.
///
/// # Safety
/// `other` must point to an element.
#[inline(always)]
pub(super) unsafe fn forward(skb: *mut __sk_buff, work: *mut Work, other: *mut Conn) -> i32 {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let (w, to) = (&mut *work, &raw const (*other).flow);
        let (oif, link, linked) = ((*other).oif, w.link, w.linked != 0);
        let out = &raw const w.outcome.peer;
        if !apply::<true>(skb, work, out, to, if linked { Some(&link) } else { None }) {
            return DROP;
        }
        if !linked {
            return send(skb, oif, if (*work).notes != 0 { SENT | NOTE } else { SENT });
        }
        (*skb).mark = MARK.load() | SENT;
        raw::bpf_redirect(oif, 0) as i32
    }
}

/// Sends a packet that arrived back to the peer of `own`, as the outcome says for the socket.
///
/// # Safety
/// `own` must point to an element.
#[inline(always)]
pub(super) unsafe fn turn_round(skb: *mut __sk_buff, work: *mut Work, own: *mut Conn) -> i32 {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let out = &raw const (*work).outcome.socket;
        if !apply::<true>(skb, work, out, &raw const (*own).flow, None) {
            return DROP;
        }
        send(skb, (*own).oif, SENT)
    }
}

/// Sends the copy of a packet to the other peer, as the outcome says.
#[inline(always)]
pub(super) fn forward_copy(skb: *mut __sk_buff, work: *mut Work) -> i32 {
    // SAFETY: the work is this CPU's alone: the copy is looked at before the program for the
    // original goes on. Flows of elements do not change.
    unsafe {
        let Some(other) = conn((*work).other) else { return DROP };
        let out = &raw const (*work).outcome.peer;
        if !apply::<false>(skb, work, out, &raw const (*other).flow, None) {
            return DROP;
        }
        send(skb, (*other).oif, SENT)
    }
}

#[inline(always)]
pub(super) unsafe fn send(skb: *mut __sk_buff, oif: u32, mark: u32) -> i32 {
    // SAFETY: writes the context.
    unsafe {
        (*skb).mark = MARK.load() | mark;
        raw::bpf_redirect_neigh(oif, core::ptr::null_mut(), 0, 0) as i32
    }
}

/// Changes a packet to what `to` says, and its addresses and ports to those of `flow`, unless that is null; and its Ethernet
/// addresses to `link`.
///
/// `IN_PLACE`: a usual one is changed where it is. A program that does so has each packet's headers made its own
/// before it looks at them.
#[inline(always)]
unsafe fn apply<const IN_PLACE: bool>(
    skb: *mut __sk_buff,
    work: *mut Work,
    to: *const Packet,
    flow: *const Flow,
    link: Option<&[u32; 3]>,
) -> bool {
    // SAFETY: the work is this CPU's alone; the flow is an element's, which does not change.
    unsafe {
        let w = &mut *work;
        if IN_PLACE && w.usual != kind::OTHER && (*to).len == w.packet.len {
            let flow = if flow.is_null() { None } else { Some(&*flow) };
            return usual::write(skb, w, &*to, flow, link);
        }
        if !apply_copy(skb, work, to, flow) {
            return false;
        }
        match link {
            Some(link) => raw::bpf_skb_store_bytes(skb, 0, link.as_ptr().cast(), 12, 0) == 0,
            None => true,
        }
    }
}

/// As [`apply`], by copies.
#[inline(never)]
fn apply_copy(skb: *mut __sk_buff, work: *mut Work, to: *const Packet, flow: *const Flow) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let to = &*to;
        let header = bounded(w.header);
        if header < FIXED {
            return false;
        }
        if w.usual != kind::OTHER {
            // It has not been copied yet.
            if raw::bpf_skb_load_bytes(skb.cast(), w.at, (&raw mut w.old).cast(), header) != 0 {
                return false;
            }
            w.options = Options::stamped(w.packet.timestamps);
        }
        let cut = to.len < w.packet.len;
        // Of a repetition that lies across the end, as much as any receiver takes in one segment: what is
        // cut is no aggregate any more. The source repeats the rest.
        let kept = if cut && to.len > KEPT { KEPT } else { to.len };
        w.new = w.old;
        // The pseudo header: addresses and length.
        w.pseudo = [0; 10];
        w.new_pseudo = [0; 10];
        let mut i = 0;
        while i < 8 {
            w.pseudo[i] = w.addresses[i];
            w.new_pseudo[i] = w.addresses[i];
            i += 1;
        }
        w.pseudo[8] = (w.packet.len + header).to_be();
        w.new_pseudo[8] = (kept + header).to_be();
        if !flow.is_null() {
            let flow = &*flow;
            headers::write_ports(&mut w.new, flow.ports);
            let mut i = 0;
            while i < 4 {
                w.new_pseudo[i] = flow.local[i];
                w.new_pseudo[i + 4] = flow.remote[i];
                i += 1;
            }
        }
        headers::write(&mut w.new, &w.options, to);

        let complete = !cut || is_partial(&w.old, &raw mut w.pseudo);
        if cut {
            if raw::bpf_skb_change_tail(skb, w.at + header + kept, 0) != 0 {
                return false;
            }
            set_length(skb, w, header + kept);
        }
        if !complete {
            // The checksum of what is left, from nothing.
            w.new[16] = 0;
            w.new[17] = 0;
            let sum = pseudo_sum(&raw mut w.new_pseudo);
            let sum =
                raw::bpf_csum_diff(core::ptr::null_mut(), 0, (&raw mut w.new).cast(), header, sum)
                    as u32;
            let Some(sum) = with_payload(skb, w, kept, sum) else { return false };
            let [a, b] = (!fold(sum)).to_ne_bytes();
            w.new[16] = a;
            w.new[17] = b;
        }
        if raw::bpf_skb_store_bytes(skb, w.at, (&raw const w.new).cast(), header, 0) != 0 {
            return false;
        }
        if complete {
            let (old, new) = ((&raw mut w.old).cast(), (&raw mut w.new).cast());
            let diff = raw::bpf_csum_diff(old, header, new, header, 0);
            raw::bpf_l4_csum_replace(skb, w.at + CHECKSUM, 0, diff as u64, 0);
            if cut || !flow.is_null() {
                let (old, new) = ((&raw mut w.pseudo).cast(), (&raw mut w.new_pseudo).cast());
                let diff = raw::bpf_csum_diff(old, 36, new, 36, 0);
                let flags = BPF_F_PSEUDO_HDR as u64;
                raw::bpf_l4_csum_replace(skb, w.at + CHECKSUM, 0, diff as u64, flags);
            }
        }
        if !flow.is_null() {
            store_addresses(skb, w);
        }
        true
    }
}

/// Adds what is left of the payload, [`KEPT`] bytes at most.
#[inline(always)]
unsafe fn with_payload(skb: *mut __sk_buff, w: &mut Work, kept: u32, sum: u32) -> Option<u32> {
    if kept == 0 {
        return Some(sum);
    }
    // SAFETY: the rest has room for what the masks let through, and for the zeros behind it.
    unsafe {
        let mut length = kept as u64;
        core::arch::asm!("{r} &= 511", r = inout(reg) length, options(nomem, nostack));
        if length == 0 {
            return None;
        }
        let rest = (&raw mut w.rest).cast::<u8>();
        let at = w.at + w.header;
        if raw::bpf_skb_load_bytes(skb.cast(), at, rest.cast(), length as u32) != 0 {
            return None;
        }
        // Whole words are added.
        let behind = rest.wrapping_add(length as usize);
        *behind = 0;
        *behind.wrapping_add(1) = 0;
        *behind.wrapping_add(2) = 0;
        let mut words = length + 3;
        core::arch::asm!("{r} &= 508", r = inout(reg) words, options(nomem, nostack));
        Some(raw::bpf_csum_diff(core::ptr::null_mut(), 0, rest.cast(), words as u32, sum) as u32)
    }
}

/// Sets the length in the IP header, for a segment of `segment` bytes that was longer before.
#[inline(always)]
unsafe fn set_length(skb: *mut __sk_buff, w: &mut Work, segment: u32) {
    // SAFETY: the helpers check the offsets.
    unsafe {
        if w.six != 0 {
            let extension = w.at - ETHERNET - 40;
            if extension != 0 {
                // No longer too long for the field: padding instead of the option.
                let pad = [1u8, 4, 0, 0, 0, 0];
                raw::bpf_skb_store_bytes(skb, ETHERNET + 42, (&raw const pad).cast(), 6, 0);
            }
            let length = ((segment + extension) as u16).to_be();
            raw::bpf_skb_store_bytes(skb, ETHERNET + 4, (&raw const length).cast(), 2, 0);
            return;
        }
        let ip = w.at - ETHERNET;
        let old = w.packet.len + w.header + ip;
        let old = if old > u16::MAX as u32 { 0 } else { (old as u16).to_be() };
        let new = ((segment + ip) as u16).to_be();
        raw::bpf_skb_store_bytes(skb, ETHERNET + 2, (&raw const new).cast(), 2, 0);
        raw::bpf_l3_csum_replace(skb, ETHERNET + 10, old as u64, new as u64, 2);
    }
}

/// Stores the addresses of the new pseudo header.
#[inline(always)]
unsafe fn store_addresses(skb: *mut __sk_buff, w: &mut Work) {
    // SAFETY: the helpers check the offsets; the arrays are as long as the lengths say.
    unsafe {
        if w.six != 0 {
            let from = (&raw const w.new_pseudo).cast();
            raw::bpf_skb_store_bytes(skb, ETHERNET + 8, from, 32, 0);
            return;
        }
        let (old, new) = ((&raw mut w.pseudo).cast(), (&raw mut w.new_pseudo).cast());
        let diff = raw::bpf_csum_diff(old, 32, new, 32, 0);
        raw::bpf_l3_csum_replace(skb, ETHERNET + 10, 0, diff as u64, 0);
        let pair = [w.new_pseudo[3], w.new_pseudo[7]];
        raw::bpf_skb_store_bytes(skb, ETHERNET + 12, (&raw const pair).cast(), 8, 0);
    }
}

const _: () = assert!(offset_of!(Work, flow) == 0);
