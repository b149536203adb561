//! What breaks the rules today, to be repaired. An entry goes with the repair: the tests fail when one
//! is here that is not found.

/// Uses against the order, and files in circles.
pub(crate) const MODULES: &[&str] = &[];

/// Files that are too long.
pub(crate) const LONG: &[&str] = &[];
