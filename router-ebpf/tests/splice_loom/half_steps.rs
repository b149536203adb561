//! Three sides at once: the source's packets, user space, and packets of the sockets that look at the offsets and
//! the mode while the end changes them.

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
};
use router_ebpf::splice::state::{mode, word};

use super::{
    START, TO, body,
    loom_common::{Ticket, explore},
};

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
    /// Where the spliced range begins, and how much of it was forwarded; written before the swap.
    h: AtomicU32,
    forwarded: AtomicU32,
    ticket: Ticket,
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
        self.ticket.release(faults.ticket_read_not_swapped);
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
    explore(3, move || {
        let shared = Arc::new(Shared {
            word: AtomicU64::new(word::pack(mode::PASS, 1, START)),
            rx: AtomicU32::new(0),
            tx: AtomicU32::new(0),
            h: AtomicU32::new(START),
            forwarded: AtomicU32::new(0),
            ticket: Ticket::new(true),
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
        shared.ticket.release(faults.ticket_read_not_swapped);
        source.join().unwrap();
        assert_eq!(shared.ticket.in_flight(), 0, "released once");
        let receiver = shared.receiver.lock().unwrap().clone();
        assert_eq!(receiver, body(BODY), "each byte once, in order");
        let spliced = BODY - forwarded;
        if live {
            assert_eq!(shared.rx.load(SeqCst), spliced);
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
