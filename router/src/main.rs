//! The `atalho` binary.
fn main() {}
