//! Following a body through the packets of its source.

use aya_ebpf::bindings::__sk_buff;
use router_ebpf::splice::{
    layout::{ConnEntry, stop},
    state::{Look, UNKNOWN},
};

use super::work::Work;
use crate::body::Walk;

/// Follows the body through a packet with payload: says why the splice must stop before it, if it
/// must.
///
/// # Safety
/// The locks of the source and its pair must be held.
#[inline(always)]
pub(super) unsafe fn follow(skb: *mut __sk_buff, work: *mut Work, source: *mut ConnEntry) -> u32 {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let w = &mut *work;
        let source = &mut *source;
        if !source.pair.accepts(w.packet.ack) {
            return stop::NONE;
        }
        let splice = &mut source.pair.splice;
        let at = splice.position(w.packet.seq);
        let end = at + w.packet.len as i64;
        if at < 0 || end > splice.promised {
            return stop::NONE;
        }
        if end > source.most as i64 {
            return stop::TOO_LONG;
        }
        if splice.length != UNKNOWN {
            let length = splice.length as i64;
            return if at < length && end > length { stop::CROSSED } else { stop::NONE };
        }
        let skip = match splice.look(w.packet.seq, w.packet.len) {
            Look::Known => return stop::NONE,
            Look::Parse(skip) => skip,
            Look::Hole => return stop::HOLE,
        };
        let start = w.payload();
        let walk = Walk::run(skb, &splice.framing, start + skip, start + w.packet.len);
        if walk.framing.error().is_some() {
            return stop::MALFORMED;
        }
        if !walk.is_whole() {
            return if walk.framing.is_done() { stop::CROSSED } else { stop::TOO_MANY_CHUNKS };
        }
        splice.framing = walk.framing;
        splice.parse((w.packet.len - skip) as u64);
        stop::NONE
    }
}
