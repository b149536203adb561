//! Reading packets, changing them, and sending them on.

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::splice::{
    layout::{ConnEntry, Flow},
    packet::Packet,
    timestamps::Timestamps,
};

use super::{
    fast_path,
    maps::{DROP, MARK, NEXT, NOTE, SENT, conn},
    slow_path,
    work::{Work, kind, plan},
};

/// Reads the headers but for the TCP options. False when it is no TCP segment that could be of a
/// spliced connection: fragments, extension headers and tagged frames are not.
#[inline(always)]
pub(super) fn read(skb: *mut __sk_buff, work: *mut Work, arrives: bool) -> bool {
    fast_path::read(skb, work, arrives) || slow_path::read(skb, work, arrives)
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
pub(super) unsafe fn forward(skb: *mut __sk_buff, work: *mut Work, other: *mut ConnEntry) -> i32 {
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
pub(super) unsafe fn turn_round(skb: *mut __sk_buff, work: *mut Work, own: *mut ConnEntry) -> i32 {
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
        if IN_PLACE && w.kind != kind::OTHER && (*to).len == w.packet.len {
            let flow = if flow.is_null() { None } else { Some(&*flow) };
            return fast_path::write(skb, w, &*to, flow, link);
        }
        if !slow_path::apply(skb, work, to, flow) {
            return false;
        }
        match link {
            Some(link) => raw::bpf_skb_store_bytes(skb, 0, link.as_ptr().cast(), 12, 0) == 0,
            None => true,
        }
    }
}
