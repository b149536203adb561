//! The splice engine's program in drivers: what needs neither a copy nor another length is forwarded
//! before a socket buffer exists.
//!
//! It sits in front of the `tc` programs, shares their state and its locks, and lets them have
//! whatever [`router_ebpf::splice::fast_path`] does not name, untouched.

mod packet;

use aya_ebpf::{
    bindings::{xdp_action, xdp_md},
    helpers::generated as raw,
    macros::{map, xdp},
    maps::{HashMap, PerCpuArray},
    programs::XdpContext,
};
use router_ebpf::splice::{
    fast_path,
    layout::{ConnEntry, LINK_FRESH, XDP_INTERFACES, flag, role},
    state::{Pair, UNKNOWN},
    translate,
    verdict::Plan,
};

use crate::tc::{
    lock::Lock,
    maps::{conn, find, now},
};
use packet::Work;

/// Interfaces that frames may be redirected to. Whether a driver takes them depends on its state, so
/// the gateway looks from time to time.
#[map]
static XDP_TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(XDP_INTERFACES, 0);
/// Packets forwarded.
#[map]
static XDP_FORWARDED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);
#[map]
static XDP_WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(1, 0);

#[xdp(frags)]
pub(crate) fn atalho_splice_xdp(ctx: XdpContext) -> u32 {
    forward(ctx.ctx).unwrap_or(xdp_action::XDP_PASS)
}

/// Whether frames may be redirected to an interface.
#[inline(always)]
pub(crate) fn is_target(interface: u32) -> bool {
    // SAFETY: the value is not looked at.
    unsafe { XDP_TARGETS.get(&interface) }.is_some()
}

#[inline(always)]
fn forward(ctx: *mut xdp_md) -> Option<u32> {
    let work = XDP_WORK.get_ptr_mut(0)?;
    if !packet::read(ctx, work) {
        return None;
    }
    // SAFETY: elements of arrays live as long as their maps. The work is this CPU's alone, and the
    // connection is changed under its locks.
    unsafe {
        let entry = find(&raw const (*work).flow)?;
        if (*entry).role == role::NONE || (*entry).flags & flag::CLOSED != 0 {
            return None;
        }
        if !packet::read_options(ctx, work) {
            return None;
        }
        let lock = Lock::take(&raw mut (*entry).lock)?;
        let other = conn((*entry).other);
        let taken = match ((*entry).role, other) {
            (role::SOURCE, Some(other)) => match Lock::take(&raw mut (*entry).pair_lock) {
                Some(pair_lock) => {
                    let taken = from_source(ctx, work, entry, other);
                    drop(pair_lock);
                    taken
                }
                None => false,
            },
            (role::RECEIVER, Some(source)) => match Lock::take(&raw mut (*source).pair_lock) {
                Some(pair_lock) => {
                    let taken = from_receiver(ctx, work, source);
                    drop(pair_lock);
                    taken
                }
                None => false,
            },
            _ => false,
        };
        drop(lock);
        let other = other?;
        if !taken {
            return None;
        }
        if !packet::apply(ctx, work, other) {
            return Some(xdp_action::XDP_DROP);
        }
        if let Some(count) = XDP_FORWARDED.get_ptr_mut(0) {
            *count += 1;
        }
        Some(raw::bpf_redirect((*other).oif, 0) as u32)
    }
}

/// Whether the way to a connection's peer is known, and long enough for this frame.
#[inline(always)]
unsafe fn reaches(ctx: *mut xdp_md, other: *mut ConnEntry, now: u64) -> bool {
    // SAFETY: an element. The way is read without its lock: it seldom changes, and what goes astray
    // then is lost like any packet.
    unsafe {
        now.wrapping_sub((*other).link_ns) < LINK_FRESH
            && is_target((*other).oif)
            && packet::fits(ctx, (*other).oif)
    }
}

#[inline(always)]
unsafe fn from_source(
    ctx: *mut xdp_md,
    work: *mut Work,
    source: *mut ConnEntry,
    receiver: *mut ConnEntry,
) -> bool {
    // SAFETY: the locks of the source and its pair are held.
    unsafe {
        let now = now();
        let (w, source) = (&mut *work, &mut *source);
        if !fast_path::from_source(&source.pair, &w.packet) || !reaches(ctx, receiver, now) {
            return false;
        }
        let splice = &mut source.pair.splice;
        let len = w.packet.len as u64;
        if splice.forwarded + len > source.most {
            return false;
        }
        if splice.length == UNKNOWN {
            let Some(framing) = packet::follow(ctx, work, &splice.framing) else { return false };
            splice.framing = framing;
            splice.parse(len);
        }
        source.last_ns = now;
        decide_source(work, &raw mut source.pair) != 0
    }
}

#[inline(always)]
unsafe fn from_receiver(ctx: *mut xdp_md, work: *mut Work, source: *mut ConnEntry) -> bool {
    // SAFETY: the locks of the receiver and the pair are held.
    unsafe {
        let now = now();
        let w = &mut *work;
        if !fast_path::from_receiver(&(*source).pair, &w.packet) || !reaches(ctx, source, now) {
            return false;
        }
        (*source).last_ns = now;
        decide_receiver(work, &raw mut (*source).pair) != 0
    }
}

/// Not zero when the packet is to be forwarded, as it must be.
#[inline(never)]
fn decide_source(work: *mut Work, pair: *mut Pair) -> u32 {
    // SAFETY: as in `from_source`.
    unsafe {
        let w = &mut *work;
        translate::from_source(&mut *pair, &w.packet, &mut w.outcome);
        w.out = w.outcome.peer;
        u32::from(w.outcome.plan == Plan::Forward)
    }
}

/// Not zero when the packet is to be forwarded, as it must be.
#[inline(never)]
fn decide_receiver(work: *mut Work, pair: *mut Pair) -> u32 {
    // SAFETY: as in `from_receiver`.
    unsafe {
        let w = &mut *work;
        translate::from_receiver(&mut *pair, &w.packet, &mut w.outcome);
        w.out = w.outcome.peer;
        u32::from(w.outcome.plan == Plan::Forward)
    }
}
