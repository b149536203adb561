//! User space takes back while the end may come, and everybody may release the ticket.
//!
//! It runs the core itself, under the lock that programs and the gateway's commands take.

use std::collections::VecDeque;

use loom::{
    sync::{Arc, Mutex},
    thread,
};
use router_ebpf::{
    framing::Framing,
    splice::{
        packet::{Packet, flag},
        state::{Pair, mode},
        translate,
        verdict::{Action, event},
    },
};

use super::{
    START, TO, body,
    loom_common::{Ticket, explore},
    pair,
};

/// Bytes of the body, one packet each; one more byte follows.
const BODY: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Faults {
    stops_on_an_old_copy: bool,
    ticket_read_not_swapped: bool,
    hands_over_unread_bytes: bool,
}

struct State {
    pair: Pair,
    socket: VecDeque<u32>,
    receiver: Vec<u32>,
    /// User space has asked: the end is its business.
    asked: bool,
}

struct Shared {
    state: Mutex<State>,
    ticket: Ticket,
}

impl Shared {
    /// The program, for a packet of one byte.
    fn arrive(&self, number: u32, faults: Faults) {
        let ended = {
            let mut state = self.state.lock().unwrap();
            let packet = Packet { seq: number, len: 1, flags: flag::ACK, ..Packet::default() };
            let verdict = translate::ingress_from_source(&mut state.pair, &packet);
            match verdict.action {
                Action::Pass(Packet { len: 1, .. }) => state.socket.push_back(number),
                Action::Forward(Packet { len: 1, .. }) => state.receiver.push(number),
                other => panic!("{other:?}"),
            }
            verdict.events & event::ENDED != 0 && !state.asked
        };
        if ended {
            self.ticket.release(faults.ticket_read_not_swapped);
        }
    }

    /// The program, for the receiver's acknowledgement of all it has.
    fn acknowledge(&self) {
        let mut state = self.state.lock().unwrap();
        let ack = TO.wrapping_add(state.receiver.len() as u32);
        let packet = Packet { ack, window: 100, flags: flag::ACK, ..Packet::default() };
        translate::ingress_from_receiver(&mut state.pair, &packet);
    }
}

fn check(faults: Faults) {
    explore(3, move || {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                pair: pair(),
                socket: VecDeque::new(),
                receiver: Vec::new(),
                asked: false,
            }),
            ticket: Ticket::new(true),
        });
        let packets = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for i in 0..=BODY {
                    shared.arrive(START.wrapping_add(i), faults);
                    shared.acknowledge();
                }
            })
        };
        let mut gone_on = 0;
        let spliced = user_space(&shared, &mut gone_on, faults);
        // The exchange is over for user space, whoever saw the end.
        shared.ticket.release(faults.ticket_read_not_swapped);
        packets.join().unwrap();
        assert_eq!(shared.ticket.in_flight(), 0, "released once");
        let state = shared.state.lock().unwrap();
        assert_eq!(state.receiver, body(BODY), "each byte once, in order");
        assert_eq!(state.socket, [START.wrapping_add(BODY)], "the next one is not of the body");
        assert_eq!((state.pair.source.rx, state.pair.receiver.tx), (spliced, spliced));
        assert_eq!(state.pair.mode(), mode::PASS);
    });
}

/// Relays, hands over once, takes back, and relays the rest. Returns what was spliced.
fn user_space(shared: &Shared, gone_on: &mut u32, faults: Faults) -> u32 {
    let mut spliced = 0;
    let mut tried = false;
    while *gone_on < BODY {
        let mut state = shared.state.lock().unwrap();
        if !tried {
            tried = true;
            let (h, a) = (START.wrapping_add(*gone_on), TO.wrapping_add(*gone_on));
            let length = u64::from(BODY - *gone_on);
            if faults.hands_over_unread_bytes {
                state.pair.word = state.pair.word & !0xffff_ffff | u64::from(h);
            }
            if let Ok((_, live)) = state.pair.prepare(h, a, length, Framing::length(length)) {
                state.pair.word = live;
                drop(state);
                spliced = take_back(shared, faults);
                *gone_on += spliced;
                continue;
            }
        }
        match state.socket.pop_front() {
            Some(number) => {
                state.receiver.push(number);
                *gone_on += 1;
                // It may try again: what it has read has gone on.
                tried = spliced > 0;
            }
            None => {
                drop(state);
                thread::yield_now();
            }
        }
    }
    spliced
}

fn take_back(shared: &Shared, faults: Faults) -> u32 {
    let old = shared.state.lock().unwrap().pair;
    thread::yield_now();
    let mut state = shared.state.lock().unwrap();
    state.asked = true;
    if faults.stops_on_an_old_copy {
        state.pair = old;
    }
    state.pair.stop();
    drop(state);
    loop {
        let state = shared.state.lock().unwrap();
        if state.pair.mode() == mode::PASS {
            return state.pair.splice.length as u32;
        }
        drop(state);
        thread::yield_now();
    }
}

#[test]
fn taking_back_against_the_end() {
    check(Faults::default());
}

#[test]
#[should_panic]
fn a_stop_on_an_old_copy_is_caught() {
    check(Faults { stops_on_an_old_copy: true, ..Faults::default() });
}

#[test]
#[should_panic]
fn a_ticket_that_two_release_is_caught() {
    check(Faults { ticket_read_not_swapped: true, ..Faults::default() });
}

#[test]
#[should_panic]
fn unread_bytes_that_are_overtaken_are_caught() {
    check(Faults { hands_over_unread_bytes: true, ..Faults::default() });
}
