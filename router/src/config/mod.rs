//! The gateway's configuration: from a TOML file or from flags to one valid [`Config`].

mod addresses;
#[cfg(test)]
mod docs;
mod error;
mod flags;
mod read;
mod section;
mod sections;
mod setting;
mod strategy;
#[cfg(test)]
mod tests;
mod url;
mod value;

pub use error::{ConfigError, Issue};
pub use flags::{Flags, from_flags};
pub use read::{STANDARD_INPUT, load, parse, standard_input, text};
pub use sections::*;
pub use setting::{Kind, Setting};
pub use strategy::{STRATEGIES, Strategy};
pub use url::{InstanceUrl, UrlError};
