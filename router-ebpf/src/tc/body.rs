//! Following a body through the packets of its source.

use core::ffi::c_void;

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::{
    framing::Framing,
    splice::{
        layout::{Conn, stop},
        state::{Look, UNKNOWN},
    },
};

use super::packet::Work;

/// Most steps of the chunk machine in one packet: a step is a byte of a chunk's line, or the payload
/// of a chunk.
const MAX_STEPS: u32 = 4096;

struct Walk {
    skb: *mut __sk_buff,
    framing: Framing,
    at: u32,
    end: u32,
    /// Bytes read ahead, the first one lowest, and how many they are.
    ahead: u64,
    have: u32,
}

impl Walk {
    /// The byte at `at`, or nothing if it cannot be read.
    #[inline(always)]
    unsafe fn byte(&mut self) -> Option<u8> {
        if self.have == 0 {
            let mut bytes = 0u64;
            // One call reads what is most likely one line.
            let length = match self.end - self.at {
                8.. => 8,
                2.. => 2,
                _ => 1,
            };
            // SAFETY: the destination is at least as long.
            let failed = unsafe {
                let to = (&raw mut bytes).cast();
                raw::bpf_skb_load_bytes(self.skb.cast(), self.at, to, length) != 0
            };
            if failed {
                return None;
            }
            self.ahead = u64::from_le(bytes);
            self.have = length;
        }
        let byte = self.ahead as u8;
        self.ahead >>= 8;
        self.have -= 1;
        Some(byte)
    }
}

/// Follows the body through a packet with payload: says why the carrying must stop before it, if it
/// must.
///
/// # Safety
/// The locks of the source and its pair must be held.
#[inline(always)]
pub(super) unsafe fn follow(skb: *mut __sk_buff, work: *mut Work, source: *mut Conn) -> u32 {
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
        let (at, end) = (start + skip, start + w.packet.len);
        let mut walk = Walk { skb, framing: splice.framing, at, end, ahead: 0, have: 0 };
        let fresh = w.packet.len - skip;
        if walk.framing.in_payload() {
            walk.at += walk.framing.skip(fresh as u64) as u32;
        }
        if walk.at < walk.end && !walk.framing.is_done() {
            raw::bpf_loop(MAX_STEPS, step as *mut c_void, (&raw mut walk).cast(), 0);
        }
        if walk.framing.error().is_some() {
            return stop::MALFORMED;
        }
        if walk.at < walk.end {
            return if walk.framing.is_done() { stop::CROSSED } else { stop::TOO_MANY_CHUNKS };
        }
        splice.framing = walk.framing;
        splice.parse(fresh as u64);
        stop::NONE
    }
}

/// One step: the payload of a chunk, or one byte of a line. Returns 1 to stop.
unsafe extern "C" fn step(_index: u32, walk: *mut Walk) -> u64 {
    // SAFETY: called by the helper with the pointer given to it.
    let walk = unsafe { &mut *walk };
    if walk.at >= walk.end || walk.framing.is_done() {
        return 1;
    }
    if walk.framing.in_payload() {
        walk.at += walk.framing.skip((walk.end - walk.at) as u64) as u32;
        walk.have = 0;
        return 0;
    }
    // SAFETY: the packet is the program's.
    let Some(byte) = (unsafe { walk.byte() }) else { return 1 };
    walk.framing.step(byte);
    walk.at += 1;
    u64::from(walk.framing.error().is_some())
}
