//! The Ethernet addresses of what goes to a peer, for the XDP program.
//!
//! They are read from packets that the kernel's neighbour layer has addressed: the socket's own, and
//! one that is forwarded each second.

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::{bpf_ktime_get_ns, generated as raw},
};
use router_ebpf::splice::layout::{Conn, LINK_RENEW};

use super::{XDP, find, lock::Lock, packet, packet::Work};
use crate::xdp;

/// Whether the way to a connection's peer should be noted anew.
///
/// # Safety
/// `entry` must point to an element.
#[inline(always)]
pub(super) unsafe fn is_old(entry: *mut Conn) -> bool {
    // SAFETY: as the caller promises; a word that is written whole.
    XDP.load() != 0 && unsafe { bpf_ktime_get_ns().wrapping_sub((*entry).link_ns) > LINK_RENEW }
}

/// Notes the way to a connection's peer from a packet that goes there.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
pub(super) unsafe fn note(skb: *mut __sk_buff, entry: *mut Conn) {
    // SAFETY: as the caller promises; the helper writes as many bytes as there are.
    unsafe {
        if !is_old(entry) || (*skb).ifindex != (*entry).oif || !xdp::is_target((*skb).ifindex) {
            return;
        }
        let mut addresses = [0u8; 12];
        if raw::bpf_skb_load_bytes(skb.cast(), 0, (&raw mut addresses).cast(), 12) != 0 {
            return;
        }
        (*entry).link = addresses;
        (*entry).link_ns = bpf_ktime_get_ns();
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
