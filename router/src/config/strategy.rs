//! How a variant's instances are chosen.

use std::{fmt, str::FromStr};

/// All names, as configurations write them.
pub const STRATEGIES: &[&str] = &["prefix-aware", "least-outstanding-requests", "random"];

/// A variant's routing strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Any able instance, by weight.
    Random,
    /// The able instance with the fewest requests in flight, by weight.
    LeastOutstandingRequests,
    /// The able instance that the prefix key ranks first, with overflow.
    PrefixAware,
}

impl Strategy {
    /// The name used in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::LeastOutstandingRequests => "least-outstanding-requests",
            Self::PrefixAware => "prefix-aware",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Strategy {
    type Err = String;

    /// Takes `prefix-aware` and the SageMaker API's `PREFIX_AWARE` alike.
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::PrefixAware, Self::LeastOutstandingRequests, Self::Random]
            .into_iter()
            .find(|s| {
                s.as_str() == text || s.as_str().to_ascii_uppercase().replace('-', "_") == text
            })
            .ok_or_else(|| {
                format!(
                    "`{text}` is no strategy: write prefix-aware, least-outstanding-requests or \
                     random"
                )
            })
    }
}
