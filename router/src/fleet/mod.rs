//! Endpoints, variants, instances: who can serve, how busy each is, and whether it is well.

mod adapter;
pub mod adapters;
mod build;
mod copies;
pub mod counters;
mod diagnosis;
pub mod health;
pub mod hot_prefix;
mod instance;
mod listing_rounds;
mod listings;
pub mod models;
mod place;
pub mod pool;
pub mod prefix_shares;
pub mod probe;
mod resolve;
#[cfg(test)]
pub(crate) mod testing;
mod variant;

pub use build::Fleet;
pub use counters::{Counter, Counters, Foreign};
pub use diagnosis::{CheckNote, Diagnosis, FailureNote};
pub use health::{Blame, FailureKind, Status, Verdict};
pub use instance::{Instance, InstanceId};
pub use listing_rounds::ListingRounds;
pub use listings::{Listing, Listings};
pub use models::{Rule, Serves};
pub use place::BuildError;
pub use resolve::resolve_new;
pub use variant::{Endpoint, NoVariant, Routing, Variant};
