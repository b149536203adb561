//! What the programs for socket buffers and the one in drivers have in common: how headers are laid out, and
//! how that of TCP is read and changed in a copy.

use core::ffi::c_void;

use aya_ebpf::helpers::generated as raw;
use router_ebpf::splice::{
    options::{self, Options},
    packet::Packet,
};

/// Length of an Ethernet header.
pub(crate) const ETHERNET: u32 = 14;
/// Its type, as it is in the header.
pub(crate) const IPV4: u16 = 0x0800u16.to_be();
/// As [`IPV4`].
pub(crate) const IPV6: u16 = 0x86ddu16.to_be();
/// What stands before an IPv4 address that is written as one of IPv6.
pub(crate) const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
/// The bits of an IPv4 header, in the field of flags and offset, that only fragments have.
pub(crate) const FRAGMENT: u16 = 0x3fff;
pub(crate) const TCP: u8 = 6;
/// Length of a TCP header without options.
pub(crate) const FIXED: u32 = 20;
/// Offset of the checksum in a TCP header.
pub(crate) const CHECKSUM: u32 = 16;

/// Room for a TCP header: 60 bytes, and the slack of [`options::Bytes`].
pub(crate) type Header = [u8; 84];

/// A length of at most 60, as the kernel's verifier can see: the compiler would leave out a
/// comparison that it knows the outcome of.
#[inline(always)]
pub(crate) fn bounded(length: u32) -> u32 {
    let mut bounded = length as u64;
    // SAFETY: changes nothing but the register.
    unsafe { core::arch::asm!("{r} &= 63", r = inout(reg) bounded, options(nomem, nostack)) };
    bounded as u32
}

/// A sum of 32 bits as one of 16.
#[inline(always)]
pub(crate) const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum of a pseudo header: addresses and length.
#[inline(always)]
pub(crate) fn pseudo_sum(words: *mut [u32; 10]) -> u32 {
    let seed = (TCP as u32).to_be();
    // SAFETY: 36 bytes are within the words.
    unsafe { raw::bpf_csum_diff(core::ptr::null_mut(), 0, words.cast(), 36, seed) as u32 }
}

/// Whether the checksum of a header is left to the interface: then it is that of the pseudo header alone.
#[inline(always)]
pub(crate) fn is_partial(header: &Header, pseudo: *mut [u32; 10]) -> bool {
    fold(pseudo_sum(pseudo)) == u16::from_ne_bytes([header[16], header[17]])
}

/// The length of a header.
#[inline(always)]
pub(crate) const fn length(header: &Header) -> u32 {
    (header[12] >> 4) as u32 * 4
}

/// Its ports, the source's first.
#[inline(always)]
pub(crate) const fn ports(header: &Header) -> [u16; 2] {
    [u16::from_ne_bytes([header[0], header[1]]), u16::from_ne_bytes([header[2], header[3]])]
}

/// Reads a header's fields.
#[inline(always)]
pub(crate) fn read(header: &Header, packet: &mut Packet) {
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    packet.seq = u32::from_be_bytes(word(4));
    packet.ack = u32::from_be_bytes(word(8));
    packet.flags = header[13];
    packet.window = u16::from_be_bytes([header[14], header[15]]);
}

/// Changes a header's fields and its options.
#[inline(always)]
pub(crate) fn write(header: &mut Header, options: &Options, to: &Packet) {
    header[4..8].copy_from_slice(&to.seq.to_be_bytes());
    header[8..12].copy_from_slice(&to.ack.to_be_bytes());
    header[13] = to.flags;
    header[14..16].copy_from_slice(&to.window.to_be_bytes());
    // SAFETY: lies within the header.
    let bytes = unsafe { &mut *options_of(header) };
    options.rewrite(bytes, to.timestamps, &to.sack);
}

/// Changes a header's ports.
#[inline(always)]
pub(crate) const fn write_ports(header: &mut Header, ports: [u16; 2]) {
    let [a, b] = ports[0].to_ne_bytes();
    let [c, d] = ports[1].to_ne_bytes();
    header[0] = a;
    header[1] = b;
    header[2] = c;
    header[3] = d;
}

/// The options of a header.
#[inline(always)]
const fn options_of(header: *mut Header) -> *mut options::Bytes {
    header.cast::<u8>().wrapping_add(FIXED as usize).cast()
}

struct Walk {
    header: *mut Header,
    options: *mut Options,
    at: u32,
    length: u32,
    malformed: u32,
}

/// Reads the options of a header of `length` bytes. False when they are malformed.
///
/// # Safety
/// The pointers must be to what is there and nobody else's.
#[inline(always)]
pub(crate) unsafe fn read_options(
    header: *mut Header,
    length: u32,
    options: *mut Options,
    packet: *mut Packet,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let mut walk = Walk { header, options, at: 0, length: length - FIXED, malformed: 0 };
        raw::bpf_loop(options::MAX as u32, step as *mut c_void, (&raw mut walk).cast(), 0);
        if walk.malformed != 0 {
            return false;
        }
        (*packet).timestamps = (*options).timestamps;
        (*packet).sack = (*options).sack;
        true
    }
}

unsafe extern "C" fn step(_index: u32, walk: *mut Walk) -> u64 {
    // SAFETY: called by the helper with the pointer given to it.
    unsafe {
        let walk = &mut *walk;
        let bytes = &*options_of(walk.header);
        match (*walk.options).step(bytes, walk.length as usize, walk.at as usize) {
            Some(at) => {
                walk.at = at as u32;
                u64::from(at as u32 >= walk.length)
            }
            None => {
                walk.malformed = 1;
                1
            }
        }
    }
}
