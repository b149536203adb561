//! The maps of the programs, what the gateway tells them when it loads them, and how they look a connection up.

use aya_ebpf::{
    Global,
    bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::{ArrayOfMaps, RingBuf},
    helpers::generated as raw,
    macros::{btf_map, map},
    maps::{Array, HashMap, PerCpuArray},
};
use router_ebpf::{
    layout::MAX_WORKERS,
    splice::layout::{ConnEntry, Event, Flow},
};

use super::work::Work;

/// `BPF_F_MMAPABLE`: user space maps the array's memory.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_NO_PREALLOC`: an entry takes memory only while it is used.
const NO_PREALLOC: u32 = 1;

/// Which element belongs to a connection.
#[map]
pub(super) static FLOWS: HashMap<Flow, u32> = HashMap::with_max_entries(1, NO_PREALLOC);
/// The connections.
#[map]
pub(super) static CONNS: Array<ConnEntry> = Array::with_max_entries(1, MMAPABLE);
/// What a program works on: it is too much for its stack.
#[map]
pub(super) static WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(2, 0);
/// One queue of events per worker thread.
#[btf_map]
pub(super) static SPLICE_EVENTS: ArrayOfMaps<RingBuf<Event, 65536>, MAX_WORKERS> =
    ArrayOfMaps::new();

/// What the marks of packets have in common that this process's programs sent: its lowest ten bits are zero.
#[unsafe(no_mangle)]
pub(super) static MARK: Global<u32> = Global::new(0);
/// Offset of `snd_wnd` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
pub(super) static SND_WND_OFFSET: Global<u32> = Global::new(0);
/// Offset of `rx_opt.mss_clamp` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
pub(super) static MSS_CLAMP_OFFSET: Global<u32> = Global::new(0);
/// Offset of `out_of_order_queue` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
pub(super) static OUT_OF_ORDER_OFFSET: Global<u32> = Global::new(0);
/// Offset of `ecn_flags` in `struct tcp_sock`, in bytes.
#[unsafe(no_mangle)]
pub(super) static ECN_FLAGS_OFFSET: Global<u32> = Global::new(0);

/// Not zero: an XDP program may be in front of these, and needs to know the ways.
#[unsafe(no_mangle)]
pub(super) static XDP: Global<u32> = Global::new(0);

/// Added to [`MARK`]: translated, to be let through.
pub(super) const SENT: u32 = 1;
/// Added to [`MARK`]: a copy that is to be translated as the packet at ingress says.
pub(super) const COPY: u32 = 2;
/// Added to both, with [`SENT`]: the Ethernet addresses are to be noted.
pub(super) const NOTE: u32 = 4;

/// Elements of [`WORK`].
pub(super) const INGRESS: u32 = 0;
pub(super) const EGRESS: u32 = 1;

/// On to the next program, or to the network stack.
pub(super) const NEXT: i32 = TC_ACT_UNSPEC;
pub(super) const DROP: i32 = TC_ACT_SHOT as i32;

/// A connection's element.
#[inline(always)]
pub(crate) fn conn(index: u32) -> Option<*mut ConnEntry> {
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
pub(super) fn work(index: u32) -> Option<*mut Work> {
    WORK.get_ptr_mut(index)
}

/// The element of a packet's connection.
#[inline(always)]
pub(crate) fn find(flow: *const Flow) -> Option<*mut ConnEntry> {
    // SAFETY: the value is copied at once; the gateway never changes it in place.
    let index = unsafe { *FLOWS.get(&*flow)? };
    conn(index)
}
