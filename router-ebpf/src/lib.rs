//! The types and pure functions that the kernel programs and the gateway share.
//!
//! Nothing here does I/O or allocates. [`framing`] follows an HTTP/1.1 body; [`handover`] is the
//! protocol by which a direction moves between user space and the kernel; [`layout`] is the memory
//! that both sides map; [`guard_rules`] is what the guard knows about sources and their limits;
//! [`splice`] is the core of the splice engine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod framing;
pub mod guard_rules;
pub mod handover;
pub mod layout;
pub mod splice;
