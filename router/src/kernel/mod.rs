//! The kernel programs: loading them, and the memory and events shared with them.
//!
//! The only place that knows the eBPF loader. Nothing is pinned: all is gone when the process is,
//! however it ends.

mod btf;
pub(crate) mod conntrack;
pub mod counters;
mod events;
pub mod guard;
mod host;
mod index_pool;
mod load;
mod netlink;
mod object;
pub mod sockmap;
pub mod splice;
mod sys;

pub(crate) use router_ebpf::layout::MAX_WORKERS;

pub use self::load::LoadError;
