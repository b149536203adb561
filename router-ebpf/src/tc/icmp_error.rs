//! ICMP errors: routers could not pass a packet on.
//!
//! They hold the beginning of the packet as it was on the wire. One of a socket whose numbers have
//! moved gets the socket's own, or the kernel would not take it for one of this connection; one that a
//! spliced peer sent goes to that peer, when it says that the packet was too long.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_PSEUDO_HDR},
    helpers::generated as raw,
};
use router_ebpf::splice::{
    icmp_error::Sender,
    layout::{ConnEntry, Flow, role},
};

use super::{
    lock::Lock,
    maps::{DROP, NEXT, SENT, conn, find},
    packet,
    work::{Work, load},
};
use crate::headers::{ETHERNET, FRAGMENT, IPV4, IPV6, MAPPED, TCP, fold};

const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
/// Lengths of the headers, without options and extensions.
const IP_V4: u32 = 20;
const IP_V6: u32 = 40;
const ICMP: u32 = 8;
/// Of the TCP header that is held: ports and number.
const TCP_START: u32 = 8;

/// Whether a packet that is no TCP segment is to be looked at by [`ingress`].
#[inline(always)]
pub(super) fn may_be(skb: *mut __sk_buff) -> bool {
    // SAFETY: reads the context, and a byte of the packet.
    unsafe {
        let mut protocol = 0u8;
        match (*skb).protocol as u16 {
            IPV4 => load(skb, ETHERNET + 9, &raw mut protocol) && protocol == ICMP_V4,
            IPV6 => load(skb, ETHERNET + 6, &raw mut protocol) && protocol == ICMP_V6,
            _ => false,
        }
    }
}

/// What a packet is that is not of TCP.
#[inline(always)]
pub(super) fn ingress(skb: *mut __sk_buff, work: *mut Work) -> Option<i32> {
    // SAFETY: reads the context; the work is this CPU's alone.
    unsafe {
        if (*skb).vlan_present != 0 {
            return None;
        }
        let mut icmp = [0u8; 2];
        match (*skb).protocol as u16 {
            IPV4 => {
                let mut ip = [0u8; IP_V4 as usize];
                if !load(skb, ETHERNET, &raw mut ip) {
                    return None;
                }
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT;
                if ip[9] != ICMP_V4 || ip[0] != 0x45 || fragment != 0 {
                    return None;
                }
                if !load(skb, ETHERNET + IP_V4, &raw mut icmp) {
                    return None;
                }
                // Unreachable, time exceeded, parameter problem.
                if icmp[0] != 3 && icmp[0] != 11 && icmp[0] != 12 {
                    return None;
                }
                translate::<false>(skb, work, icmp[0] == 3 && icmp[1] == 4)
            }
            IPV6 => {
                let mut next = 0u8;
                if !load(skb, ETHERNET + 6, &raw mut next) || next != ICMP_V6 {
                    return None;
                }
                if !load(skb, ETHERNET + IP_V6, &raw mut icmp) || icmp[0] == 0 || icmp[0] > 4 {
                    return None;
                }
                translate::<true>(skb, work, icmp[0] == 2)
            }
            _ => None,
        }
    }
}

/// Headers that are held, from the IP header on.
const fn held(six: bool) -> u32 {
    TCP_START + if six { IP_V6 } else { IP_V4 }
}

#[inline(always)]
unsafe fn translate<const SIX: bool>(
    skb: *mut __sk_buff,
    work: *mut Work,
    too_long: bool,
) -> Option<i32> {
    // SAFETY: as in `ingress`; elements of arrays live as long as their maps.
    unsafe {
        let ip = if SIX { IP_V6 } else { IP_V4 };
        let from = ETHERNET + ip + ICMP;
        let w = &mut *work;
        if raw::bpf_skb_load_bytes(skb.cast(), from, (&raw mut w.old).cast(), held(SIX)) != 0 {
            return None;
        }
        let at = ip as usize;
        let old = &w.old;
        let word = |at: usize| u32::from_ne_bytes([old[at], old[at + 1], old[at + 2], old[at + 3]]);
        let fits = if SIX {
            old[0] >> 4 == 6 && old[6] == TCP
        } else {
            old[0] == 0x45 && old[9] == TCP && old[6] & 0x1f == 0 && old[7] == 0
        };
        if !fits {
            return None;
        }
        // Sent by us: the first address is ours.
        let (local, remote) = if SIX {
            ([word(8), word(12), word(16), word(20)], [word(24), word(28), word(32), word(36)])
        } else {
            ([0, 0, MAPPED, word(12)], [0, 0, MAPPED, word(16)])
        };
        let ports = [
            u16::from_ne_bytes([old[at], old[at + 1]]),
            u16::from_ne_bytes([old[at + 2], old[at + 3]]),
        ];
        let number = u32::from_be(word(at + 4));
        w.flow = Flow { local, remote, ports };
        let entry = find(&raw const w.flow)?;
        let Some(lock) = Lock::take(&raw mut (*entry).lock) else { return Some(DROP) };
        let mut source: *mut ConnEntry = core::ptr::null_mut();
        let to = match (*entry).role {
            role::NONE => Sender::Socket(number.wrapping_sub((*entry).socket.tx)),
            role::SOURCE => {
                // Its numbers do not move while it is one.
                Sender::Socket(number.wrapping_sub((*entry).pair.source.tx))
            }
            _ => {
                let Some(other) = conn((*entry).other) else {
                    drop(lock);
                    return Some(DROP);
                };
                let Some(pair_lock) = Lock::take(&raw mut (*other).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                source = other;
                let to = (*other).pair.sender_of(number);
                drop(pair_lock);
                to
            }
        };
        drop(lock);
        w.new = w.old;
        match to {
            Sender::Socket(same) if same == number => return Some(NEXT),
            Sender::Socket(number) => {
                w.new[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
                if !store::<SIX>(skb, w) {
                    return Some(DROP);
                }
                Some(NEXT)
            }
            // Nothing that a sender must do something about.
            Sender::Source(_) if !too_long || source.is_null() => Some(NEXT),
            Sender::Source(number) => {
                w.new[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
                if redirect::<SIX>(skb, w, &(*source).flow) {
                    Some(packet::send(skb, (*source).oif, SENT))
                } else {
                    Some(DROP)
                }
            }
        }
    }
}

/// Writes back what is held.
#[inline(always)]
unsafe fn store<const SIX: bool>(skb: *mut __sk_buff, w: &mut Work) -> bool {
    // SAFETY: the helpers check the offsets; both headers are as long as the lengths say.
    unsafe {
        let length = held(SIX);
        let icmp = ETHERNET + if SIX { IP_V6 } else { IP_V4 };
        let diff =
            raw::bpf_csum_diff((&raw mut w.old).cast(), length, (&raw mut w.new).cast(), length, 0);
        raw::bpf_skb_store_bytes(skb, icmp + ICMP, (&raw const w.new).cast(), length, 0) == 0
            && raw::bpf_l4_csum_replace(skb, icmp + 2, 0, diff as u64, 0) == 0
    }
}

/// Makes it an error about a packet of the source, for the source.
#[inline(always)]
unsafe fn redirect<const SIX: bool>(skb: *mut __sk_buff, w: &mut Work, other: &Flow) -> bool {
    // SAFETY: as in `store`.
    unsafe {
        let at = if SIX { IP_V6 } else { IP_V4 } as usize;
        // The source sent it, to our socket.
        let [local, remote] = other.ports.map(u16::to_ne_bytes);
        w.new[at] = remote[0];
        w.new[at + 1] = remote[1];
        w.new[at + 2] = local[0];
        w.new[at + 3] = local[1];
        // Who gets the error: the address it had is the one that the packet came from.
        let mut ours = [0u32; 4];
        let mut theirs = [0u32; 4];
        if SIX {
            let mut i = 0;
            while i < 4 {
                w.new[8 + 4 * i..12 + 4 * i].copy_from_slice(&other.remote[i].to_ne_bytes());
                w.new[24 + 4 * i..28 + 4 * i].copy_from_slice(&other.local[i].to_ne_bytes());
                i += 1;
            }
            ours = w.flow.local;
            theirs = other.remote;
        } else {
            w.new[12..16].copy_from_slice(&other.remote[3].to_ne_bytes());
            w.new[16..20].copy_from_slice(&other.local[3].to_ne_bytes());
            ours[0] = w.flow.local[3];
            theirs[0] = other.remote[3];
            // The checksum of the header that is held.
            let mut before = [0u32; 2];
            let mut after = [0u32; 2];
            before[0] = w.flow.local[3];
            before[1] = w.flow.remote[3];
            after[0] = other.remote[3];
            after[1] = other.local[3];
            let sum = !u16::from_ne_bytes([w.old[10], w.old[11]]) as u32;
            let sum =
                raw::bpf_csum_diff((&raw mut before).cast(), 8, (&raw mut after).cast(), 8, sum)
                    as u32;
            let [a, b] = (!fold(sum)).to_ne_bytes();
            w.new[10] = a;
            w.new[11] = b;
        }
        if !store::<SIX>(skb, w) {
            return false;
        }
        let length = if SIX { 16 } else { 4 };
        let diff =
            raw::bpf_csum_diff((&raw mut ours).cast(), length, (&raw mut theirs).cast(), length, 0)
                as u64;
        let to = if SIX { ETHERNET + 24 } else { ETHERNET + 16 };
        let summed = if SIX {
            let flags = BPF_F_PSEUDO_HDR as u64;
            raw::bpf_l4_csum_replace(skb, ETHERNET + IP_V6 + 2, 0, diff, flags)
        } else {
            raw::bpf_l3_csum_replace(skb, ETHERNET + 10, 0, diff, 0)
        };
        summed == 0 && raw::bpf_skb_store_bytes(skb, to, (&raw const theirs).cast(), length, 0) == 0
    }
}
