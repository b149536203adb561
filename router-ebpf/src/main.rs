//! Atalho's kernel programs.
//!
//! Each program has a module of its own; what both sides share is in the library.
#![no_std]
#![no_main]
// Assembly for BPF is not stable yet. It is for atomic operations; see `atomic`.
#![feature(asm_experimental_arch)]

mod atomic;
mod body;
mod guard;
mod headers;
mod tc;
mod verdict;
mod xdp;

/// What the programs are loaded as: some kernel helpers serve only programs under the GPL, and this
/// crate may be used under it as well (see `license` in its Cargo.toml).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
