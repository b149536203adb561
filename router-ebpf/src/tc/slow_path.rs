//! Any packet, by copies of its headers.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_PSEUDO_HDR},
    helpers::generated as raw,
};
use router_ebpf::splice::{layout::Flow, options::Options, packet::Packet};

use super::work::{Work, kind, load};
use crate::headers::{
    self, CHECKSUM, ETHERNET, FIXED, FRAGMENT, IPV4, IPV6, MAPPED, TCP, bounded, fold, is_partial,
    pseudo_sum,
};

const HOP_BY_HOP: u8 = 0;
/// The option that holds a length (RFC 2675).
const JUMBO: u8 = 0xc2;
/// The most payload that a packet has which is cut, in bytes.
const MAX_KEPT_BYTES: u32 = 508;

/// Reads the headers but for the TCP options. False when it is no TCP segment that could be of a
/// spliced connection: fragments, extension headers and tagged frames are not.
#[inline(always)]
pub(super) fn read(skb: *mut __sk_buff, work: *mut Work, arrives: bool) -> bool {
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
        if w.kind != kind::OTHER {
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

/// Changes a packet to what `to` says, and its addresses and ports to those of `flow`, unless that is null.
#[inline(never)]
pub(super) fn apply(
    skb: *mut __sk_buff,
    work: *mut Work,
    to: *const Packet,
    flow: *const Flow,
) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let to = &*to;
        let header = bounded(w.header);
        if header < FIXED {
            return false;
        }
        if w.kind != kind::OTHER {
            // It has not been copied yet.
            if raw::bpf_skb_load_bytes(skb.cast(), w.at, (&raw mut w.old).cast(), header) != 0 {
                return false;
            }
            w.options = Options::stamped(w.packet.timestamps);
        }
        let cut = to.len < w.packet.len;
        // Of a repetition that lies across the end, as much as any receiver takes in one segment: what is
        // cut is no aggregate any more. The source repeats the rest.
        let kept = if cut && to.len > MAX_KEPT_BYTES { MAX_KEPT_BYTES } else { to.len };
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

/// Adds what is left of the payload, [`MAX_KEPT_BYTES`] bytes at most.
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
