//! Reading frames and changing them.

use aya_ebpf::{bindings::xdp_md, helpers::generated as raw};
use router_ebpf::{
    framing::Framing,
    splice::{
        layout::{ConnEntry, Flow},
        options::Options,
        packet::Packet,
        verdict::Outcome,
    },
};

use crate::{
    body::Walk,
    headers::{self, FIXED, FRAGMENT, Header, IPV4, IPV6, MAPPED, TCP, bounded, fold, is_partial},
};

/// What is read first: all headers of IPv4 without options, or those in front of TCP with IPv6.
const HEAD: u32 = 54;
/// Where TCP is in an IPv4 packet.
const TCP_V4: u32 = 34;

/// What the program works on.
#[repr(C)]
pub(super) struct Work {
    /// Whose packet it is.
    pub(super) flow: Flow,
    /// Not zero: IPv6.
    six: u32,
    /// Length of the TCP header.
    header: u32,
    /// The frame's first bytes.
    head: [u8; HEAD as usize + 2],
    /// The TCP header, and what it becomes.
    old: Header,
    new: Header,
    /// The pseudo header: addresses, length; and what it becomes.
    pseudo: [u32; 10],
    new_pseudo: [u32; 10],
    options: Options,
    /// The packet as it came.
    pub(super) packet: Packet,
    /// As it goes on.
    pub(super) out: Packet,
    pub(super) outcome: Outcome,
}

#[inline(always)]
unsafe fn load<T>(ctx: *mut xdp_md, at: u32, to: *mut T, length: u32) -> bool {
    // SAFETY: as the callers see to, `to` has room for as many bytes.
    unsafe { raw::bpf_xdp_load_bytes(ctx, at, to.cast(), length) == 0 }
}

/// Reads the headers but for the TCP options. False when it is no TCP segment that could be of a
/// spliced connection: fragments, extension headers, options of IPv4 and tagged frames are not.
#[inline(always)]
pub(super) fn read(ctx: *mut xdp_md, work: *mut Work) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        if !load(ctx, 0, &raw mut w.head, HEAD) {
            return false;
        }
        let head = &w.head;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let segment;
        match u16::from_ne_bytes([head[12], head[13]]) {
            IPV4 => {
                let fragment = short(20) & FRAGMENT;
                let length = short(16) as u32;
                if head[14] != 0x45 || head[23] != TCP || fragment != 0 || length < 40 {
                    return false;
                }
                w.pseudo = [0, 0, MAPPED, word(26), 0, 0, MAPPED, word(30), 0, 0];
                w.six = 0;
                segment = length - 20;
            }
            IPV6 => {
                if head[14] >> 4 != 6 || head[20] != TCP {
                    return false;
                }
                let mut i = 0;
                while i < 8 {
                    w.pseudo[i] = word(22 + 4 * i);
                    i += 1;
                }
                w.pseudo[9] = 0;
                w.six = 1;
                segment = short(18) as u32;
            }
            _ => return false,
        }
        if !load(ctx, tcp_at(w), &raw mut w.old, FIXED) {
            return false;
        }
        w.header = headers::length(&w.old);
        if w.header < FIXED || segment < w.header {
            return false;
        }
        w.pseudo[8] = segment.to_be();
        let [a, b, c, d, e, f, g, h, ..] = w.pseudo;
        let [source, destination] = headers::ports(&w.old);
        w.flow = Flow { local: [e, f, g, h], remote: [a, b, c, d], ports: [destination, source] };
        w.packet.len = segment - w.header;
        headers::read(&w.old, &mut w.packet);
        true
    }
}

/// Offset of the TCP header.
#[inline(always)]
const fn tcp_at(w: &Work) -> u32 {
    if w.six != 0 { HEAD } else { TCP_V4 }
}

/// Reads the TCP options. False when they are malformed, or when the checksum is left to the
/// interface: a frame that is redirected loses the note of that.
#[inline(always)]
pub(super) fn read_options(ctx: *mut xdp_md, work: *mut Work) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        if is_partial(&w.old, &raw mut w.pseudo) {
            return false;
        }
        w.options = Options::default();
        w.packet.timestamps = None;
        w.packet.sack.count = 0;
        let header = bounded(w.header);
        if header <= FIXED {
            return header == FIXED;
        }
        if !load(ctx, tcp_at(w), &raw mut w.old, header) {
            return false;
        }
        headers::read_options(&raw mut w.old, header, &raw mut w.options, &raw mut w.packet)
    }
}

/// Where a body stands behind the packet's payload; `None` when it ends there, or cannot be followed
/// that far.
#[inline(always)]
pub(super) fn follow(ctx: *mut xdp_md, work: *mut Work, framing: &Framing) -> Option<Framing> {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let start = tcp_at(w) + w.header;
        let walk = Walk::run(ctx, framing, start, start + w.packet.len);
        let goes_on = walk.is_whole() && !walk.framing.is_done();
        if goes_on && walk.framing.error().is_none() { Some(walk.framing) } else { None }
    }
}

/// Whether the frame fits what an interface sends.
#[inline(always)]
pub(super) fn fits(ctx: *mut xdp_md, oif: u32) -> bool {
    let mut mtu = 0u32;
    // SAFETY: the helper writes the one word.
    unsafe { raw::bpf_check_mtu(ctx.cast(), oif, &raw mut mtu, 0, 0) == 0 }
}

/// Changes the packet to what [`Work::out`] says, for the peer of another connection. The frame is not
/// changed when it fails.
#[inline(always)]
pub(super) fn apply(ctx: *mut xdp_md, work: *mut Work, other: *const ConnEntry) -> bool {
    // SAFETY: the work is this CPU's alone; `other` is an element, whose flow does not change.
    unsafe {
        let w = &mut *work;
        let to = &w.out;
        let flow = (*other).flow;
        let header = bounded(w.header);
        if header < FIXED {
            return false;
        }
        w.new = w.old;
        headers::write_ports(&mut w.new, flow.ports);
        headers::write(&mut w.new, &w.options, to);

        let [e, f, g, h] = flow.local;
        let [i, j, k, l] = flow.remote;
        w.new_pseudo = [e, f, g, h, i, j, k, l, w.pseudo[8], 0];
        let checksum = u16::from_ne_bytes([w.old[16], w.old[17]]);
        let sum = raw::bpf_csum_diff(
            (&raw mut w.pseudo).cast(),
            32,
            (&raw mut w.new_pseudo).cast(),
            32,
            (!checksum) as u32,
        ) as u32;
        let sum = raw::bpf_csum_diff(
            (&raw mut w.old).cast(),
            header,
            (&raw mut w.new).cast(),
            header,
            fold(sum) as u32,
        ) as u32;
        let [m, n] = (!fold(sum)).to_ne_bytes();
        w.new[16] = m;
        w.new[17] = n;

        let [a, b, c] = (*other).link;
        w.head[..4].copy_from_slice(&a.to_ne_bytes());
        w.head[4..8].copy_from_slice(&b.to_ne_bytes());
        w.head[8..12].copy_from_slice(&c.to_ne_bytes());
        let length = if w.six != 0 {
            let mut word = 0;
            while word < 8 {
                let at = 22 + 4 * word;
                w.head[at..at + 4].copy_from_slice(&w.new_pseudo[word].to_ne_bytes());
                word += 1;
            }
            HEAD
        } else {
            let checksum = u16::from_ne_bytes([w.head[24], w.head[25]]);
            let sum = raw::bpf_csum_diff(
                (&raw mut w.pseudo).cast(),
                32,
                (&raw mut w.new_pseudo).cast(),
                32,
                (!checksum) as u32,
            ) as u32;
            w.head[24..26].copy_from_slice(&(!fold(sum)).to_ne_bytes());
            w.head[26..30].copy_from_slice(&w.new_pseudo[3].to_ne_bytes());
            w.head[30..34].copy_from_slice(&w.new_pseudo[7].to_ne_bytes());
            TCP_V4
        };
        // The first may fail, for all that the verifier knows; the second one lies within the frame,
        // as it was read from there.
        let at = tcp_at(w);
        raw::bpf_xdp_store_bytes(ctx, at, (&raw mut w.new).cast(), header) == 0
            && raw::bpf_xdp_store_bytes(ctx, 0, (&raw mut w.head).cast(), length) == 0
    }
}
