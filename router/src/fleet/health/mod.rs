//! Whether an instance is well: what checks find, what requests meet, what the configuration says.
//!
//! An instance is taken for well until something speaks against it, so that neither a slow health
//! page nor a missing one keeps a fleet from starting. An instance that is dead from the start costs
//! one refused connection, and the request that met it goes to the next instance.

mod alarm;
mod checker;
mod clients;
mod clock;
mod failure;
mod overload;
mod peers;
mod row;
mod state;
mod status;

pub use alarm::{Alarm, Mark};
pub use checker::run;
pub use failure::{Blame, FailureKind, Verdict};
pub use overload::retry_after;
pub(super) use peers::{HasStatus, Peers};
pub(super) use state::HealthState;
pub(crate) use state::{Change, Check};
pub use status::Status;

/// Requests in flight at an instance that is suspect, until one is answered.
pub const TRIALS: u32 = 2;
