//! (being written)

/// A connection's place in the kernel's maps; leaves them when dropped.
#[derive(Debug)]
pub struct Membership {}
