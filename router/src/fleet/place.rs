//! Where instances are, by which they stay the same.

use super::counters::NoSlot;

/// Why a valid configuration could not become a fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There are more instances than counters.
    #[error("instance {url} of {endpoint}/{variant} gets no in-flight counter: {source}")]
    NoCounter {
        /// The instance.
        url: String,
        /// Its endpoint.
        endpoint: String,
        /// Its variant.
        variant: String,
        /// Why.
        source: NoSlot,
    },
}

/// Endpoint, variant, URL: what an instance is the same by.
pub(super) type Place = (String, String, String);

/// A place as other processes know it.
pub(super) fn place_name((endpoint, variant, url): &Place) -> String {
    // No name has a space in it.
    format!("{endpoint} {variant} {url}")
}
