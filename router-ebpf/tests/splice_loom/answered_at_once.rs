//! A source that goes on as soon as the receiver has what it sent: whenever user space has forwarded it, the
//! next is there already. User space tries once its socket has the bytes, and before it sends them.

use loom::{
    sync::{Arc, Mutex},
    thread,
};
use router_ebpf::{
    framing::Framing,
    splice::{
        packet::{Packet, flag},
        state::Pair,
        translate,
        verdict::Action,
    },
};

use super::{START, TO, body, loom_common::explore, pair};

/// Bytes of the body, one packet each.
const BODY: u32 = 3;

struct State {
    pair: Pair,
    /// What the source's socket has, unread.
    unread: Vec<u32>,
    /// What the receiver's socket holds back.
    held: Vec<u32>,
    receiver: Vec<u32>,
}

fn arrive(state: &mut State, number: u32) {
    let packet = Packet { seq: number, len: 1, flags: flag::ACK, ..Packet::default() };
    match translate::ingress_from_source(&mut state.pair, &packet).action {
        Action::Pass(Packet { len: 1, .. }) => state.unread.push(number),
        Action::Forward(Packet { len: 1, seq, .. }) => {
            assert_eq!(seq.wrapping_sub(TO), number.wrapping_sub(START));
            assert!(state.held.is_empty(), "it overtakes what is held back");
            state.receiver.push(number);
        }
        other => panic!("{other:?}"),
    }
}

fn check(sends_first: bool) {
    explore(3, move || {
        let state = Arc::new(Mutex::new(State {
            pair: pair(),
            unread: Vec::new(),
            held: Vec::new(),
            receiver: Vec::new(),
        }));
        let peers = {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for i in 0..BODY {
                    while state.lock().unwrap().receiver.len() < i as usize {
                        thread::yield_now();
                    }
                    arrive(&mut state.lock().unwrap(), START.wrapping_add(i));
                }
            })
        };
        while state.lock().unwrap().unread.is_empty() {
            thread::yield_now();
        }
        {
            let mut state = state.lock().unwrap();
            let read = std::mem::take(&mut state.unread);
            if sends_first { state.receiver.extend(read) } else { state.held.extend(read) }
        }
        thread::yield_now();
        {
            let mut state = state.lock().unwrap();
            let (h, a) = (START.wrapping_add(1), TO + 1);
            let length = u64::from(BODY - 1);
            let prepared = state.pair.prepare(h, a, length, Framing::length(length));
            state.pair.word = prepared.expect("nothing is unread").1;
        }
        thread::yield_now();
        {
            let mut state = state.lock().unwrap();
            let held = std::mem::take(&mut state.held);
            state.receiver.extend(held);
        }
        peers.join().unwrap();
        assert_eq!(state.lock().unwrap().receiver, body(BODY), "each byte once, in order");
    });
}

#[test]
fn a_source_that_answers_at_once_is_handed_over() {
    check(false);
}

#[test]
#[should_panic = "nothing is unread"]
fn sending_before_the_attempt_is_caught() {
    check(true);
}
