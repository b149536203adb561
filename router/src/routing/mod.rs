//! Which instance serves a request, and the ticket that counts it.

mod choose;
mod rank;
mod sessions;
mod stored;
#[cfg(test)]
mod tests;
mod ticket;

pub use choose::{Choice, NoInstance, Reason, choose, choose_of};
pub use rank::{PrefixKey, rank};
pub use sessions::Sessions;
pub use stored::{StoredResponses, choose_keeper};
pub use ticket::Ticket;
