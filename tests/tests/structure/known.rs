//! What breaks the rules today, to be repaired. An entry goes with the repair: the tests fail when one
//! is here that is not found.

/// Uses against the order, and files in circles.
pub(crate) const MODULES: &[&str] = &[
    "router/src/engine/carrier.rs in a circle",
    "router/src/engine/sockmap/member.rs in a circle",
    "router/src/engine/sockmap/mod.rs in a circle",
    "router/src/engine/splice/member.rs in a circle",
    "router/src/engine/splice/mod.rs in a circle",
    "router/src/net/stream.rs -> engine",
    "router/src/net/stream.rs in a circle",
];

/// Files that are too long.
pub(crate) const LONG: &[&str] = &["router/src/engine/splice/mod.rs"];
