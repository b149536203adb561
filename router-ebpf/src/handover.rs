//! How one direction of a connection moves between user space and the kernel, without a lock and
//! without a byte overtaken.
//!
//! Every direction has one 64-bit word in memory that both sides map: bit 63 says who
//! moves the bytes, the other bits count the stream's bytes that the kernel program has seen.
//!
//! * The program adds an skb's length with one atomic fetch-add, and the mode bit of the value it
//!   got back decides for the whole skb: pass it up, or redirect it.
//! * User space takes over nothing and hands over everything with one compare-and-swap, from
//!   (pass, n) to (redirect, n), where n is what it has itself read *and* forwarded. When the
//!   program has meanwhile passed more, the swap fails, and user space reads on.
//! * The program alone goes back from redirect to pass: at the end of a body, or when it cannot
//!   go on ([`layout::stop`](crate::layout::stop)).
//!
//! The word never wraps: 2^63 bytes take 29 years at 10 GB/s.

/// Mode bit: the kernel redirects.
pub const REDIRECT: u64 = 1 << 63;
/// The bytes that the program has seen.
pub const COUNT: u64 = REDIRECT - 1;

/// Whether a word says that the kernel redirects.
#[inline(always)]
pub const fn redirects(word: u64) -> bool {
    word & REDIRECT != 0
}

/// The stream bytes that the program has seen.
#[inline(always)]
pub const fn seen(word: u64) -> u64 {
    word & COUNT
}

/// The word before the swap that hands `forwarded` bytes' successor to the kernel.
#[inline(always)]
pub const fn passing(forwarded: u64) -> u64 {
    forwarded & COUNT
}

/// The word after that swap.
#[inline(always)]
pub const fn redirecting(forwarded: u64) -> u64 {
    passing(forwarded) | REDIRECT
}
