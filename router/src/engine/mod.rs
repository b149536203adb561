//! What carries body bytes: `userspace` everywhere, `sockmap` where the kernel can and it pays.

pub mod policy;
pub mod sockmap;
pub mod userspace;

pub use policy::{Mode, Policy};
pub use userspace::{CarryError, Copier, Step};
