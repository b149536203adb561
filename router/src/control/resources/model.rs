//! Models: a name for what instances serve.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tag;

/// `CreateModel` makes it; nothing changes it but its tags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Unique among models, whatever the case of its letters.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// The members of `CreateModel` as they were given, without `Tags`.
    pub input: Value,
    /// In the order in which they were added.
    #[serde(default)]
    pub tags: Vec<Tag>,
}
