//! What carries body bytes: `userspace` everywhere, `sockmap` where the kernel can and it pays.

mod carrier;
mod events;
mod lengths;
mod outcome;
pub mod policy;
pub mod selftest;
pub mod sockmap;
pub mod splice;
pub mod startup;
mod tcp;
#[cfg(test)]
mod testing;
pub mod userspace;

pub use carrier::{Carrier, Loaded, Settings, Steering};
pub use lengths::{Expect, KINDS, Kinds, Lengths};
pub use policy::{Attempts, Policy};
pub use userspace::{CarryError, Copier, HandOver, Step};
