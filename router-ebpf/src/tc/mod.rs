//! The splice engine's programs: one for packets that arrive, one for packets that leave, and one by
//! which the gateway changes the state of a pair.
//!
//! What is done with a packet is decided by the pure core, [`router_ebpf::splice`]; here packets are
//! read, looked up, and changed. All state is changed by programs alone, under the locks of the
//! entries; they run with softirqs off, so that a lock is held for a moment only.

mod body;
mod carry;
mod command;
mod hook;
mod icmp;
mod link;
pub(crate) mod lock;
mod packet;
mod usual;
mod wait;

use aya_ebpf::{
    Global,
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::{ArrayOfMaps, RingBuf},
    helpers::generated as raw,
    macros::{btf_map, classifier, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::TcContext,
};
use router_ebpf::{
    layout::MAX_WORKERS,
    splice::{
        layout::{Conn, Event, Flow, flag, role},
        translate::{self, flag as tcp},
    },
};

use lock::Lock;
use packet::Work;

/// `BPF_F_MMAPABLE`: user space maps the array's memory.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_NO_PREALLOC`: an entry takes memory only while it is used.
const NO_PREALLOC: u32 = 1;

/// Which element belongs to a connection.
#[map]
static FLOWS: HashMap<Flow, u32> = HashMap::with_max_entries(1, NO_PREALLOC);
/// The connections.
#[map]
static CONNS: Array<Conn> = Array::with_max_entries(1, MMAPABLE);
/// What a program works on: it is too much for its stack.
#[map]
static WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(2, 0);
/// One queue of events per worker thread.
#[btf_map]
static SPLICE_EVENTS: ArrayOfMaps<RingBuf<Event, 65536>, MAX_WORKERS> = ArrayOfMaps::new();

/// What the marks of packets have in common that this process's programs sent: its lowest ten bits are zero.
#[unsafe(no_mangle)]
static MARK: Global<u32> = Global::new(0);
/// Offset of `snd_wnd` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
static SND_WND_OFFSET: Global<u32> = Global::new(0);
/// Offset of `rx_opt.mss_clamp` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
static MSS_CLAMP_OFFSET: Global<u32> = Global::new(0);
/// Offset of `out_of_order_queue` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
static EARLY_OFFSET: Global<u32> = Global::new(0);
/// Offset of `ecn_flags` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
static ECN_FLAGS_OFFSET: Global<u32> = Global::new(0);

/// Not zero: an XDP program may be in front of these, and needs to know the ways.
#[unsafe(no_mangle)]
static XDP: Global<u32> = Global::new(0);

/// Added to [`MARK`]: translated, to be let through.
const SENT: u32 = 1;
/// Added to [`MARK`]: a copy that is to be translated as the packet at ingress says.
const COPY: u32 = 2;
/// Added to both, with [`SENT`]: the Ethernet addresses are to be noted.
const NOTE: u32 = 4;

/// Elements of [`WORK`].
const INGRESS: u32 = 0;
const EGRESS: u32 = 1;

/// On to the next program, or to the network stack.
const NEXT: i32 = TC_ACT_UNSPEC;
const DROP: i32 = TC_ACT_SHOT as i32;

#[classifier]
pub(crate) fn atalho_splice_ingress(ctx: TcContext) -> i32 {
    ingress(&ctx).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_egress(ctx: TcContext) -> i32 {
    egress(ctx.skb.skb).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_report(ctx: TcContext) -> i32 {
    let Some(work) = work(INGRESS) else { return NEXT };
    icmp::ingress(ctx.skb.skb, work).unwrap_or(NEXT)
}

#[classifier]
pub(crate) fn atalho_splice_command(ctx: TcContext) -> i32 {
    command::run(ctx.skb.skb) as i32
}

/// A connection's element.
#[inline(always)]
pub(crate) fn conn(index: u32) -> Option<*mut Conn> {
    CONNS.get_ptr_mut(index)
}

/// The time, in nanoseconds of CLOCK_MONOTONIC, as of the last tick: the processor's counter costs more to read
/// than a packet's addresses to change, and nothing here is about less than a tenth of a second.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: has no conditions.
    unsafe { raw::bpf_ktime_get_coarse_ns() }
}

#[inline(always)]
fn work(index: u32) -> Option<*mut Work> {
    WORK.get_ptr_mut(index)
}

/// The element of a packet's connection.
#[inline(always)]
pub(crate) fn find(flow: *const Flow) -> Option<*mut Conn> {
    // SAFETY: the value is copied at once; the gateway never changes it in place.
    let index = unsafe { *FLOWS.get(&*flow)? };
    conn(index)
}

#[inline(always)]
fn ingress(ctx: &TcContext) -> Option<i32> {
    let skb = ctx.skb.skb;
    let work = work(INGRESS)?;
    wait::arrived(skb, work);
    if !packet::read(skb, work, true) {
        if icmp::may_be_report(skb) {
            // SAFETY: nothing here needs to be dropped.
            unsafe { hook::HOOKS.tail_call(ctx, hook::REPORT) };
        }
        return None;
    }
    // SAFETY: elements of arrays live as long as their maps. The work is this CPU's alone, and the
    // connection is changed under its locks.
    unsafe {
        let entry = find(&raw const (*work).flow)?;
        if !packet::read_options(skb, work) {
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
        if (*work).packet.flags & tcp::FIN != 0 {
            (*entry).flags |= flag::FIN;
        }
        match (*entry).role {
            role::NONE => {
                carry::arrives_at_rest(work, entry);
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
                carry::from_source(skb, work, entry);
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
                carry::from_receiver(work, source);
                carry::note_passed(work, entry);
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
unsafe fn act(skb: *mut __sk_buff, work: *mut Work, own: *mut Conn, other: *mut Conn) -> i32 {
    // SAFETY: as the caller promises; what is read of the elements does not change while they are a pair.
    unsafe {
        match (*work).plan {
            packet::plan::PASS => packet::pass::<true>(skb, work),
            packet::plan::FORWARD => packet::forward(skb, work, other),
            packet::plan::TURN_ROUND => packet::turn_round(skb, work, own),
            packet::plan::SPLIT => {
                (*skb).mark = MARK.load() | COPY;
                raw::bpf_clone_redirect(skb, (*other).oif, 0);
                (*skb).mark = 0;
                packet::pass::<true>(skb, work)
            }
            packet::plan::WAIT => wait::once_more(skb, work),
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
        if !packet::read_options(skb, work) {
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
        match (*entry).role {
            role::NONE => {
                if (*entry).flags & flag::KNOWN == 0 {
                    carry::learn(skb, work, entry);
                }
                carry::leaves_at_rest(work, entry);
                drop(lock);
            }
            role::SOURCE => {
                let Some(pair_lock) = Lock::take(&raw mut (*entry).pair_lock) else {
                    drop(lock);
                    return Some(DROP);
                };
                carry::leaves(work, entry, translate::Side::Source);
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
                carry::leaves(work, source, translate::Side::Receiver);
                drop(pair_lock);
                drop(lock);
            }
        }
        if (*work).plan == packet::plan::PASS {
            Some(packet::pass::<false>(skb, work))
        } else {
            Some(DROP)
        }
    }
}

/// The addresses are those of another connection now, or of none.
///
/// # Safety
/// `entry` must point to an element.
#[inline(always)]
unsafe fn forget(entry: *mut Conn) {
    // SAFETY: the flow never changes while an entry can be found.
    let _ = unsafe { FLOWS.remove(&(*entry).flow) };
}
