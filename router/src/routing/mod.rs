//! Which instance serves a request, and the ticket that counts it.

mod choose;
mod rank;
#[cfg(test)]
mod tests;
mod ticket;

pub use choose::{Choice, NoInstance, Reason, choose};
pub use rank::{PrefixKey, rank};
pub use ticket::Ticket;
