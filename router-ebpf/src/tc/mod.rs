//! The splice engine's programs: one for packets that arrive, one for packets that leave, and one by
//! which the gateway changes the state of a pair.
//!
//! What is done with a packet is decided by the pure core, [`router_ebpf::splice`]; here packets are
//! read, looked up, and changed. All state is changed by programs alone, under the locks of the
//! entries; they run with softirqs off, so that a lock is held for a moment only.

mod body;
mod clsact;
mod command;
mod fast_path;
mod icmp_error;
mod link;
pub(crate) mod lock;
pub(crate) mod maps;
mod packet;
mod pair;
mod reorder;
mod slow_path;
mod work;

use aya_ebpf::{
    bindings::__sk_buff, helpers::generated as raw, macros::classifier, programs::TcContext,
};
use router_ebpf::splice::{
    layout::{ConnEntry, flag, role},
    packet::flag as tcp,
    verdict::Side,
};

use lock::Lock;
use maps::{COPY, DROP, EGRESS, FLOWS, INGRESS, MARK, NEXT, NOTE, SENT, conn, find, work};
use work::{Work, plan};

#[classifier]
pub(crate) fn atalho_splice_ingress(ctx: TcContext) -> i32 {
    ingress(&ctx).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_egress(ctx: TcContext) -> i32 {
    egress(ctx.skb.skb).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_icmp_error(ctx: TcContext) -> i32 {
    let Some(work) = work(INGRESS) else { return NEXT };
    icmp_error::ingress(ctx.skb.skb, work).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_command(ctx: TcContext) -> i32 {
    command::run(ctx.skb.skb) as i32
}

#[inline(always)]
fn ingress(ctx: &TcContext) -> Option<i32> {
    let skb = ctx.skb.skb;
    let work = work(INGRESS)?;
    reorder::arrived(skb, work);
    if !packet::read(skb, work, true) {
        if icmp_error::may_be(skb) {
            // SAFETY: nothing here needs to be dropped.
            unsafe { clsact::HOOKS.tail_call(ctx, clsact::ICMP_ERROR) };
        }
        return None;
    }
    // SAFETY: elements of arrays live as long as their maps. The work is this CPU's alone, and the
    // connection is changed under its locks.
    unsafe {
        let entry = find(&raw const (*work).flow)?;
        if !slow_path::read_options(skb, work) {
            return None;
        }
        if (*work).packet.flags & tcp::SYN != 0 {
            // Anybody can send one. If it opens a connection, the answer to it tells.
            if (*entry).flags & flag::CLOSED != 0 {
                forget(entry);
            }
            return None;
        }
        let Some(lock) = Lock::take(&raw mut (*entry).lock) else { return Some(DROP) };
        if (*work).packet.flags & (tcp::FIN | tcp::RST) != 0 {
            (*entry).flags |= flag::ENDED;
        }
        match (*entry).role {
            role::NONE => {
                pair::arrives_at_rest(work, entry);
                drop(lock);
                Some(packet::pass::<true>(skb, work))
            }
            role::SOURCE => {
                let Some(pair_lock) = Lock::take(&raw mut (*entry).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                let Some(other) = conn((*entry).other) else {
                    drop(pair_lock);
                    drop(lock);
                    return Some(DROP);
                };
                pair::from_source(skb, work, entry);
                link::choose(work, other, (*entry).last_ns);
                (*work).other = (*entry).other;
                drop(pair_lock);
                drop(lock);
                Some(act(skb, work, entry, other))
            }
            _ => {
                let Some(source) = conn((*entry).other) else {
                    drop(lock);
                    return Some(DROP);
                };
                let Some(pair_lock) = Lock::take(&raw mut (*source).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                pair::from_receiver(work, source);
                pair::note_passed(work, entry);
                link::choose(work, source, (*source).last_ns);
                (*work).other = (*entry).other;
                drop(pair_lock);
                drop(lock);
                Some(act(skb, work, entry, source))
            }
        }
    }
}

/// Does with a packet that arrived what the plan says: `own` is its connection, and `other` that of the
/// other peer.
///
/// # Safety
/// Both must point to elements.
#[inline(always)]
unsafe fn act(
    skb: *mut __sk_buff,
    work: *mut Work,
    own: *mut ConnEntry,
    other: *mut ConnEntry,
) -> i32 {
    // SAFETY: as the caller promises; what is read of the elements does not change while they are a pair.
    unsafe {
        match (*work).plan {
            plan::PASS => packet::pass::<true>(skb, work),
            plan::FORWARD => packet::forward(skb, work, other),
            plan::TURN_ROUND => packet::turn_round(skb, work, own),
            plan::SPLIT => {
                (*skb).mark = MARK.load() | COPY;
                raw::bpf_clone_redirect(skb, (*other).oif, 0);
                (*skb).mark = 0;
                packet::pass::<true>(skb, work)
            }
            plan::WAIT => reorder::once_more(skb, work),
            _ => DROP,
        }
    }
}

#[inline(always)]
fn egress(skb: *mut __sk_buff) -> Option<i32> {
    // SAFETY: reads and writes the context.
    unsafe {
        let mark = (*skb).mark;
        if mark == MARK.load() | SENT {
            (*skb).mark = 0;
            return None;
        }
        if mark == MARK.load() | SENT | NOTE {
            (*skb).mark = 0;
            return link::note_sent(skb, work(EGRESS)?);
        }
        if mark == MARK.load() | COPY {
            return Some(packet::forward_copy(skb, work(INGRESS)?));
        }
    }
    let work = work(EGRESS)?;
    if !packet::read(skb, work, false) {
        return None;
    }
    // SAFETY: as in `ingress`.
    unsafe {
        let entry = find(&raw const (*work).flow)?;
        if !slow_path::read_options(skb, work) {
            return None;
        }
        if (*work).packet.flags & tcp::SYN != 0 {
            // The kernel opens another connection with these addresses: the socket is gone, whether the
            // gateway has closed it already or not.
            forget(entry);
            return None;
        }
        let lock = Lock::take(&raw mut (*entry).lock);
        let Some(lock) = lock else { return Some(DROP) };
        if (*entry).oif != (*skb).ifindex {
            // The addresses noted are those of another link.
            (*entry).oif = (*skb).ifindex;
            (*entry).link_ns = 0;
        }
        link::note_own(skb, entry);
        if (*work).packet.flags & tcp::RST != 0 {
            // The socket is gone, and the peer's will be: nothing waits for its FIN.
            (*entry).flags |= flag::ENDED;
        }
        match (*entry).role {
            role::NONE => {
                if (*entry).flags & flag::KNOWN == 0 {
                    pair::learn(skb, work, entry);
                }
                pair::leaves_at_rest(work, entry);
                drop(lock);
            }
            role::SOURCE => {
                let Some(pair_lock) = Lock::take(&raw mut (*entry).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                pair::leaves(work, entry, Side::Source);
                drop(pair_lock);
                drop(lock);
            }
            _ => {
                let Some(source) = conn((*entry).other) else {
                    drop(lock);
                    return Some(DROP);
                };
                let Some(pair_lock) = Lock::take(&raw mut (*source).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                pair::leaves(work, source, Side::Receiver);
                drop(pair_lock);
                drop(lock);
            }
        }
        if (*work).plan == plan::PASS { Some(packet::pass::<false>(skb, work)) } else { Some(DROP) }
    }
}

/// The addresses are those of another connection now, or of none.
///
/// # Safety
/// `entry` must point to an element.
#[inline(always)]
unsafe fn forget(entry: *mut ConnEntry) {
    // SAFETY: the flow never changes while an entry can be found.
    let _ = unsafe { FLOWS.remove(&(*entry).flow) };
}
