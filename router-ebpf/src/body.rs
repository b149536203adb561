//! Following a body through the payload of a packet.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{__sk_buff, xdp_md},
    helpers::generated as raw,
};
use router_ebpf::framing::Framing;

/// Most steps of the chunk machine in one packet: a step is a byte of a chunk's line, or the payload
/// of a chunk.
const MAX_STEPS: u32 = 4096;

/// A packet as its program has it.
pub(crate) trait Bytes: Copy {
    /// Copies `length` bytes of the packet. False when it does not have them.
    ///
    /// # Safety
    /// The packet must be the program's, and `to` must have room.
    unsafe fn load(self, at: u32, to: *mut u64, length: u32) -> bool;
}

impl Bytes for *mut __sk_buff {
    #[inline(always)]
    unsafe fn load(self, at: u32, to: *mut u64, length: u32) -> bool {
        // SAFETY: as the caller promises.
        unsafe { raw::bpf_skb_load_bytes(self.cast(), at, to.cast(), length) == 0 }
    }
}

impl Bytes for *mut xdp_md {
    #[inline(always)]
    unsafe fn load(self, at: u32, to: *mut u64, length: u32) -> bool {
        // SAFETY: as the caller promises.
        unsafe { raw::bpf_xdp_load_bytes(self, at, to.cast(), length) == 0 }
    }
}

/// Where the machine stands in a packet.
pub(crate) struct Walk<B> {
    packet: B,
    pub(crate) framing: Framing,
    at: u32,
    end: u32,
    /// Bytes read ahead, the first one lowest, and how many they are.
    ahead: u64,
    have: u32,
}

impl<B: Bytes> Walk<B> {
    /// Feeds the machine with the bytes of a packet from `at` to `end`, as far as it goes.
    ///
    /// # Safety
    /// The packet must be the program's.
    #[inline(always)]
    pub(crate) unsafe fn run(packet: B, framing: &Framing, at: u32, end: u32) -> Self {
        let mut walk = Self { packet, framing: *framing, at, end, ahead: 0, have: 0 };
        if walk.framing.in_payload() {
            walk.at += walk.framing.skip((end - at) as u64) as u32;
        }
        if walk.at < walk.end && !walk.framing.is_done() {
            // SAFETY: the helper calls the function with the pointer that it is given.
            unsafe {
                raw::bpf_loop(MAX_STEPS, step::<B> as *mut c_void, (&raw mut walk).cast(), 0);
            }
        }
        walk
    }

    /// Whether it has had all of the bytes.
    #[inline(always)]
    pub(crate) const fn is_whole(&self) -> bool {
        self.at >= self.end
    }

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
            if !unsafe { self.packet.load(self.at, &raw mut bytes, length) } {
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

/// One step: the payload of a chunk, or one byte of a line. Returns 1 to stop.
unsafe extern "C" fn step<B: Bytes>(_index: u32, walk: *mut Walk<B>) -> u64 {
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
