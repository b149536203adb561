//! What carries body bytes: `userspace` everywhere, `sockmap` where the kernel can and it pays.

pub mod policy;
mod reasons;
pub mod selftest;
pub mod sockmap;
pub mod startup;
pub mod userspace;

pub use policy::{Attempts, Policy};
pub use userspace::{CarryError, Copier, Step};
