//! What carries body bytes: `userspace`, `sockmap`.

pub mod sockmap;
