//! A bad wire: takes every frame that comes in at one end to the other end, and on the way loses,
//! repeats, or puts aside some of those that carry TCP or UDP.
#![no_std]
#![no_main]
// Assembly for BPF is not stable yet; the compiler has no atomics with a result for this target.
#![feature(asm_experimental_arch)]

use core::arch::asm;

use aya_ebpf::{
    bindings::{BPF_F_INGRESS, TC_ACT_OK, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::{bpf_redirect, generated::bpf_skb_vlan_push},
    macros::{classifier, map},
    maps::Array,
    programs::TcContext,
};
use wire::{COUNTERS, ENDS, Fate, Settings, fate, setting};

/// Of each direction.
#[map]
static SETTINGS: Array<Settings> = Array::with_max_entries(ENDS, 0);
/// The number of the next packet of each direction.
#[map]
static NUMBERS: Array<u64> = Array::with_max_entries(ENDS, 0);
/// Packets by fate.
#[map]
static COUNTS: Array<u64> = Array::with_max_entries(ENDS * COUNTERS, 0);

/// Packets that other programs have seen at ingress and at egress.
#[map]
static SEEN: Array<u64> = Array::with_max_entries(2, 0);

/// Somebody else's program: counts what arrives.
#[classifier]
pub(crate) fn sees_arriving(_: TcContext) -> i32 {
    see(0)
}

/// Counts what leaves.
#[classifier]
pub(crate) fn sees_leaving(_: TcContext) -> i32 {
    see(1)
}

/// Of a frame's tag: the network itself (VLAN 0), and a priority.
const PRIORITY: u16 = 0x6000;

/// Gives what leaves a tag with a priority alone. It is of the same network as without it.
#[classifier]
pub(crate) fn gives_priority(ctx: TcContext) -> i32 {
    const TAGGED: u16 = 0x8100u16.to_be();
    // SAFETY: changes the packet.
    let failed = unsafe { bpf_skb_vlan_push(ctx.skb.skb, TAGGED, PRIORITY) } != 0;
    if failed { TC_ACT_SHOT as i32 } else { see(1) }
}

/// Lets nobody behind it have a packet.
#[classifier]
pub(crate) fn ends_here(_: TcContext) -> i32 {
    TC_ACT_OK as i32
}

/// Of the long frames, one of so many is overtaken.
const OVERTAKEN: u64 = 4;
/// The mark of a frame that was.
const BEHIND: u32 = 1;

/// Sends some long frames to the end of the queue: those that arrived with one overtake it, as they may
/// where two processors carry a connection's packets. Counts them.
#[classifier]
pub(crate) fn falls_behind(ctx: TcContext) -> i32 {
    // SAFETY: reads and writes the context and elements, which only this function uses.
    unsafe {
        let skb = ctx.skb.skb;
        if (*skb).mark != 0 || (*skb).len < 1000 {
            return TC_ACT_UNSPEC;
        }
        let (Some(number), Some(seen)) = (NUMBERS.get_ptr_mut(0), SEEN.get_ptr_mut(0)) else {
            return TC_ACT_UNSPEC;
        };
        if !count(number).is_multiple_of(OVERTAKEN) {
            return TC_ACT_UNSPEC;
        }
        count(seen);
        (*skb).mark = BEHIND;
        bpf_redirect((*skb).ifindex, BPF_F_INGRESS as u64) as i32
    }
}

#[inline(always)]
fn see(way: u32) -> i32 {
    if let Some(seen) = SEEN.get_ptr_mut(way) {
        // SAFETY: an element; a count that is off by a few will do.
        unsafe { *seen += 1 };
    }
    TC_ACT_UNSPEC
}

/// Attached where frames come in at the left end.
#[classifier]
pub(crate) fn from_left(ctx: TcContext) -> i32 {
    carry(&ctx, 0)
}

/// Attached where frames come in at the right end.
#[classifier]
pub(crate) fn from_right(ctx: TcContext) -> i32 {
    carry(&ctx, 1)
}

#[inline(always)]
fn carry(ctx: &TcContext, end: u32) -> i32 {
    let Some(settings) = SETTINGS.get(end) else { return TC_ACT_SHOT };
    let out = settings[setting::OUT] as u32;
    let hold = settings[setting::HOLD] as u32;
    // Neighbours must find each other: ARP and ICMP are left in peace.
    let fate = if transport(ctx) { decide(settings, end) } else { Fate::Pass };
    match fate {
        Fate::Pass => {}
        Fate::Lose => return TC_ACT_SHOT,
        Fate::Delay => return redirect(hold),
        Fate::Repeat => {
            // A copy that cannot be made is a packet lost behind its original: no harm.
            let _ = ctx.clone_redirect(out, 0);
        }
        Fate::Echo => {
            let _ = ctx.clone_redirect(hold, 0);
        }
    }
    redirect(out)
}

#[inline(always)]
fn redirect(interface: u32) -> i32 {
    // SAFETY: takes no memory.
    (unsafe { bpf_redirect(interface, 0) }) as i32
}

#[inline(always)]
fn decide(settings: &Settings, end: u32) -> Fate {
    let Some(number) = NUMBERS.get_ptr_mut(end) else { return Fate::Pass };
    // SAFETY: points to an element of a map, which only this function writes.
    let number = unsafe { count(number) };
    let fate = fate(settings, number);
    if let Some(counter) = COUNTS.get_ptr_mut(end * COUNTERS + fate as u32) {
        // SAFETY: as above.
        unsafe { count(counter) };
    }
    fate
}

/// Whether the frame carries TCP or UDP. (Fragments count as what they are fragments of.)
#[inline(always)]
fn transport(ctx: &TcContext) -> bool {
    const ETHERNET: usize = 14;
    let Ok(kind) = ctx.load::<u16>(12) else { return false };
    let protocol = match u16::from_be(kind) {
        0x0800 => ctx.load::<u8>(ETHERNET + 9),
        0x86dd => ctx.load::<u8>(ETHERNET + 6),
        _ => return false,
    };
    matches!(protocol, Ok(6 | 17))
}

/// Adds one, and returns what was there before.
///
/// # Safety
/// `word` points to an aligned word of a map that is accessed only like this.
#[inline(always)]
unsafe fn count(word: *mut u64) -> u64 {
    let mut old = 1u64;
    // SAFETY: as the caller promises.
    unsafe {
        asm!("{v} = atomic_fetch_add((u64 *)({p} + 0), {v})", v = inout(reg) old, p = in(reg) word);
    }
    old
}

/// Some helpers serve only programs under the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
