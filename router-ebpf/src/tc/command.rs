//! What the gateway asks for.

use aya_ebpf::{bindings::__sk_buff, helpers::generated as raw};
use router_ebpf::splice::{
    layout::{Command, ConnEntry, answer, ask, flag, role, stop},
    state::{Pair, Refusal, mode, word},
};

use super::{
    lock::Lock,
    maps::{conn, now},
    pair,
};
use crate::atomic;

/// Does what the data of a test run asks for.
#[inline(always)]
pub(super) fn run(skb: *mut __sk_buff) -> u32 {
    let mut command = core::mem::MaybeUninit::<Command>::uninit();
    // SAFETY: the helper writes as many bytes as the command has, all of which may be anything.
    let command = unsafe {
        let size = size_of::<Command>() as u32;
        if raw::bpf_skb_load_bytes(skb.cast(), 0, command.as_mut_ptr().cast(), size) != 0 {
            return answer::FAILED;
        }
        command.assume_init_ref()
    };
    let Some(source) = conn(command.source) else { return answer::FAILED };
    // SAFETY: an element lives as long as the map.
    unsafe {
        match command.what {
            ask::HAND_OVER => {
                let Some(receiver) = conn(command.receiver) else { return answer::FAILED };
                with_both(command, source, receiver, true)
            }
            ask::PART | ask::BREAK => {
                let Some(receiver) = conn(command.receiver) else { return answer::FAILED };
                with_both(command, source, receiver, false)
            }
            ask::STOP | ask::WIDEN | ask::RETRACT => {
                let Some(lock) = Lock::take(&raw mut (*source).lock) else { return answer::LOCKED };
                let Some(pair_lock) = Lock::take(&raw mut (*source).pair_lock) else {
                    drop(lock);
                    return answer::LOCKED;
                };
                if command.what == ask::WIDEN {
                    if (*source).role == role::SOURCE && (*source).generation == command.generation
                    {
                        (*source).pair.widen(command.length as i64);
                    }
                } else if (*source).role == role::SOURCE
                    && (command.what == ask::STOP || (*source).pair.retract(command.framing))
                {
                    // The end may have come first.
                    let live = (*source).pair.mode() == mode::LIVE;
                    if live && (*source).stop == stop::NONE {
                        (*source).stop = stop::ASKED;
                    }
                    pair::halt(&mut (*source).pair);
                }
                drop(pair_lock);
                drop(lock);
                answer::DONE
            }
            ask::CLOSED | ask::LIMIT => {
                let Some(lock) = Lock::take(&raw mut (*source).lock) else { return answer::LOCKED };
                if command.what == ask::CLOSED {
                    (*source).flags |= flag::CLOSED;
                } else if (*source).role == role::NONE {
                    (*source).socket.limit = command.length as u32;
                }
                drop(lock);
                answer::DONE
            }
            _ => answer::FAILED,
        }
    }
}

/// # Safety
/// Both must point to elements.
#[inline(always)]
unsafe fn with_both(
    command: &Command,
    source: *mut ConnEntry,
    receiver: *mut ConnEntry,
    joins: bool,
) -> u32 {
    if command.source == command.receiver {
        return answer::FAILED;
    }
    // Always in the same order, so that two of them cannot wait for each other.
    let ordered = command.source < command.receiver;
    let (first, second) = if ordered { (source, receiver) } else { (receiver, source) };
    // SAFETY: as the caller promises.
    unsafe {
        let Some(one) = Lock::take(&raw mut (*first).lock) else { return answer::LOCKED };
        let Some(two) = Lock::take(&raw mut (*second).lock) else {
            drop(one);
            return answer::LOCKED;
        };
        let Some(pair) = Lock::take(&raw mut (*source).pair_lock) else {
            drop(two);
            drop(one);
            return answer::LOCKED;
        };
        let answer =
            if joins { join(command, source, receiver) } else { part(command, source, receiver) };
        drop(pair);
        drop(two);
        drop(one);
        answer
    }
}

#[inline(always)]
unsafe fn join(command: &Command, source: *mut ConnEntry, receiver: *mut ConnEntry) -> u32 {
    // SAFETY: both are locked.
    unsafe {
        let (source, receiver) = (&mut *source, &mut *receiver);
        if source.role != role::NONE || receiver.role != role::NONE {
            return answer::BUSY;
        }
        let known = flag::KNOWN | flag::ARRIVED;
        if source.flags & receiver.flags & known != known {
            return answer::UNKNOWN;
        }
        source.pair = Pair {
            word: source.word,
            source: source.socket,
            receiver: receiver.socket,
            splice: source.pair.splice,
        };
        match source.pair.prepare(command.h, command.a, command.length, command.framing) {
            Ok((_, live)) => source.pair.word = live,
            Err(Refusal::Busy) => return answer::BUSY,
            Err(Refusal::Behind) => return answer::BEHIND,
            Err(Refusal::Window) => return answer::WINDOW,
        }
        atomic::swap(source.ticket.as_ptr(), command.ticket);
        source.most = command.most;
        source.generation = command.generation;
        source.stop = stop::NONE;
        source.last_ns = now();
        source.other = command.receiver;
        receiver.other = command.source;
        source.role = role::SOURCE;
        receiver.role = role::RECEIVER;
        answer::DONE
    }
}

#[inline(always)]
unsafe fn part(command: &Command, source: *mut ConnEntry, receiver: *mut ConnEntry) -> u32 {
    // SAFETY: both are locked.
    unsafe {
        let (source, receiver) = (&mut *source, &mut *receiver);
        if source.role != role::SOURCE || source.other != command.receiver {
            return answer::FAILED;
        }
        if command.what == ask::BREAK {
            pair::halt(&mut source.pair);
            source.pair.word = word::with_mode(source.pair.word, mode::PASS);
        }
        if source.pair.mode() != mode::PASS {
            return answer::BUSY;
        }
        source.word = source.pair.word;
        source.socket = source.pair.source;
        receiver.socket = source.pair.receiver;
        source.role = role::NONE;
        receiver.role = role::NONE;
        answer::DONE
    }
}
