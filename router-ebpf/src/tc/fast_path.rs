//! The usual packet: IPv4 without options, or IPv6 without extensions, and TCP with timestamps and no other
//! option, or none at all, with all headers at hand.
//!
//! It is read and changed where it is. Any other goes by the helpers' copies: see [`slow_path`](super::slow_path).

use core::arch::asm;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_PSEUDO_HDR},
    helpers::generated as raw,
};
use router_ebpf::splice::{layout::Flow, packet::Packet, timestamps::Timestamps};

use super::work::{Work, kind};
use crate::headers::{CHECKSUM, ETHERNET, FIXED, FRAGMENT, IPV4, IPV6, MAPPED, TCP, fold};

/// Where TCP's header is.
const V4: usize = 34;
const V6: usize = 54;
/// Length of a header with timestamps.
const STAMPED: usize = 32;
/// Two no-operations, and the beginning of the option.
const STAMP: u32 = u32::from_ne_bytes([1, 1, 8, 10]);

/// Reads as the processor does it, wherever that is: the compiler would put it together from bytes.
macro_rules! get {
    ($type:literal, $at:expr, $offset:expr) => {{
        let value: u64;
        asm!(
            concat!("{v} = *(", $type, " *)({p} + {o})"),
            v = out(reg) value,
            p = in(reg) $at,
            o = const $offset,
            options(pure, readonly, nostack),
        );
        value
    }};
}

/// The like for writing.
macro_rules! put {
    ($type:literal, $at:expr, $offset:expr, $value:expr) => {
        asm!(
            concat!("*(", $type, " *)({p} + {o}) = {v}"),
            v = in(reg) $value as u64,
            p = in(reg) $at,
            o = const $offset,
            options(nostack),
        )
    };
}

/// Where the packet is, if that many of its bytes are at hand.
#[inline(always)]
unsafe fn bytes(skb: *mut __sk_buff, length: usize) -> Option<usize> {
    // SAFETY: reads the context.
    let (start, end) = unsafe { ((*skb).data as usize, (*skb).data_end as usize) };
    if start + length > end { None } else { Some(start) }
}

/// Reads all headers. False when the packet is not a usual one; then nothing that is read there counts.
#[inline(always)]
pub(super) fn read(skb: *mut __sk_buff, work: *mut Work, arrives: bool) -> bool {
    // SAFETY: the work is this CPU's alone; what is read lies within what is at hand.
    unsafe {
        let w = &mut *work;
        w.kind = kind::OTHER;
        if (*skb).vlan_present != 0 {
            return false;
        }
        match (*skb).protocol as u16 {
            IPV4 => {
                let Some(at) = bytes(skb, V4 + FIXED as usize) else { return false };
                let length = (get!("u16", at, const { 16 }) as u16).to_be() as u32;
                let fragment = (get!("u16", at, const { 20 }) as u16).to_be() & FRAGMENT;
                if get!("u8", at, const { 14 }) != 0x45
                    || get!("u8", at, const { 23 }) != TCP as u64
                    || fragment != 0
                    || length < 40
                {
                    return false;
                }
                let (source, destination) =
                    (get!("u32", at, const { 26 }) as u32, get!("u32", at, const { 30 }) as u32);
                w.addresses = [0, 0, MAPPED, source, 0, 0, MAPPED, destination];
                w.six = 0;
                w.at = V4 as u32;
                segment::<V4>(skb, w, at, length - 20, arrives)
            }
            IPV6 => {
                let Some(at) = bytes(skb, V6 + FIXED as usize) else { return false };
                let length = (get!("u16", at, const { 18 }) as u16).to_be() as u32;
                if get!("u8", at, const { 14 }) >> 4 != 6
                    || get!("u8", at, const { 20 }) != TCP as u64
                    || length == 0
                {
                    return false;
                }
                w.addresses = [
                    get!("u32", at, const { 22 }) as u32,
                    get!("u32", at, const { 26 }) as u32,
                    get!("u32", at, const { 30 }) as u32,
                    get!("u32", at, const { 34 }) as u32,
                    get!("u32", at, const { 38 }) as u32,
                    get!("u32", at, const { 42 }) as u32,
                    get!("u32", at, const { 46 }) as u32,
                    get!("u32", at, const { 50 }) as u32,
                ];
                w.six = 1;
                w.at = V6 as u32;
                segment::<V6>(skb, w, at, length, arrives)
            }
            _ => false,
        }
    }
}

/// The segment of `length` bytes in the packet at `at`.
#[inline(always)]
unsafe fn segment<const TCP_AT: usize>(
    skb: *mut __sk_buff,
    w: &mut Work,
    at: usize,
    length: u32,
    arrives: bool,
) -> bool {
    // SAFETY: as in `read`.
    unsafe {
        let packet = &mut w.packet;
        match get!("u8", at, const { TCP_AT + 12 }) >> 4 {
            5 => {
                w.kind = kind::PLAIN;
                w.header = FIXED;
                packet.timestamps = None;
            }
            8 => {
                let Some(at) = bytes(skb, TCP_AT + STAMPED) else { return false };
                if get!("u32", at, const { TCP_AT + 20 }) as u32 != STAMP {
                    return false;
                }
                w.kind = kind::STAMPED;
                w.header = STAMPED as u32;
                packet.timestamps = Some(Timestamps {
                    value: (get!("u32", at, const { TCP_AT + 24 }) as u32).to_be(),
                    echo: (get!("u32", at, const { TCP_AT + 28 }) as u32).to_be(),
                });
            }
            _ => return false,
        }
        if length < w.header {
            w.kind = kind::OTHER;
            return false;
        }
        packet.sack.count = 0;
        packet.len = length - w.header;
        packet.seq = (get!("u32", at, const { TCP_AT + 4 }) as u32).to_be();
        packet.ack = (get!("u32", at, const { TCP_AT + 8 }) as u32).to_be();
        packet.flags = get!("u8", at, const { TCP_AT + 13 }) as u8;
        packet.window = (get!("u16", at, const { TCP_AT + 14 }) as u16).to_be();
        w.ports = [
            get!("u16", at, const { TCP_AT }) as u16,
            get!("u16", at, const { TCP_AT + 2 }) as u16,
        ];
        w.set_flow(arrives);
        true
    }
}

/// How a checksum changes with 32-bit words under it (RFC 1624).
struct Change(u64);

impl Change {
    #[inline(always)]
    const fn word(&mut self, old: u32, new: u32) {
        self.0 += !old as u64 + new as u64;
    }

    #[inline(always)]
    const fn sum(&self) -> u32 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        ((sum & 0xffff_ffff) + (sum >> 32)) as u32
    }
}

/// Changes the packet, which [`read`] has read, to what `to` says; and, if there is one, to the addresses and ports
/// of `flow`, and to the Ethernet addresses `link`. It keeps its length.
#[inline(always)]
pub(super) fn write(
    skb: *mut __sk_buff,
    w: &mut Work,
    to: &Packet,
    flow: Option<&Flow>,
    link: Option<&[u32; 3]>,
) -> bool {
    // SAFETY: as in `write_at`.
    unsafe {
        if w.six != 0 {
            write_at::<V6>(skb, w, to, flow, link)
        } else {
            write_at::<V4>(skb, w, to, flow, link)
        }
    }
}

#[inline(always)]
unsafe fn write_at<const TCP_AT: usize>(
    skb: *mut __sk_buff,
    w: &mut Work,
    to: &Packet,
    flow: Option<&Flow>,
    link: Option<&[u32; 3]>,
) -> bool {
    // SAFETY: what is written lies within what is at hand.
    unsafe {
        let mut header = Change(0);
        let at = if let (kind::STAMPED, Some(old), Some(new)) =
            (w.kind, w.packet.timestamps, to.timestamps)
        {
            let Some(at) = bytes(skb, TCP_AT + STAMPED) else { return false };
            header.word(old.value.to_be(), new.value.to_be());
            header.word(old.echo.to_be(), new.echo.to_be());
            put!("u32", at, const { TCP_AT + 24 }, new.value.to_be());
            put!("u32", at, const { TCP_AT + 28 }, new.echo.to_be());
            at
        } else {
            let Some(at) = bytes(skb, TCP_AT + FIXED as usize) else { return false };
            at
        };
        header.word(w.packet.seq.to_be(), to.seq.to_be());
        header.word(w.packet.ack.to_be(), to.ack.to_be());
        put!("u32", at, const { TCP_AT + 4 }, to.seq.to_be());
        put!("u32", at, const { TCP_AT + 8 }, to.ack.to_be());
        let old = get!("u32", at, const { TCP_AT + 12 }) as u32;
        let [window, low] = to.window.to_be_bytes();
        let new = u32::from_ne_bytes([old.to_ne_bytes()[0], to.flags, window, low]);
        header.word(old, new);
        put!("u32", at, const { TCP_AT + 12 }, new);

        let mut pseudo = Change(0);
        if let Some(flow) = flow {
            let ports = flow.ports;
            let word = |[a, b]: [u16; 2]| a as u32 | (b as u32) << 16;
            header.word(word(w.ports), word(ports));
            put!("u32", at, const { TCP_AT }, word(ports));
            if TCP_AT == V4 {
                pseudo.word(w.addresses[3], flow.local[3]);
                pseudo.word(w.addresses[7], flow.remote[3]);
                let sum = get!("u16", at, const { 24 }) as u16;
                let sum = Change((!sum) as u64 + pseudo.sum() as u64).sum();
                put!("u16", at, const { 24 }, !fold(sum));
                put!("u32", at, const { 26 }, flow.local[3]);
                put!("u32", at, const { 30 }, flow.remote[3]);
            } else {
                let [a, b, c, d] = flow.local;
                let [e, f, g, h] = flow.remote;
                let new = [a, b, c, d, e, f, g, h];
                let mut i = 0;
                while i < 8 {
                    pseudo.word(w.addresses[i], new[i]);
                    i += 1;
                }
                put!("u32", at, const { 22 }, a);
                put!("u32", at, const { 26 }, b);
                put!("u32", at, const { 30 }, c);
                put!("u32", at, const { 34 }, d);
                put!("u32", at, const { 38 }, e);
                put!("u32", at, const { 42 }, f);
                put!("u32", at, const { 46 }, g);
                put!("u32", at, const { 50 }, h);
            }
        }
        if let Some([a, b, c]) = link {
            put!("u32", at, const { 0 }, *a);
            put!("u32", at, const { 4 }, *b);
            put!("u32", at, const { 8 }, *c);
        }
        // Whether the checksum is complete, or that of the pseudo header alone, is known to the helper only.
        let checksum = TCP_AT as u32 + CHECKSUM;
        if raw::bpf_l4_csum_replace(skb, checksum, 0, header.sum() as u64, 0) != 0 {
            return false;
        }
        let flags = BPF_F_PSEUDO_HDR as u64;
        flow.is_none()
            || raw::bpf_l4_csum_replace(skb, checksum, 0, pseudo.sum() as u64, flags) == 0
    }
}

const _: () = assert!(ETHERNET as usize + 20 == V4 && ETHERNET as usize + 40 == V6);
