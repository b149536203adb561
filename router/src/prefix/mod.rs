//! What the prefix of a request is, and its key.
//!
//! Pure logic: [`scanner`] finds the prefix in a body as it arrives, [`tenant`] checks the caller's own
//! id, [`mod@key`] makes one number of all that.

pub mod key;
#[cfg(any(test, fuzzing))]
pub mod properties;
pub mod scanner;
pub mod tenant;

pub use crate::api::{Api, Target, target};
pub use key::{KeyParts, PrefixKey, key};
pub use scanner::{MEDIA, MEDIA_UNITS, Prefix, PrefixKind, Scanner};
