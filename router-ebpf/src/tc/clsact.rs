//! Programs for interfaces where the others cannot be attached by links.
//!
//! What is attached there stays when its process is killed. So these only call the real ones, through
//! a map that the kernel empties when the last process that has it open is gone.

use aya_ebpf::{
    macros::{classifier, map},
    maps::ProgramArray,
    programs::TcContext,
};

use super::maps::NEXT;

/// The programs for packets that arrive, for those that leave, and for ICMP errors.
#[map]
pub(super) static HOOKS: ProgramArray = ProgramArray::with_max_entries(3, 0);

/// The last of [`HOOKS`], a program of its own for its stack's sake.
pub(super) const ICMP_ERROR: u32 = 2;

#[classifier]
pub(crate) fn atalho_splice_ingress_hook(ctx: TcContext) -> i32 {
    // SAFETY: nothing here needs to be dropped.
    unsafe { HOOKS.tail_call(&ctx, 0) };
    NEXT
}

#[classifier]
pub(crate) fn atalho_splice_egress_hook(ctx: TcContext) -> i32 {
    // SAFETY: as above.
    unsafe { HOOKS.tail_call(&ctx, 1) };
    NEXT
}
