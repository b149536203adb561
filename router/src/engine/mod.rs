//! What moves body bytes: `userspace` everywhere, `sockmap` where the kernel can and it pays.

mod conn;
mod events;
mod handover;
mod kernel_engine;
mod lengths;
mod outcome;
mod output;
pub mod policy;
pub mod selftest;
pub mod sockmap;
pub mod splice;
pub mod startup;
mod tcp;
#[cfg(test)]
mod testing;
pub mod userspace;

pub use conn::Conn;
pub use handover::{Handover, IdleLimits};
pub use kernel_engine::{KernelEngine, Loaded, Settings};
pub use lengths::{Expect, KINDS, Kinds, Lengths};
pub use outcome::{Decline, HandoverEnd, HandoverOutcome, TakeBack};
pub use output::{Events, Held, Output};
pub use policy::{Attempts, Policy};
pub use userspace::{Copier, CopyError, HandoverPoint, Step};
