//! HTTP/1.1 heads and framing: parse, rewrite, reject (RFC 9110, RFC 9112).
//!
//! Pure logic on bytes, no I/O. Bodies are never touched here: [`router_ebpf::framing`] follows them.

pub mod cors;
pub mod forwarded;
pub mod head;
pub mod ids;
#[cfg(any(test, fuzzing))]
pub mod properties;
pub mod reply;
pub mod rewrite;
pub mod upgrade;

pub use cors::Cors;
pub use head::{
    Limits, Method, Reject, RequestHead, ResponseError, ResponseHead, Version, parse_request,
    parse_request_from, parse_response, parse_upgrade_response,
};
pub use ids::Ids;
pub use reply::{ErrorForm, Failure, ModelError, Reply};
pub use router_ebpf::framing::Framing;

#[cfg(test)]
mod smuggling_tests;
