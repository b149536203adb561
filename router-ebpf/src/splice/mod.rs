//! The pure core of the splice engine: what is to be done with each packet of two TCP connections
//! whose packets are passed from one to the other, past the gateway's sockets.
//!
//! The state machine and its reasons are in `docs/splice.md`. Nothing here reads or writes packets:
//! a program parses the header into a [`Packet`](packet::Packet), asks [`translate`], and applies
//! the [`Action`](verdict::Action). All is plain integers, nothing allocates, loops are bounded.

pub mod fast_path;
pub mod icmp_error;
pub mod layout;
pub mod options;
pub mod packet;
pub mod seq;
pub mod state;
pub mod timestamps;
pub mod translate;
pub mod verdict;
pub mod window;
