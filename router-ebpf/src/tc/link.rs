//! The Ethernet addresses of what goes to a peer.
//!
//! They are read from packets that were forwarded through the kernel's neighbour layer, the first and one each
//! half second: not from a socket's own, which may know of routes that others do not.

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::splice::layout::{ConnEntry, LINK_RENEW, LOOPBACK};

use super::{
    lock::Lock,
    maps::{XDP, find, now},
    packet,
    work::Work,
};

/// Whether the way to a connection's peer was noted so lately that it is not to be noted anew.
///
/// # Safety
/// `entry` must point to an element.
#[inline(always)]
unsafe fn is_recent(entry: *mut ConnEntry, now: u64) -> bool {
    // SAFETY: as the caller promises; a word that is written whole.
    now.wrapping_sub(unsafe { (*entry).link_ns }) <= LINK_RENEW
}

/// Notes the way to a connection's peer from a packet that goes there.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
unsafe fn note(skb: *mut __sk_buff, entry: *mut ConnEntry) {
    // SAFETY: as the caller promises; the helper writes as many bytes as there are.
    unsafe {
        let now = now();
        if is_recent(entry, now) || (*skb).ifindex != (*entry).oif {
            return;
        }
        let mut addresses = [0u32; 3];
        if raw::bpf_skb_load_bytes(skb.cast(), 0, (&raw mut addresses).cast(), 12) != 0 {
            return;
        }
        (*entry).link = addresses;
        (*entry).link_ns = now;
    }
}

/// As [`note`], from a packet of the socket's own, for XDP, which forwards nothing before it knows the way.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn note_own(skb: *mut __sk_buff, entry: *mut ConnEntry) {
    if XDP.load() != 0 {
        // SAFETY: as the caller promises.
        unsafe { note(skb, entry) };
    }
}

/// How the next packet finds its way to a connection's peer: by the addresses noted, or through the kernel's
/// neighbour layer, which is to be noted.
///
/// # Safety
/// `entry` must point to an element.
#[inline(always)]
pub(super) unsafe fn choose(work: *mut Work, entry: *mut ConnEntry, now: u64) {
    // SAFETY: as the caller promises; the work is this CPU's alone. The addresses are read without the
    // entry's lock: they seldom change, and what goes astray then is lost like any packet.
    unsafe {
        let recent = is_recent(entry, now);
        // Loopback needs no addresses.
        (*work).linked = u32::from(recent);
        (*work).notes = u32::from(!recent && ((*entry).oif != LOOPBACK || XDP.load() != 0));
        (*work).link = (*entry).link;
    }
}

/// As [`note`], from a packet that one of the programs has sent. It goes on.
#[inline(always)]
pub(super) fn note_sent(skb: *mut __sk_buff, work: *mut Work) -> Option<i32> {
    if packet::read(skb, work, false) {
        // SAFETY: the work is this CPU's alone, and the entry is locked.
        unsafe {
            let entry = find(&raw const (*work).flow)?;
            let lock = Lock::take(&raw mut (*entry).lock)?;
            note(skb, entry);
            drop(lock);
        }
    }
    None
}
