//! The hand-over protocol under every interleaving of the program and user space.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p router-ebpf --test handover_loom --release`.
//! The model uses the functions that the real two sides use; the socket's lock is a mutex, since the
//! program runs, and user space reads, under it alone.
#![cfg(loom)]

mod loom_common;

use std::collections::VecDeque;

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};
use loom_common::{Ticket, explore};
use router_ebpf::handover;

/// Bytes of the body; what follows is the next message's.
const BODY: u64 = 3;
/// Packets of one byte that arrive. A packet's content is its place in the stream.
const PACKETS: u64 = 4;

/// What each side does wrong, for the tests of the tests.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// User space sets the mode without comparing the count.
    blind_hand_over: bool,
    /// User space takes back without waiting for the program to end.
    no_kick: bool,
    /// The program releases the counter without swapping the ticket.
    ticket_read_not_swapped: bool,
}

struct Direction {
    word: AtomicU64,
    ticket: Ticket,
    /// The plain fields: how many bytes of the body are left. The checker reports two sides that
    /// touch them at the same time.
    left: UnsafeCell<u64>,
    /// The source's socket: what the program passed up. Its lock is the socket's.
    socket: Mutex<VecDeque<u64>>,
    /// What the target got, in order.
    target: Mutex<Vec<u64>>,
}

impl Direction {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            ticket: Ticket::new(false),
            left: UnsafeCell::new(0),
            socket: Mutex::new(VecDeque::new()),
            target: Mutex::new(Vec::new()),
        }
    }

    /// The program, for one packet.
    fn arrive(&self, packet: u64, faults: Faults) {
        let mut passed = self.socket.lock().unwrap();
        let old = self.word.fetch_add(1, SeqCst);
        if !handover::redirects(old) {
            passed.push_back(packet);
            return;
        }
        let left = self.left.with_mut(|left| unsafe {
            *left -= 1;
            *left
        });
        self.target.lock().unwrap().push(packet);
        if left == 0 {
            self.ticket.release(faults.ticket_read_not_swapped);
            self.word.fetch_and(handover::COUNT, SeqCst);
        }
    }

    fn hand_over(&self, forwarded: u64, left: u64, faults: Faults) -> bool {
        self.left.with_mut(|cell| unsafe { *cell = left });
        self.ticket.hand_out();
        if faults.blind_hand_over {
            self.word.fetch_or(handover::REDIRECT, SeqCst);
            return true;
        }
        let (from, to) = (handover::passing(forwarded), handover::redirecting(forwarded));
        let swapped = self.word.compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        if !swapped {
            let _ = self.ticket.take();
        }
        swapped
    }
}

/// User space: forwards what is passed, hands over `hand_overs` times at most, and after each takes
/// back at once or waits for the end.
fn relay(direction: &Direction, faults: Faults, hand_overs: u32, wait: bool) {
    let mut forwarded = 0;
    let mut left = BODY;
    let mut tries = 0;
    let mut released = false;
    while left > 0 {
        let read = direction.socket.lock().unwrap().pop_front();
        if let Some(packet) = read {
            direction.target.lock().unwrap().push(packet);
            forwarded += 1;
            left -= 1;
            continue;
        }
        if tries == hand_overs {
            // Nothing there: the other side must run.
            thread::yield_now();
            continue;
        }
        tries += 1;
        if !direction.hand_over(forwarded, left, faults) {
            continue;
        }
        if wait {
            while handover::redirects(direction.word.load(SeqCst)) {
                thread::yield_now();
            }
        }
        let before = direction.word.fetch_and(handover::COUNT, SeqCst);
        if handover::redirects(before) && !faults.no_kick {
            drop(direction.socket.lock().unwrap());
        }
        let now = direction.left.with(|left| unsafe { *left });
        forwarded += left - now;
        left = now;
        released |= !direction.ticket.take();
    }
    if !released {
        direction.ticket.release_untold();
    }
}

fn check(faults: Faults, hand_overs: u32, wait: bool) {
    explore(4, move || {
        let direction = Arc::new(Direction::new());
        let program = {
            let direction = Arc::clone(&direction);
            thread::spawn(move || {
                for packet in 0..PACKETS {
                    direction.arrive(packet, faults);
                }
            })
        };
        relay(&direction, faults, hand_overs, wait);
        program.join().unwrap();
        let target = direction.target.lock().unwrap();
        assert_eq!(*target, (0..BODY).collect::<Vec<_>>(), "in order, none lost, none twice");
        let rest: Vec<_> = direction.socket.lock().unwrap().iter().copied().collect();
        assert_eq!(rest, [BODY], "the next message waits for user space");
        assert_eq!(direction.ticket.in_flight(), 0, "released once");
        assert_eq!(handover::seen(direction.word.load(SeqCst)), PACKETS);
        assert!(!handover::redirects(direction.word.load(SeqCst)));
    });
}

#[test]
fn the_program_ends_the_body() {
    check(Faults::default(), 2, true);
}

#[test]
fn user_space_takes_back_at_any_moment() {
    check(Faults::default(), 1, false);
    check(Faults::default(), 2, false);
}

#[test]
#[should_panic]
fn a_blind_hand_over_is_caught() {
    check(Faults { blind_hand_over: true, ..Faults::default() }, 1, true);
}

#[test]
#[should_panic]
fn taking_back_without_the_sockets_lock_is_caught() {
    check(Faults { no_kick: true, ..Faults::default() }, 1, false);
}

#[test]
#[should_panic]
fn a_ticket_that_is_only_read_is_caught() {
    check(Faults { ticket_read_not_swapped: true, ..Faults::default() }, 1, false);
}
