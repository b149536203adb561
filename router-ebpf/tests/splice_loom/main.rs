//! The splice's hand-over, the half steps of its end, and taking back, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p router-ebpf --test splice_loom --release`.
#![cfg(loom)]

mod answered_at_once;
mod half_steps;
#[path = "../loom_common/mod.rs"]
mod loom_common;
mod take_back;

use router_ebpf::splice::state::{Pair, Socket};

/// The source's first number, close to where numbers wrap.
const START: u32 = u32::MAX - 1;
/// The receiver's.
const TO: u32 = 5000;

/// A pair that can be handed over, from [`START`] to [`TO`].
fn pair() -> Pair {
    let source = Socket {
        own_edge: START.wrapping_add(50),
        own_window: 50,
        own_ack: START,
        ..Socket::default()
    };
    let receiver = Socket { peer_edge: TO + 100, next: TO, ..Socket::default() };
    Pair::new(source, receiver, 1, START)
}

/// Numbers of a body of so many packets, one byte each.
fn body(packets: u32) -> Vec<u32> {
    (0..packets).map(|i| START.wrapping_add(i)).collect()
}
