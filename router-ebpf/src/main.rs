//! Atalho's kernel programs.
#![no_std]
#![no_main]
// For atomic operations; see `atomic`.
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod atomic;
mod guard;

/// What the programs are loaded as: some kernel helpers serve only programs under the GPL, and this
/// crate may be used under it as well (see `license` in its Cargo.toml).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
