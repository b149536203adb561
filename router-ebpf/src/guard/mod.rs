//! The guard: drops packets to the gateway's ports before the network stack sees them.
//!
//! Only TCP to an address and port that the gateway listens on is ever dropped; everything else
//! that an interface brings passes. The rules are in [`router_ebpf::guard_rules`].

mod parse;

use crate::atomic;
use aya_ebpf::{
    EbpfContext,
    bindings::{
        BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
        BPF_NOEXIST, bpf_fib_lookup as FibLookup, xdp_action,
    },
    btf_maps::{Array, ArrayOfMaps, HashMap, LpmTrie, LruHashMap, PerCpuArray, lpm_trie::Key},
    helpers::{bpf_fib_lookup, bpf_ktime_get_ns},
    macros::{btf_map, map, xdp},
    maps::ProgramArray,
    programs::XdpContext,
};
use core::mem::{MaybeUninit, size_of};
use parse::{Address, Parsed, Segment};
use router_ebpf::guard_rules::{
    Family, KEY, Limit, PORT_WORDS, Tokens, bucket_key, key_any, listed, port_bit, verdict,
};

/// Swaps of one bucket that may be lost to other CPUs. Each loss is a connection of the same source
/// that another CPU let through, so whoever loses them all is in a flood.
const ATTEMPTS: u32 = 8;
const EEXIST: i32 = -17;

/// A bit per port that some listener has.
#[btf_map]
static GUARD_PORTS: Array<u64, { PORT_WORDS as usize }> = Array::new();

/// The addresses and ports that the gateway listens on, wildcards included.
#[btf_map]
static GUARD_LISTENERS: HashMap<[u8; KEY], u32, 256> = HashMap::new();

/// One trie of sources with their [`listed`] bits, both families. The gateway replaces a trie as a
/// whole, so that no packet ever meets a half-filled one; the kernel frees the old one when the
/// last program that looks at it is done. No trie: everyone is allowed.
#[btf_map]
static GUARD_LISTS: ArrayOfMaps<LpmTrie<[u8; KEY], u32, 1>, 1> = ArrayOfMaps::new();

/// [`Limit::to_word`]; zero is no limit.
#[btf_map]
static GUARD_LIMIT: Array<u64, 1> = Array::new();

/// Token buckets by [`bucket_key`]. One entry in the object; the loader of a configured guard makes
/// it large, and whoever loads the object for other programs does not pay for it.
#[btf_map]
static GUARD_BUCKETS: LruHashMap<[u8; KEY], u64, 1> = LruHashMap::new();

/// Packets by [`verdict`].
#[btf_map]
static GUARD_COUNTERS: PerCpuArray<u64, { verdict::COUNT as usize }> = PerCpuArray::new();

/// The program that sees what the guard lets through, if there is one on the same interface.
#[map]
static GUARD_NEXT: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// For kernels before 5.18, and drivers without multi-buffer support.
#[xdp]
fn atalho_guard(ctx: XdpContext) -> u32 {
    pass_on(&ctx, guard(&ctx))
}

/// The same for packets of several buffers (jumbo frames); headers are always in the first.
#[xdp(frags)]
fn atalho_guard_frags(ctx: XdpContext) -> u32 {
    pass_on(&ctx, guard(&ctx))
}

/// Lets the next program have what passes.
#[inline(always)]
fn pass_on(ctx: &XdpContext, action: u32) -> u32 {
    if action == xdp_action::XDP_PASS {
        // SAFETY: it goes on with the same context, or comes back when there is no program.
        unsafe { GUARD_NEXT.tail_call(ctx, 0) };
    }
    action
}

#[inline(always)]
fn guard(ctx: &XdpContext) -> u32 {
    let verdict = match parse::parse(ctx) {
        Parsed::Other => return xdp_action::XDP_PASS,
        Parsed::Unparsed => verdict::UNPARSED,
        Parsed::Tcp(segment) => match judge(ctx, &segment) {
            Some(verdict) => verdict,
            None => return xdp_action::XDP_PASS,
        },
    };
    if let Some(counter) = GUARD_COUNTERS.get_ptr_mut(verdict) {
        // SAFETY: The map's element of this CPU; packets of one CPU are handled one by one.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
    match verdict {
        verdict::PASSED | verdict::UNPARSED => xdp_action::XDP_PASS,
        _ => xdp_action::XDP_DROP,
    }
}

/// What to do with a segment; `None` if it is not the gateway's.
#[inline(always)]
fn judge(ctx: &XdpContext, segment: &Segment) -> Option<u32> {
    let listener = listener(segment)?;
    let refusal = refusal(segment);
    // On a machine that also routes, other machines may have services on the same port: behind a
    // wildcard listener, what is routed onwards is not the gateway's.
    if (refusal.is_some() || segment.opens)
        && matches!(listener, Listener::Any)
        && is_forwarded(ctx, segment)
    {
        return None;
    }
    if refusal.is_some() {
        return refusal;
    }
    if segment.opens && !take_token(segment) {
        return Some(verdict::RATE_LIMITED);
    }
    Some(verdict::PASSED)
}

enum Listener {
    /// On the segment's destination address.
    Exact,
    /// On all addresses.
    Any,
}

#[inline(always)]
fn listener(segment: &Segment) -> Option<Listener> {
    let Some(port) = segment.port else {
        // Nobody but an evader hides the port: the segment counts as the gateway's.
        return Some(Listener::Any);
    };
    let (index, bit) = port_bit(port);
    if GUARD_PORTS.get(index)? & bit == 0 {
        return None;
    }
    // SAFETY: Entries are made before the program is attached, and never change.
    if unsafe { GUARD_LISTENERS.get(&segment.destination.key(port)) }.is_some() {
        return Some(Listener::Exact);
    }
    // SAFETY: As above.
    unsafe { GUARD_LISTENERS.get(&key_any(segment.destination.family(), port)) }
        .map(|_| Listener::Any)
}

/// Why the lists refuse a segment's source, if they do. Deny wins over allow.
#[inline(always)]
fn refusal(segment: &Segment) -> Option<u32> {
    let Some(lists) = GUARD_LISTS.get(0) else {
        return None;
    };
    let key = Key::new(KEY as u32 * 8, segment.source.key(0));
    let listed = lists.get(&key).copied().unwrap_or(0);
    if listed & listed::DENY != 0 {
        Some(verdict::DENIED)
    } else if listed & listed::ALLOW == 0 {
        Some(verdict::NOT_ALLOWED)
    } else {
        None
    }
}

/// Whether the segment's source may open one more connection.
#[inline(always)]
fn take_token(segment: &Segment) -> bool {
    let Some(word) = GUARD_LIMIT.get_ptr(0) else {
        return true;
    };
    // SAFETY: A word of the map, which the gateway writes whole.
    let word = unsafe { atomic::load(word) };
    let Some(limit) = Limit::from_word(word) else {
        return true;
    };
    let key = bucket_key(segment.source.key(0));
    // SAFETY: Has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    for _ in 0..ATTEMPTS {
        let Some(bucket) = GUARD_BUCKETS.get_ptr_mut(&key) else {
            match GUARD_BUCKETS.insert(&key, limit.first(now), u64::from(BPF_NOEXIST)) {
                Err(EEXIST) => continue,
                // The kernel finds no entry to replace when all are busy on other CPUs: the guard
                // rather lets one connection too many through than keeps a stranger out.
                Ok(()) | Err(_) => return true,
            }
        };
        // SAFETY: A word of the map.
        let seen = unsafe { atomic::load(bucket) };
        let (value, passes) = match limit.take(seen, now) {
            Tokens::Take(value) => (value, true),
            Tokens::Owes(value) => (value, false),
            Tokens::Empty => return false,
        };
        // SAFETY: A word of the map that only atomics touch. The entry may have been given to another
        // source meanwhile, whose bucket the swap then changes only if it was equal.
        if unsafe { atomic::compare_exchange(bucket, seen, value) }.is_ok() {
            return passes;
        }
    }
    false
}

/// Whether the machine would route the segment to another one. Never so where forwarding is off.
#[inline(always)]
fn is_forwarded(ctx: &XdpContext, segment: &Segment) -> bool {
    const PROTOCOL_TCP: u8 = 6;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    // SAFETY: Plain integers, of which zero is a value; zero as `tot_len` means no check of the MTU.
    let mut query: FibLookup = unsafe { MaybeUninit::zeroed().assume_init() };
    query.l4_protocol = PROTOCOL_TCP;
    query.sport = segment.source_port.to_be();
    query.dport = segment.port.unwrap_or(0).to_be();
    query.ifindex = ctx.ingress_ifindex() as u32;
    match (segment.source, segment.destination) {
        (Address::V4(source), Address::V4(destination)) => {
            query.family = AF_INET;
            query.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(source);
            query.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(destination);
        }
        (Address::V6(source), Address::V6(destination)) => {
            query.family = AF_INET6;
            query.__bindgen_anon_3.ipv6_src = words(source);
            query.__bindgen_anon_4.ipv6_dst = words(destination);
        }
        _ => return false,
    }
    // SAFETY: The context and the query are valid, and the length is the query's.
    let result =
        unsafe { bpf_fib_lookup(ctx.as_ptr(), &raw mut query, size_of::<FibLookup>() as i32, 0) };
    matches!(
        u32::try_from(result),
        Ok(BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED)
    )
}

/// An address as the kernel's structures hold it.
#[inline(always)]
fn words(address: [u8; 16]) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = address;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]].map(u32::from_ne_bytes)
}

impl Address {
    #[inline(always)]
    fn family(&self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }
}
