//! Packets and the state of their connection or pair.

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::splice::{
    layout::{ConnEntry, Event, flag, stop},
    packet::flag as tcp,
    seq,
    state::{Pair, mode, word},
    translate,
    verdict::{Plan, Side, event},
};

use super::{
    body,
    maps::{
        ECN_FLAGS_OFFSET, MSS_CLAMP_OFFSET, OUT_OF_ORDER_OFFSET, SND_WND_OFFSET, SPLICE_EVENTS, now,
    },
    reorder,
    work::{Work, plan},
};
use crate::{atomic, verdict};

/// `TCP_ECN_MODE_ACCECN` of the kernel, in `ecn_flags`; no kernel before 6.18 has another use for it.
const ACCURATE: u8 = 1 << 4;

/// A packet for a connection that is not spliced.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
pub(super) unsafe fn arrives_at_rest(work: *mut Work, entry: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let (w, entry) = (&mut *work, &mut *entry);
        w.plan = plan::PASS;
        entry.flags |= flag::ARRIVED;
        let packet = &w.packet;
        let end = packet.seq.wrapping_add(packet.len + (packet.flags & tcp::FIN) as u32);
        entry.word = if entry.flags & flag::SEEN == 0 {
            entry.flags |= flag::SEEN;
            word::pack(mode::PASS, word::generation(entry.word), end)
        } else {
            word::passed(entry.word, end)
        };
        if entry.flags & flag::KNOWN == 0 {
            w.outcome.socket = w.packet;
            return;
        }
        w.outcome.socket = translate::ingress_at_rest(&mut entry.socket, &w.packet);
    }
}

/// A packet of a socket that is not spliced.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
pub(super) unsafe fn leaves_at_rest(work: *mut Work, entry: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let (w, entry) = (&mut *work, &mut *entry);
        w.plan = plan::PASS;
        if entry.flags & flag::KNOWN == 0 {
            w.outcome.socket = w.packet;
            return;
        }
        w.outcome.socket = translate::egress_at_rest(&mut entry.socket, &w.packet);
        // What waited for the socket when the programs came to know it has not passed them.
        let mut i = 0;
        let sack = &w.outcome.socket.sack;
        while i < sack.blocks.len() {
            if i < sack.count as usize {
                entry.word = word::passed(entry.word, sack.blocks[i].right);
            }
            i += 1;
        }
    }
}

/// Learns where a connection stands from its socket and a packet of it.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
pub(super) unsafe fn learn(skb: *mut __sk_buff, work: *mut Work, entry: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone. The helpers take what the context
    // and each other give, checked for null.
    unsafe {
        let (w, entry) = (&mut *work, &mut *entry);
        let packet = &w.packet;
        if packet.flags & (tcp::RST | tcp::FIN) != 0 || packet.flags & tcp::ACK == 0 {
            return;
        }
        let sk = (*skb).__bindgen_anon_2.sk;
        if sk.is_null() {
            return;
        }
        let socket = raw::bpf_tcp_sock(sk);
        if socket.is_null() {
            return;
        }
        let (receives, una) = ((*socket).rcv_nxt, (*socket).snd_una);
        entry.base_rx = receives.wrapping_sub((*socket).bytes_received as u32);
        entry.base_tx = una.wrapping_sub((*socket).bytes_acked as u32);
        if entry.flags & flag::CONNECTED != 0 {
            // Its SYN counts as a byte.
            entry.base_tx = entry.base_tx.wrapping_add(1);
        }
        let (mut window, mut mss) = (0u32, 0u16);
        let tcp = raw::bpf_skc_to_tcp_sock(sk.cast());
        if tcp.is_null() {
            return;
        }
        let tcp = tcp.cast::<u8>();
        let from = tcp.wrapping_add(SND_WND_OFFSET.load() as usize);
        if raw::bpf_probe_read_kernel((&raw mut window).cast(), 4, from.cast()) != 0 {
            return;
        }
        let from = tcp.wrapping_add(MSS_CLAMP_OFFSET.load() as usize);
        if raw::bpf_probe_read_kernel((&raw mut mss).cast(), 2, from.cast()) != 0 {
            return;
        }
        // What came out of order before the programs knew the connection would be taken for other bytes once
        // those before it have been moved past the socket.
        let mut early = 0u64;
        let from = tcp.wrapping_add(OUT_OF_ORDER_OFFSET.load() as usize);
        if raw::bpf_probe_read_kernel((&raw mut early).cast(), 8, from.cast()) != 0 {
            return;
        }
        if early != 0 {
            entry.flags |= flag::EARLY;
            return;
        }
        entry.flags &= !flag::EARLY;
        let mut ecn = 0u8;
        let from = tcp.wrapping_add(ECN_FLAGS_OFFSET.load() as usize);
        if raw::bpf_probe_read_kernel((&raw mut ecn).cast(), 1, from.cast()) != 0 {
            return;
        }
        if ecn & ACCURATE != 0 {
            entry.flags |= flag::ACCURATE;
        }
        entry.mss = mss as u32;
        let socket = &mut entry.socket;
        socket.next = packet.seq;
        socket.number = packet.seq;
        socket.own_ack = packet.ack;
        socket.own_edge = packet.ack;
        socket.peer_edge = una.wrapping_add(window);
        if let Some(stamp) = packet.timestamps {
            socket.ts_last = stamp.value;
            socket.ts_own = stamp.value;
            socket.ts_floor = stamp.value;
            socket.ts_peer = stamp.echo;
        }
        let seen = if entry.flags & flag::SEEN == 0 {
            receives
        } else {
            seq::later(receives, word::seen(entry.word))
        };
        entry.word = word::pack(mode::PASS, word::generation(entry.word), seen);
        entry.flags |= flag::SEEN | flag::KNOWN;
    }
}

/// A packet of the source of a pair.
///
/// # Safety
/// The locks of the entry and its pair must be held.
#[inline(always)]
pub(super) unsafe fn from_source(skb: *mut __sk_buff, work: *mut Work, source: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let mut events = 0;
        if (*work).packet.len > 0 && (*source).pair.mode() == mode::LIVE {
            let reason = body::follow(skb, work, source);
            if reason == stop::HOLE && reorder::may_wait(work, &(*source).pair.splice) {
                (*work).plan = plan::WAIT;
                return;
            }
            if reason != stop::NONE {
                (*source).stop = reason;
                events = halt(&mut (*source).pair);
            }
        }
        decide_source(work, &raw mut (*source).pair);
        events |= take_outcome(&mut *work);
        settle(source, events);
    }
}

#[inline(never)]
fn decide_source(work: *mut Work, pair: *mut Pair) -> u32 {
    // SAFETY: as in `from_source`.
    unsafe {
        let w = &mut *work;
        translate::from_source(&mut *pair, &w.packet, &mut w.outcome);
    }
    0
}

#[inline(never)]
fn decide_receiver(work: *mut Work, pair: *mut Pair) -> u32 {
    // SAFETY: as in `from_receiver`.
    unsafe {
        let w = &mut *work;
        translate::from_receiver(&mut *pair, &w.packet, &mut w.outcome);
    }
    0
}

/// A packet of the receiver of a pair.
///
/// # Safety
/// The locks of the entry and its pair must be held.
#[inline(always)]
pub(super) unsafe fn from_receiver(work: *mut Work, source: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        decide_receiver(work, &raw mut (*source).pair);
        let events = take_outcome(&mut *work);
        settle(source, events);
    }
}

/// Takes the outcome apart. Returns the events.
#[inline(always)]
fn take_outcome(w: &mut Work) -> u8 {
    w.plan = match w.outcome.plan {
        Plan::Drop => plan::DROP,
        Plan::Pass => plan::PASS,
        Plan::Forward => plan::FORWARD,
        Plan::TurnRound => plan::TURN_ROUND,
        Plan::Split | Plan::SplitAndQuiet => plan::SPLIT,
    };
    w.outcome.events
}

/// Notes what a packet of the receiver has brought to its socket: the connection may be a source next.
///
/// # Safety
/// The entry's lock must be held.
#[inline(always)]
pub(super) unsafe fn note_passed(work: *mut Work, entry: *mut ConnEntry) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let packet = &(*work).packet;
        let to_socket = (*work).plan == plan::PASS || (*work).plan == plan::SPLIT;
        if to_socket && (*entry).flags & flag::SEEN != 0 {
            (*entry).word = word::passed((*entry).word, packet.end());
        }
    }
}

/// A packet of one of a pair's sockets.
///
/// # Safety
/// The locks of the entry and its pair must be held.
#[inline(always)]
pub(super) unsafe fn leaves(work: *mut Work, source: *mut ConnEntry, side: Side) {
    // SAFETY: as the caller promises; the work is this CPU's alone.
    unsafe {
        let receiver = u32::from(matches!(side, Side::Receiver));
        if receiver == 0 && (*source).pair.mode() == mode::LIVE && (*work).packet.holds_ahead() {
            // Once user space goes on, they would stand in the place of others.
            (*source).stop = stop::BYPASSED;
            let events = halt(&mut (*source).pair);
            settle(source, events);
        }
        decide_egress(work, &raw mut (*source).pair, receiver);
        let w = &mut *work;
        w.plan = if w.outcome.plan == Plan::Drop { plan::DROP } else { plan::PASS };
    }
}

#[inline(never)]
fn decide_egress(work: *mut Work, pair: *mut Pair, receiver: u32) -> u32 {
    // SAFETY: as in `leaves`.
    unsafe {
        let side = if receiver != 0 { Side::Receiver } else { Side::Source };
        let w = &mut *work;
        translate::from_socket(&mut *pair, side, &w.packet, &mut w.outcome);
    }
    0
}

/// Stops at the highest byte forwarded. Returns what is to be reported.
#[inline(always)]
pub(super) fn halt(pair: &mut Pair) -> u8 {
    if !pair.stop() {
        return 0;
    }
    if pair.mode() == mode::PASS { event::ENDED | event::QUIET } else { event::ENDED }
}

/// Releases the ticket and reports, if a packet was the last one.
///
/// # Safety
/// The pair's lock must be held.
#[inline(always)]
unsafe fn settle(source: *mut ConnEntry, events: u8) {
    // SAFETY: as the caller promises.
    unsafe {
        let source = &mut *source;
        source.last_ns = now();
        if events & event::ENDED != 0 && source.stop == stop::NONE {
            release(source);
        }
        if events & (event::ENDED | event::QUIET) != 0 {
            report(source, events);
        }
    }
}

/// Releases the in-flight counter, unless user space has taken the ticket back.
#[inline(always)]
pub(super) fn release(source: &mut ConnEntry) {
    // SAFETY: a word of the map's value that is swapped alone.
    let ticket = unsafe { atomic::swap(source.ticket.as_ptr(), 0) };
    if ticket != 0 {
        verdict::release_slot((ticket - 1) as u32);
    }
}

/// Tells user space.
#[inline(always)]
fn report(source: &ConnEntry, events: u8) {
    let event = Event {
        source: source.index,
        generation: source.generation,
        events: events as u32,
        stop: source.stop,
    };
    if let Some(queue) = SPLICE_EVENTS.get(source.worker) {
        // A full queue only delays user space until its next look.
        let _ = queue.output(event, 0);
    }
}
