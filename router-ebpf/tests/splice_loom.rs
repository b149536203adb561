//! The splice's hand-over and the half steps of its end, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p router-ebpf --test splice_loom --release`.
//! [`take_back`] runs the core itself, under the lock that programs and the gateway's commands take.
//! In the rest three sides run at once: the source's packets, user space, and packets of the sockets that look at
//! the offsets and the mode while the end changes them.
#![cfg(loom)]

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
};
use router_ebpf::splice::state::{mode, word};

/// The source's first number, close to where numbers wrap.
const START: u32 = u32::MAX - 1;
/// The receiver's.
const TO: u32 = 5000;
/// Bytes of the body, one packet each; one more byte follows.
const BODY: u32 = 3;

#[derive(Clone, Copy, Default)]
struct Faults {
    blind_hand_over: bool,
    mode_before_offsets: bool,
    offsets_read_before_mode: bool,
    ticket_read_not_swapped: bool,
}

struct Shared {
    word: AtomicU64,
    /// The permanent offsets of the two sockets.
    rx: AtomicU32,
    tx: AtomicU32,
    /// Where the carried range begins, and how much of it was forwarded; written before the swap.
    h: AtomicU32,
    forwarded: AtomicU32,
    ticket: AtomicU32,
    in_flight: AtomicU32,
    /// What the source's socket has, and what the receiver got, as numbers of the source.
    socket: Mutex<Vec<u32>>,
    receiver: Mutex<Vec<u32>>,
}

impl Shared {
    /// The program, for a packet of one byte. Says whether it was passed to the socket.
    fn arrive(&self, number: u32, faults: Faults) {
        let end = number.wrapping_add(1);
        loop {
            let old = self.word.load(SeqCst);
            if word::mode(old) == mode::LIVE {
                break;
            }
            let new = word::passed(old, end);
            // The mode and the note of what was passed change in one step.
            if self.word.compare_exchange(old, new, SeqCst, SeqCst).is_ok() {
                self.socket.lock().unwrap().push(number);
                return;
            }
        }
        let h = self.h.load(SeqCst);
        let forwarded = end.wrapping_sub(h);
        self.forwarded.store(forwarded, SeqCst);
        self.receiver.lock().unwrap().push(number);
        if end != START.wrapping_add(BODY) {
            return;
        }
        let drain = word::pack(mode::DRAIN, 1, end);
        if faults.mode_before_offsets {
            self.word.swap(drain, SeqCst);
        }
        self.rx.store(forwarded, SeqCst);
        self.tx.store(forwarded, SeqCst);
        if !faults.mode_before_offsets {
            self.word.swap(drain, SeqCst);
        }
        self.release(faults);
    }

    fn release(&self, faults: Faults) {
        let ticket = if faults.ticket_read_not_swapped {
            self.ticket.load(SeqCst)
        } else {
            self.ticket.swap(0, SeqCst)
        };
        if ticket != 0 {
            self.in_flight.fetch_sub(1, SeqCst);
        }
    }

    /// The number that a bare packet of the receiver's socket gets, whose own number is that of
    /// position 0.
    fn egress(&self, faults: Faults) -> u32 {
        let a_socket = TO.wrapping_add(self.h.load(SeqCst).wrapping_sub(START));
        let early = self.tx.load(SeqCst);
        let mode = word::mode(self.word.load(SeqCst));
        if mode == mode::LIVE {
            return a_socket.wrapping_add(self.forwarded.load(SeqCst));
        }
        let tx = if faults.offsets_read_before_mode { early } else { self.tx.load(SeqCst) };
        a_socket.wrapping_add(tx)
    }
}

fn check(faults: Faults) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared {
            word: AtomicU64::new(word::pack(mode::PASS, 1, START)),
            rx: AtomicU32::new(0),
            tx: AtomicU32::new(0),
            h: AtomicU32::new(START),
            forwarded: AtomicU32::new(0),
            ticket: AtomicU32::new(1),
            in_flight: AtomicU32::new(1),
            socket: Mutex::new(Vec::new()),
            receiver: Mutex::new(Vec::new()),
        });
        let source = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for i in 0..=BODY {
                    shared.arrive(START.wrapping_add(i), faults);
                }
            })
        };
        // User space: forwards what there is, tries once, and looks at what the sockets send meanwhile.
        let mut forwarded = 0u32;
        let mut live = false;
        while forwarded < BODY && !live {
            let next = START.wrapping_add(forwarded);
            let there = shared.socket.lock().unwrap().get(forwarded as usize).copied();
            if let Some(number) = there {
                assert_eq!(number, next);
                shared.receiver.lock().unwrap().push(number);
                forwarded += 1;
                if forwarded == BODY {
                    break;
                }
            }
            let expected = word::pack(mode::PASS, 1, START.wrapping_add(forwarded));
            shared.h.store(START.wrapping_add(forwarded), SeqCst);
            let to = word::with_mode(expected, mode::LIVE);
            live = if faults.blind_hand_over {
                shared.word.store(to, SeqCst);
                true
            } else {
                shared.word.compare_exchange(expected, to, SeqCst, SeqCst).is_ok()
            };
            if !live {
                thread::yield_now();
            }
        }
        if live {
            let mut last = TO.wrapping_add(forwarded);
            for _ in 0..2 {
                let number = shared.egress(faults);
                assert!(number.wrapping_sub(last) <= BODY, "{last} then {number}");
                last = number;
            }
        }
        // The exchange is given up, or found to be over, while the program may be at its end.
        shared.release(faults);
        source.join().unwrap();
        assert_eq!(shared.in_flight.load(SeqCst), 0, "released once");
        let receiver = shared.receiver.lock().unwrap().clone();
        let body: Vec<u32> = (0..BODY).map(|i| START.wrapping_add(i)).collect();
        assert_eq!(receiver, body, "each byte once, in order");
        let carried = BODY - forwarded;
        if live {
            assert_eq!(shared.rx.load(SeqCst), carried);
            assert_eq!(shared.egress(faults), TO.wrapping_add(BODY));
        }
        assert_eq!(shared.socket.lock().unwrap().last(), Some(&START.wrapping_add(BODY)));
    });
}

#[test]
fn every_interleaving() {
    check(Faults::default());
}

#[test]
#[should_panic]
fn a_blind_hand_over_is_caught() {
    check(Faults { blind_hand_over: true, ..Faults::default() });
}

#[test]
#[should_panic]
fn a_mode_before_the_offsets_is_caught() {
    check(Faults { mode_before_offsets: true, ..Faults::default() });
}

#[test]
#[should_panic]
fn offsets_read_before_the_mode_are_caught() {
    check(Faults { offsets_read_before_mode: true, ..Faults::default() });
}

#[test]
#[should_panic]
fn a_ticket_that_is_only_read_is_caught() {
    check(Faults { ticket_read_not_swapped: true, ..Faults::default() });
}

/// User space takes back while the end may come, and everybody may release the ticket.
mod take_back {
    use std::collections::VecDeque;

    use loom::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicU32, Ordering::SeqCst},
        },
        thread,
    };
    use router_ebpf::{
        framing::Framing,
        splice::{
            state::{Pair, Socket, mode},
            translate::{self, Action, Packet, event, flag},
        },
    };

    const START: u32 = u32::MAX - 1;
    const TO: u32 = 5000;
    /// Bytes of the body, one packet each; one more byte follows.
    const BODY: u32 = 2;

    #[derive(Clone, Copy, Default)]
    pub(super) struct Faults {
        pub(super) stops_on_an_old_copy: bool,
        pub(super) ticket_read_not_swapped: bool,
        pub(super) hands_over_unread_bytes: bool,
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
        ticket: AtomicU32,
        in_flight: AtomicU32,
    }

    impl Shared {
        fn release(&self, faults: Faults) {
            let ticket = if faults.ticket_read_not_swapped {
                self.ticket.load(SeqCst)
            } else {
                self.ticket.swap(0, SeqCst)
            };
            if ticket != 0 {
                self.in_flight.fetch_sub(1, SeqCst);
            }
        }

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
                self.release(faults);
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

    pub(super) fn check(faults: Faults) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let source = Socket { own_edge: START.wrapping_add(50), ..Socket::default() };
            let source = Socket { own_window: 50, own_ack: START, ..source };
            let receiver = Socket { peer_edge: TO + 100, next: TO, ..Socket::default() };
            let shared = Arc::new(Shared {
                state: Mutex::new(State {
                    pair: Pair::new(source, receiver, 1, START),
                    socket: VecDeque::new(),
                    receiver: Vec::new(),
                    asked: false,
                }),
                ticket: AtomicU32::new(1),
                in_flight: AtomicU32::new(1),
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
            let carried = user_space(&shared, &mut gone_on, faults);
            // The exchange is over for user space, whoever saw the end.
            shared.release(faults);
            packets.join().unwrap();
            assert_eq!(shared.in_flight.load(SeqCst), 0, "released once");
            let state = shared.state.lock().unwrap();
            let body: Vec<u32> = (0..BODY).map(|i| START.wrapping_add(i)).collect();
            assert_eq!(state.receiver, body, "each byte once, in order");
            assert_eq!(state.socket, [START.wrapping_add(BODY)], "the next one is not of the body");
            assert_eq!((state.pair.source.rx, state.pair.receiver.tx), (carried, carried));
            assert_eq!(state.pair.mode(), mode::PASS);
        });
    }

    /// Relays, hands over once, takes back, and relays the rest. Returns what was carried.
    fn user_space(shared: &Shared, gone_on: &mut u32, faults: Faults) -> u32 {
        let mut carried = 0;
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
                    carried = take_back(shared, faults);
                    *gone_on += carried;
                    continue;
                }
            }
            match state.socket.pop_front() {
                Some(number) => {
                    state.receiver.push(number);
                    *gone_on += 1;
                    // It may try again: what it has read has gone on.
                    tried = carried > 0;
                }
                None => {
                    drop(state);
                    thread::yield_now();
                }
            }
        }
        carried
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
}

#[test]
fn taking_back_against_the_end() {
    take_back::check(take_back::Faults::default());
}

#[test]
#[should_panic]
fn a_stop_on_an_old_copy_is_caught() {
    take_back::check(take_back::Faults { stops_on_an_old_copy: true, ..Default::default() });
}

#[test]
#[should_panic]
fn a_ticket_that_two_release_is_caught() {
    take_back::check(take_back::Faults { ticket_read_not_swapped: true, ..Default::default() });
}

#[test]
#[should_panic]
fn unread_bytes_that_are_overtaken_are_caught() {
    take_back::check(take_back::Faults { hands_over_unread_bytes: true, ..Default::default() });
}

/// A source that goes on as soon as the receiver has what it sent: whenever user space has forwarded it, the
/// next is there already. User space tries once its socket has the bytes, and before it sends them.
mod answered_at_once {
    use loom::{
        sync::{Arc, Mutex},
        thread,
    };
    use router_ebpf::{
        framing::Framing,
        splice::{
            state::{Pair, Socket},
            translate::{self, Action, Packet, flag},
        },
    };

    const START: u32 = u32::MAX - 1;
    const TO: u32 = 5000;
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

    pub(super) fn check(sends_first: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let source = Socket { own_edge: START.wrapping_add(50), ..Socket::default() };
            let source = Socket { own_window: 50, own_ack: START, ..source };
            let receiver = Socket { peer_edge: TO + 100, next: TO, ..Socket::default() };
            let state = Arc::new(Mutex::new(State {
                pair: Pair::new(source, receiver, 1, START),
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
            let body: Vec<u32> = (0..BODY).map(|i| START.wrapping_add(i)).collect();
            assert_eq!(state.lock().unwrap().receiver, body, "each byte once, in order");
        });
    }
}

#[test]
fn a_source_that_answers_at_once_is_handed_over() {
    answered_at_once::check(false);
}

#[test]
#[should_panic = "nothing is unread"]
fn sending_before_the_attempt_is_caught() {
    answered_at_once::check(true);
}
