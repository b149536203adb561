//! The gateway's configuration: from a TOML file or from flags to one valid [`Config`].

#[cfg(test)]
mod docs;
mod error;
mod flags;
mod model;
mod read;
pub mod reload;
mod section;
mod settings;
#[cfg(test)]
mod tests;
mod value;

pub use error::{ConfigError, Issue};
pub use flags::{Flags, from_flags};
pub use model::*;
pub use read::{load, parse};
pub use settings::{Kind, SETTINGS, STRATEGIES, Setting};
