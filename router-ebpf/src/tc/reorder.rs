//! Packets that wait for those before them.
//!
//! Two processors may move packets of one connection at the same time: a server's own thread sends
//! some, and the acknowledgements that come in send others. Then one overtakes another by a few
//! microseconds. A packet that is ahead of where a body is parsed goes to the end of its interface's queue
//! and comes again, for as many turns as fit into its mark; what is missing by then is lost, or on another
//! way.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS},
    helpers::generated as raw,
};

use router_ebpf::splice::state::Splice;

use super::{
    maps::{MARK, XDP},
    work::Work,
};

/// Added to [`MARK`]: it waits.
const WAITING: u32 = 8;
/// How often it has come again.
const MAX_TURNS: u32 = 0x3f0;
const ONE_TURN: u32 = 0x10;

/// Notes how often a packet that arrives has waited, and takes its mark away.
#[inline(always)]
pub(super) fn arrived(skb: *mut __sk_buff, work: *mut Work) {
    // SAFETY: reads and writes the context; the work is this CPU's alone.
    unsafe {
        let mark = (*skb).mark;
        (*work).turns = 0;
        if mark & !MAX_TURNS == MARK.load() | WAITING {
            (*work).turns = mark & MAX_TURNS;
            (*skb).mark = 0;
        }
    }
}

/// The furthest that a packet overtakes others by, in bytes: four aggregates. What is further ahead has lost
/// something on its way, and would only fill the processor's queue, with what comes behind it.
const MAX_REORDER_BYTES: i64 = 256 * 1024;
/// The same where drivers forward. There, packets of a connection come in the order in which a driver took them, one
/// by one and faster, and more of them fill the queue until it overflows. Within an aggregate that the source's
/// host has cut up they may still change places.
const MAX_REORDER_BYTES_XDP: i64 = 64 * 1024;

/// Whether it may wait once more.
#[inline(always)]
pub(super) fn may_wait(work: *mut Work, splice: &Splice) -> bool {
    // SAFETY: the work is this CPU's alone.
    let (turns, number) = unsafe { ((*work).turns, (*work).packet.seq) };
    let ahead = splice.position(number) - splice.parsed as i64;
    let reach = if XDP.load() == 0 { MAX_REORDER_BYTES } else { MAX_REORDER_BYTES_XDP };
    turns < MAX_TURNS && ahead <= reach
}

/// Lets it come again, behind what is in the queue.
#[inline(always)]
pub(super) fn once_more(skb: *mut __sk_buff, work: *mut Work) -> i32 {
    // SAFETY: as above.
    unsafe {
        (*skb).mark = MARK.load() | WAITING | ((*work).turns + ONE_TURN);
        raw::bpf_redirect((*skb).ifindex, BPF_F_INGRESS as u64) as i32
    }
}
