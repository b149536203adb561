//! What the prefix of a request is, and its key.
//!
//! Pure logic: [`decider`] reads a body as it arrives, for the gateway and for `explain` alike: [`decode`]
//! undoes its content coding, [`scanner`] finds the prefix in it. [`form`] finds the model in a form. [`tenant`] checks the caller's own
//! id, [`mod@key`] makes one number of all that.

pub mod decider;
pub mod decode;
pub mod form;
pub mod key;
#[cfg(any(test, fuzzing))]
pub mod properties;
pub mod scanner;
pub mod tenant;

pub use crate::api::{Api, Target, target};
pub use decider::{Decider, Findings, Known, Shortfall};
pub use form::FormScanner;
pub use key::{KeyParts, PrefixKey, key};
pub use scanner::{MEDIA, MEDIA_UNITS, Prefix, PrefixKind, Scanner, SkipLines};
