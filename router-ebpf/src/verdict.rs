//! The sockmap engine's program: for every skb that arrives on a source socket it decides whether
//! user space gets it, or the target socket.
//!
//! It runs under the source socket's lock, one skb at a time, with whole skbs only: it cannot split
//! one. See docs/kernel.md for the protocol.

use core::{ffi::c_void, sync::atomic::AtomicU64};

use aya_ebpf::{
    Global,
    bindings::{__sk_buff, sk_action},
    btf_maps::{ArrayOfMaps, RingBuf},
    helpers::{bpf_ktime_get_ns, generated as raw},
    macros::{btf_map, map, stream_verdict},
    maps::{Array, HashMap, SockHash},
    programs::SkBuffContext,
};
use aya_log_ebpf::{debug, warn};
use router_ebpf::{
    framing::Framing,
    handover,
    layout::{Direction, Event, InFlight, MAX_WORKERS, SKB_OVERHEAD, stop},
};

use crate::atomic;

/// `BPF_F_MMAPABLE`: user space maps the array's memory.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_NO_PREALLOC`: an entry takes memory only while it is used.
const NO_PREALLOC: u32 = 1;

/// Sockets whose skbs this program sees, by socket cookie.
#[map]
static SOURCES: SockHash<u64> = SockHash::with_max_entries(1, 0);
/// Sockets that skbs may be redirected to, by socket cookie. No program is attached.
#[map]
static TARGETS: SockHash<u64> = SockHash::with_max_entries(1, 0);
/// The direction of a source, by socket cookie.
#[map]
static SLOTS: HashMap<u64, u32> = HashMap::with_max_entries(1, NO_PREALLOC);
/// The directions.
#[map]
static DIRECTIONS: Array<Direction> = Array::with_max_entries(1, MMAPABLE);
/// In-flight counters, one per instance.
#[map]
static IN_FLIGHT: Array<InFlight> = Array::with_max_entries(1, MMAPABLE);
/// One queue of events per worker thread.
#[btf_map]
static EVENTS: ArrayOfMaps<RingBuf<Event, 65536>, MAX_WORKERS> = ArrayOfMaps::new();

/// Offset of `write_seq` in `struct tcp_sock`, in bytes; set when the program is loaded.
#[unsafe(no_mangle)]
static WRITE_SEQ_OFFSET: Global<u32> = Global::new(0);
/// Offset of `copied_seq` in `struct tcp_sock`, in bytes; set when the program is loaded.
#[unsafe(no_mangle)]
static COPIED_SEQ_OFFSET: Global<u32> = Global::new(0);

/// Most steps of the chunk machine in one skb: a step is a byte of a chunk's line, or the payload of
/// a chunk. Enough for about 500 chunks, and short enough not to hold up the processor.
const MAX_STEPS: u32 = 4096;

#[stream_verdict]
pub(crate) fn atalho_verdict(ctx: SkBuffContext) -> u32 {
    verdict(&ctx)
}

#[inline(always)]
fn verdict(ctx: &SkBuffContext) -> u32 {
    let skb = ctx.skb.skb;
    // A FIN without data. Redirected, it would break the target.
    if len_of(skb) == 0 {
        return sk_action::SK_PASS;
    }
    // SAFETY: the helper takes the program's context.
    let cookie = unsafe { raw::bpf_get_socket_cookie(skb.cast()) };
    // SAFETY: the value is copied at once; user space never changes a direction's index.
    let Some(&index) = (unsafe { SLOTS.get(&cookie) }) else { return sk_action::SK_PASS };
    let Some(direction) = DIRECTIONS.get_ptr_mut(index) else { return sk_action::SK_PASS };
    // SAFETY: an element of the array lives as long as the map. This program is the only one that
    // accesses the plain fields now: it runs under the socket's lock, and user space writes them
    // only before the swap that the fetch-add below sees.
    let direction = unsafe { &mut *direction };

    if !cut_repeated(ctx, direction) {
        set(&direction.stop, stop::BROKEN as u64);
        latch(direction, index);
        warn!(ctx, "direction {}: repeated bytes could not be cut off", index);
        return sk_action::SK_DROP;
    }
    let len = len_of(skb);
    let old = add(&direction.word, len as u64);
    if !handover::redirects(old) {
        return sk_action::SK_PASS;
    }
    match redirect(ctx, direction, len) {
        Redirected::Within => {}
        Redirected::End => {
            release(direction);
            set(&direction.stop, stop::ENDED as u64);
            latch(direction, index);
        }
        Redirected::Stop(reason) => {
            set(&direction.stop, reason as u64);
            latch(direction, index);
            debug!(ctx, "direction {}: stop {}", index, reason);
        }
    }
    sk_action::SK_PASS
}

/// What became of an skb that was to be redirected.
enum Redirected {
    /// Redirected.
    Within,
    /// Redirected, and the body ends with it.
    End,
    /// Not redirected: user space gets it.
    Stop(u32),
}

#[inline(always)]
fn redirect(ctx: &SkBuffContext, direction: &mut Direction, len: u32) -> Redirected {
    let key = direction.target;
    let Some(write_seq) = write_seq_of_target(&key) else {
        return Redirected::Stop(stop::NO_TARGET);
    };
    let redirected = get(&direction.redirected);
    if redirected + len as u64 > direction.most {
        return Redirected::Stop(stop::TOO_LONG);
    }
    if direction.skbs == 0 {
        // Nothing but redirects moves it from here on.
        direction.base = write_seq;
        direction.mean_len = len;
    }
    let mean_len = direction.mean_len - direction.mean_len / 8 + len / 8;
    let backlog = (redirected as u32).wrapping_sub(write_seq.wrapping_sub(direction.base));
    let backlog = backlog as u64 + len as u64;
    let skbs = backlog / (mean_len as u64 + 1);
    if backlog + skbs * SKB_OVERHEAD as u64 > direction.backlog_limit as u64 {
        return Redirected::Stop(stop::BACKLOG);
    }

    let mut framing = direction.framing;
    let follow = follow(ctx, &mut framing, len);
    if follow > stop::ENDED {
        return Redirected::Stop(follow);
    }
    // Until here the framing stands before this skb, which is what user space needs if it gets it.
    if TARGETS.redirect_skb(ctx, key, 0) != sk_action::SK_PASS as i64 {
        return Redirected::Stop(stop::NO_TARGET);
    }
    direction.framing = framing;
    direction.mean_len = mean_len;
    direction.skbs = direction.skbs.wrapping_add(1);
    set(&direction.redirected, redirected + len as u64);
    // SAFETY: takes nothing.
    set(&direction.last_ns, unsafe { bpf_ktime_get_ns() });
    if follow == stop::ENDED { Redirected::End } else { Redirected::Within }
}

/// Follows the body through an skb: zero when it goes on behind it, else one of [`stop`].
#[inline(always)]
fn follow(ctx: &SkBuffContext, framing: &mut Framing, len: u32) -> u32 {
    if framing.in_payload() {
        let taken = framing.skip(len as u64);
        if taken == len as u64 {
            return if framing.is_done() { stop::ENDED } else { 0 };
        }
        if framing.is_done() {
            return stop::CROSSED;
        }
        return follow_chunks(ctx, framing, taken as u32, len);
    }
    follow_chunks(ctx, framing, 0, len)
}

/// What the steps through the chunks of an skb work on.
struct Walk {
    skb: *mut __sk_buff,
    framing: Framing,
    at: u32,
    len: u32,
}

#[inline(always)]
fn follow_chunks(ctx: &SkBuffContext, framing: &mut Framing, at: u32, len: u32) -> u32 {
    let mut walk = Walk { skb: ctx.skb.skb, framing: *framing, at, len };
    // SAFETY: the callback has the signature that the helper calls, and `walk` lives through it.
    unsafe {
        raw::bpf_loop(MAX_STEPS, step as *mut c_void, (&raw mut walk).cast(), 0);
    }
    *framing = walk.framing;
    if walk.framing.error().is_some() {
        stop::MALFORMED
    } else if walk.at < len {
        if walk.framing.is_done() { stop::CROSSED } else { stop::TOO_MANY_CHUNKS }
    } else if walk.framing.is_done() {
        stop::ENDED
    } else {
        0
    }
}

/// One step: the payload of a chunk, or one byte of a line. Returns 1 to stop.
unsafe extern "C" fn step(_index: u32, walk: *mut Walk) -> u64 {
    // SAFETY: called by the helper with the pointer given to it.
    let walk = unsafe { &mut *walk };
    if walk.at >= walk.len || walk.framing.is_done() {
        return 1;
    }
    if walk.framing.in_payload() {
        walk.at += walk.framing.skip((walk.len - walk.at) as u64) as u32;
        return 0;
    }
    let mut byte = 0u8;
    // SAFETY: the destination is one byte, as the length says.
    let failed = unsafe {
        raw::bpf_skb_load_bytes(walk.skb.cast(), walk.at, (&raw mut byte).cast(), 1) != 0
    };
    if failed {
        // Within the skb's length it does not fail; if it did, user space would take over.
        return 1;
    }
    walk.framing.step(byte);
    walk.at += 1;
    u64::from(walk.framing.error().is_some())
}

/// Cuts off bytes that the stream has had already.
///
/// A retransmission may begin before what has been received (its acknowledgement was lost, and the
/// sender merged it with newer data). The kernel hands such an skb over whole. False when the bytes
/// could not be cut off.
#[inline(always)]
fn cut_repeated(ctx: &SkBuffContext, direction: &mut Direction) -> bool {
    let skb = ctx.skb.skb;
    let len = len_of(skb);
    // SAFETY: reads the context. TCP keeps the sequence number in the first word of the control
    // block (struct tcp_skb_cb), which the loader checks.
    let seq = unsafe { (*skb).cb[0] };
    if direction.seq_known == 0 {
        let Some(copied) = copied_seq(ctx) else { return true };
        direction.next_seq = copied;
        direction.seq_known = 1;
    }
    let repeated = direction.next_seq.wrapping_sub(seq);
    if repeated != 0 && repeated < len {
        direction.repeated = direction.repeated.wrapping_add(repeated);
        if !cut_front(ctx, repeated) {
            return false;
        }
    }
    direction.next_seq = seq.wrapping_add(len);
    true
}

/// Cuts bytes off an skb's front.
#[inline(never)]
fn cut_front(ctx: &SkBuffContext, bytes: u32) -> bool {
    // The helper's limit for one call.
    const MOST: u32 = 0xfff;
    let mut left = bytes;
    // Enough for the longest skb without BIG TCP, whose receivers do not overlap by as much.
    for _ in 0..20 {
        if left == 0 {
            break;
        }
        let cut = if left > MOST { MOST } else { left };
        // SAFETY: the helper takes the program's context.
        if unsafe { raw::bpf_skb_adjust_room(ctx.skb.skb, -(cut as i32), 0, 0) } != 0 {
            return false;
        }
        left -= cut;
    }
    left == 0
}

/// The sequence number of the next byte that the source's reader has not had.
#[inline(always)]
fn copied_seq(ctx: &SkBuffContext) -> Option<u32> {
    // SAFETY: the helpers take what the context and each other give, checked for null.
    unsafe {
        let sk = (*ctx.skb.skb).__bindgen_anon_2.sk;
        if sk.is_null() {
            return None;
        }
        let tcp = raw::bpf_skc_to_tcp_sock(sk.cast());
        if tcp.is_null() {
            return None;
        }
        read_u32(tcp.cast(), COPIED_SEQ_OFFSET.load())
    }
}

/// The target's `write_seq`: the sequence number behind the last byte in its send queue.
#[inline(always)]
fn write_seq_of_target(key: &u64) -> Option<u32> {
    // SAFETY: the helpers take what they give each other, checked for null; the socket that the
    // lookup returns is released on every path.
    unsafe {
        let sk = raw::bpf_map_lookup_elem(
            (&raw const TARGETS).cast_mut().cast(),
            (&raw const *key).cast(),
        );
        if sk.is_null() {
            return None;
        }
        let tcp = raw::bpf_skc_to_tcp_sock(sk);
        let value =
            if tcp.is_null() { None } else { read_u32(tcp.cast(), WRITE_SEQ_OFFSET.load()) };
        raw::bpf_sk_release(sk);
        value
    }
}

/// # Safety
/// `base` must point to a kernel object that has a u32 at `offset`; anything else reads as `None`.
#[inline(always)]
unsafe fn read_u32(base: *const u8, offset: u32) -> Option<u32> {
    let mut value = 0u32;
    // SAFETY: the helper checks the source address; the destination has four bytes.
    let failed = unsafe {
        raw::bpf_probe_read_kernel(
            (&raw mut value).cast(),
            4,
            base.wrapping_add(offset as usize).cast(),
        )
    };
    if failed == 0 { Some(value) } else { None }
}

/// Releases the in-flight counter, unless user space has taken the ticket back.
#[inline(always)]
fn release(direction: &Direction) {
    let ticket = swap(&direction.ticket, 0);
    if ticket != 0 {
        release_slot((ticket - 1) as u32);
    }
}

/// Takes one off an in-flight counter.
#[inline(always)]
pub(crate) fn release_slot(slot: u32) {
    if let Some(counter) = IN_FLIGHT.get_ptr(slot) {
        // SAFETY: an element of the array lives as long as the map, and is accessed atomically.
        add(unsafe { &(*counter).count }, 1u64.wrapping_neg());
    }
}

/// Stops redirecting, for this skb's successors, and tells user space. All other fields must have
/// been written.
#[inline(always)]
fn latch(direction: &Direction, index: u32) {
    let old = mask(&direction.word, handover::COUNT);
    if !handover::redirects(old) {
        // User space has taken the direction back meanwhile, and looks at the fields itself.
        return;
    }
    let event = Event {
        direction: index,
        generation: direction.generation,
        stop: get(&direction.stop) as u32,
        reserved: 0,
        redirected: get(&direction.redirected),
        ns: get(&direction.last_ns),
    };
    if let Some(queue) = EVENTS.get(direction.worker) {
        // A full queue only delays user space until its next look at the word.
        let _ = queue.output(event, 0);
    }
}

#[inline(always)]
fn len_of(skb: *mut __sk_buff) -> u32 {
    // SAFETY: reads the program's context.
    unsafe { (*skb).len }
}

// A cell of a direction is aligned, lives as long as the map, and is touched by atomics alone.

#[inline(always)]
fn get(cell: &AtomicU64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic::load(cell.as_ptr()) }
}

#[inline(always)]
fn set(cell: &AtomicU64, value: u64) {
    // SAFETY: as above.
    unsafe { atomic::store(cell.as_ptr(), value) }
}

#[inline(always)]
fn add(cell: &AtomicU64, value: u64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic::fetch_add(cell.as_ptr(), value) }
}

#[inline(always)]
fn mask(cell: &AtomicU64, mask: u64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic::fetch_and(cell.as_ptr(), mask) }
}

#[inline(always)]
fn swap(cell: &AtomicU64, value: u64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic::swap(cell.as_ptr(), value) }
}
