//! Reading packets and changing them.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_PSEUDO_HDR},
    helpers::generated as raw,
};
use router_ebpf::splice::{
    layout::Flow,
    options::{self, Options},
    timestamps::Timestamps,
    translate::{Outcome, Packet},
};

use super::{DROP, MARK, NEXT, NOTE, SENT};

/// Length of an Ethernet header.
pub(super) const ETHERNET: u32 = 14;
pub(super) const IPV4: u16 = 0x0800u16.to_be();
pub(super) const IPV6: u16 = 0x86ddu16.to_be();
/// What stands before an IPv4 address that is written as one of IPv6.
pub(super) const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
pub(super) const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
/// The option that holds a length (RFC 2675).
const JUMBO: u8 = 0xc2;
/// Length of a TCP header without options.
const FIXED: u32 = 20;
/// Offset of the checksum in a TCP header.
const CHECKSUM: u32 = 16;
/// Room for a TCP header: 60 bytes, and the slack of [`options::Bytes`].
const HEADER: usize = 84;

/// What becomes of a packet.
pub(super) mod plan {
    /// Nothing.
    pub(crate) const DROP: u32 = 0;
    /// On its way, as [`Work::out`](super::Work::out) says.
    pub(crate) const PASS: u32 = 1;
    /// To the other peer.
    pub(crate) const FORWARD: u32 = 2;
    /// Back to its sender.
    pub(crate) const TURN_ROUND: u32 = 3;
    /// On its way, and as [`Work::peer`](super::Work::peer) to the other peer.
    pub(crate) const SPLIT: u32 = 4;
    /// Once more to where it came from, behind what has arrived meanwhile.
    pub(crate) const WAIT: u32 = 5;
}

/// What a program works on.
#[repr(C)]
pub(super) struct Work {
    /// Whose packet it is.
    pub(super) flow: Flow,
    /// Not zero: IPv6.
    six: u32,
    /// Offset of the TCP header.
    at: u32,
    /// Its length.
    header: u32,
    /// See [`plan`].
    pub(super) plan: u32,
    /// The interface by which the other peer is reached.
    pub(super) other_oif: u32,
    /// The interface by which the sender is reached.
    pub(super) own_oif: u32,
    /// Not zero: the way to the other peer is to be noted on it.
    pub(super) notes: u32,
    /// Not zero: `link` is the way to the other peer.
    pub(super) linked: u32,
    pub(super) link: [u8; 12],
    /// How often it has [waited](super::wait), as its mark says it.
    pub(super) turns: u32,
    /// Addresses and ports of the packet: its source first.
    addresses: [u32; 8],
    ports: [u16; 2],
    /// Not zero: the packet gets other addresses.
    readdress: u32,
    /// Those that it gets.
    new_addresses: [u32; 8],
    new_ports: [u16; 2],
    other: Flow,
    own: Flow,
    pub(super) old: [u8; HEADER],
    pub(super) new: [u8; HEADER],
    pseudo: [u32; 10],
    new_pseudo: [u32; 10],
    options: Options,
    /// What is left of the payload of a packet that is cut.
    rest: [u8; REST],
    /// The packet as it came.
    pub(super) packet: Packet,
    /// As it goes on.
    pub(super) out: Packet,
    /// As it goes to the other peer.
    pub(super) peer: Packet,
    pub(super) outcome: Outcome,
}

impl Work {
    #[inline(always)]
    pub(super) fn set_other(&mut self, flow: &Flow, oif: u32) {
        self.other = *flow;
        self.other_oif = oif;
    }

    #[inline(always)]
    pub(super) fn set_own(&mut self, flow: &Flow, oif: u32) {
        self.own = *flow;
        self.own_oif = oif;
    }

    /// The other peer's connection.
    #[inline(always)]
    pub(super) fn other_flow(&self) -> Flow {
        self.other
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
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
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
        w.header = (w.old[12] >> 4) as u32 * 4;
        if w.header < FIXED || segment < w.header {
            return false;
        }
        w.ports =
            [u16::from_ne_bytes([w.old[0], w.old[1]]), u16::from_ne_bytes([w.old[2], w.old[3]])];
        let [a, b, c, d, e, f, g, h] = w.addresses;
        w.flow = if arrives {
            Flow { local: [e, f, g, h], remote: [a, b, c, d], ports: [w.ports[1], w.ports[0]] }
        } else {
            Flow { local: [a, b, c, d], remote: [e, f, g, h], ports: w.ports }
        };
        w.packet.len = segment - w.header;
        w.packet.seq = u32::from_be_bytes([w.old[4], w.old[5], w.old[6], w.old[7]]);
        w.packet.ack = u32::from_be_bytes([w.old[8], w.old[9], w.old[10], w.old[11]]);
        w.packet.flags = w.old[13];
        w.packet.window = u16::from_be_bytes([w.old[14], w.old[15]]);
        w.readdress = 0;
        true
    }
}

struct Walk {
    work: *mut Work,
    at: u32,
    length: u32,
    malformed: u32,
}

/// Reads the TCP options. False when they are malformed.
#[inline(always)]
pub(super) fn read_options(skb: *mut __sk_buff, work: *mut Work) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
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
        let mut walk = Walk { work, at: 0, length: header - FIXED, malformed: 0 };
        raw::bpf_loop(options::MAX as u32, step as *mut c_void, (&raw mut walk).cast(), 0);
        if walk.malformed != 0 {
            return false;
        }
        w.packet.timestamps = w.options.timestamps;
        w.packet.sack = w.options.sack;
        true
    }
}

/// A length of at most 60, as the kernel's verifier can see: the compiler would leave out a
/// comparison that it knows the outcome of.
#[inline(always)]
fn bounded(length: u32) -> u32 {
    let mut bounded = length as u64;
    // SAFETY: changes nothing but the register.
    unsafe { core::arch::asm!("{r} &= 63", r = inout(reg) bounded, options(nomem, nostack)) };
    bounded as u32
}

/// The options of a header.
#[inline(always)]
unsafe fn options_of(header: *mut [u8; HEADER]) -> *mut options::Bytes {
    header.cast::<u8>().wrapping_add(FIXED as usize).cast()
}

unsafe extern "C" fn step(_index: u32, walk: *mut Walk) -> u64 {
    // SAFETY: called by the helper with the pointer given to it.
    unsafe {
        let walk = &mut *walk;
        let w = &mut *walk.work;
        let bytes = &*options_of(&raw mut w.old);
        match w.options.step(bytes, walk.length as usize, walk.at as usize) {
            Some(at) => {
                walk.at = at as u32;
                u64::from(at as u32 >= walk.length)
            }
            None => {
                walk.malformed = 1;
                1
            }
        }
    }
}

/// Lets a packet go on as [`Work::out`] says.
#[inline(always)]
pub(super) fn pass(skb: *mut __sk_buff, work: *mut Work) -> i32 {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        if (*work).plan == plan::PASS && same(&(*work).packet, &(*work).out) {
            return NEXT;
        }
        if apply(skb, work, &raw const (*work).out) { NEXT } else { DROP }
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

/// Sends a packet as [`Work::out`] says, to the other peer or back.
#[inline(always)]
pub(super) fn redirect(skb: *mut __sk_buff, work: *mut Work, oif: u32) -> i32 {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let back = w.plan == plan::TURN_ROUND;
        let to = if back { w.own } else { w.other };
        address(w, &to);
        if !apply(skb, work, &raw const (*work).out) {
            return DROP;
        }
        if !back && (*work).linked != 0 {
            raw::bpf_skb_store_bytes(skb, 0, (&raw const (*work).link).cast(), 12, 0);
            (*skb).mark = MARK.load() | SENT;
            return raw::bpf_redirect(oif, 0) as i32;
        }
        send(skb, oif, if !back && (*work).notes != 0 { SENT | NOTE } else { SENT })
    }
}

/// Sends the copy of a packet as [`Work::peer`] says to the other peer.
#[inline(always)]
pub(super) fn redirect_copy(skb: *mut __sk_buff, work: *mut Work) -> i32 {
    // SAFETY: the work is this CPU's alone: the copy is looked at before the program for the
    // original goes on.
    unsafe {
        let w = &mut *work;
        let to = w.other;
        address(w, &to);
        let done = apply(skb, work, &raw const (*work).peer);
        (*work).readdress = 0;
        if !done {
            return DROP;
        }
        send(skb, (*work).other_oif, SENT)
    }
}

#[inline(always)]
fn address(w: &mut Work, to: &Flow) {
    let [a, b, c, d] = to.local;
    let [e, f, g, h] = to.remote;
    w.new_addresses = [a, b, c, d, e, f, g, h];
    w.new_ports = to.ports;
    w.readdress = 1;
}

#[inline(always)]
pub(super) unsafe fn send(skb: *mut __sk_buff, oif: u32, mark: u32) -> i32 {
    // SAFETY: writes the context.
    unsafe {
        (*skb).mark = MARK.load() | mark;
        raw::bpf_redirect_neigh(oif, core::ptr::null_mut(), 0, 0) as i32
    }
}

/// Changes a packet to what `to` says, and its addresses if they are to change.
#[inline(never)]
fn apply(skb: *mut __sk_buff, work: *mut Work, to: *const Packet) -> bool {
    // SAFETY: the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let to = &*to;
        let header = w.header;
        if header < FIXED || header > 60 {
            return false;
        }
        let cut = to.len < w.packet.len;
        // Of a repetition that lies across the end, as much as any receiver takes in one segment: what is
        // cut is no aggregate any more. The source repeats the rest.
        let kept = if cut && to.len > KEPT { KEPT } else { to.len };
        w.new = w.old;
        if w.readdress != 0 {
            let [a, b] = w.new_ports[0].to_ne_bytes();
            let [c, d] = w.new_ports[1].to_ne_bytes();
            w.new[0] = a;
            w.new[1] = b;
            w.new[2] = c;
            w.new[3] = d;
        }
        w.new[4..8].copy_from_slice(&to.seq.to_be_bytes());
        w.new[8..12].copy_from_slice(&to.ack.to_be_bytes());
        w.new[13] = to.flags;
        w.new[14..16].copy_from_slice(&to.window.to_be_bytes());
        let new_options = options_of(&raw mut w.new);
        let options = w.options;
        options.rewrite(&mut *new_options, to.timestamps, &to.sack);

        // The pseudo header: addresses and length.
        w.pseudo = [0; 10];
        w.new_pseudo = [0; 10];
        let addresses = if w.readdress != 0 { w.new_addresses } else { w.addresses };
        let mut i = 0;
        while i < 8 {
            w.pseudo[i] = w.addresses[i];
            w.new_pseudo[i] = addresses[i];
            i += 1;
        }
        w.pseudo[8] = (w.packet.len + header).to_be();
        w.new_pseudo[8] = (kept + header).to_be();

        let complete = !cut || is_partial(w);
        if cut {
            if raw::bpf_skb_change_tail(skb, w.at + header + kept, 0) != 0 {
                return false;
            }
            set_length(skb, w, header + kept);
        }
        let head = bounded(header);
        if head < FIXED {
            return false;
        }
        if !complete {
            // The checksum of what is left, from nothing.
            w.new[16] = 0;
            w.new[17] = 0;
            let sum = sum(&raw mut w.new_pseudo, 36, (TCP as u32).to_be());
            let sum =
                raw::bpf_csum_diff(core::ptr::null_mut(), 0, (&raw mut w.new).cast(), head, sum)
                    as u32;
            let Some(sum) = with_payload(skb, w, kept, sum) else { return false };
            let [a, b] = (!fold(sum)).to_ne_bytes();
            w.new[16] = a;
            w.new[17] = b;
        }
        if raw::bpf_skb_store_bytes(skb, w.at, (&raw const w.new).cast(), head, 0) != 0 {
            return false;
        }
        if complete {
            let diff =
                raw::bpf_csum_diff((&raw mut w.old).cast(), head, (&raw mut w.new).cast(), head, 0);
            raw::bpf_l4_csum_replace(skb, w.at + CHECKSUM, 0, diff as u64, 0);
            if cut || w.readdress != 0 {
                let diff = raw::bpf_csum_diff(
                    (&raw mut w.pseudo).cast(),
                    36,
                    (&raw mut w.new_pseudo).cast(),
                    36,
                    0,
                );
                let flags = BPF_F_PSEUDO_HDR as u64;
                raw::bpf_l4_csum_replace(skb, w.at + CHECKSUM, 0, diff as u64, flags);
            }
        }
        if w.readdress != 0 {
            store_addresses(skb, w);
        }
        true
    }
}

/// Whether the checksum is left to the interface: then it is that of the pseudo header alone.
#[inline(always)]
fn is_partial(w: &mut Work) -> bool {
    let sum = sum(&raw mut w.pseudo, 36, (TCP as u32).to_be());
    fold(sum) == u16::from_ne_bytes([w.old[16], w.old[17]])
}

#[inline(always)]
fn sum(words: *mut [u32; 10], bytes: u32, seed: u32) -> u32 {
    // SAFETY: 36 bytes are within the words.
    unsafe { raw::bpf_csum_diff(core::ptr::null_mut(), 0, words.cast(), bytes, seed) as u32 }
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

#[inline(always)]
pub(super) const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
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

#[inline(always)]
unsafe fn store_addresses(skb: *mut __sk_buff, w: &mut Work) {
    // SAFETY: the helpers check the offsets; the arrays are as long as the lengths say.
    unsafe {
        if w.six != 0 {
            let from = (&raw const w.new_addresses).cast();
            raw::bpf_skb_store_bytes(skb, ETHERNET + 8, from, 32, 0);
            return;
        }
        let diff = raw::bpf_csum_diff(
            (&raw mut w.addresses).cast(),
            32,
            (&raw mut w.new_addresses).cast(),
            32,
            0,
        );
        raw::bpf_l3_csum_replace(skb, ETHERNET + 10, 0, diff as u64, 0);
        let pair = [w.new_addresses[3], w.new_addresses[7]];
        raw::bpf_skb_store_bytes(skb, ETHERNET + 12, (&raw const pair).cast(), 8, 0);
    }
}

const _: () = assert!(offset_of!(Work, flow) == 0);
