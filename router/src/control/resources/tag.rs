//! Tags: words that people put on resources. They mean nothing to the gateway.

use serde::{Deserialize, Serialize};

/// One tag; keys are unique on a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// 1 to 128 characters.
    #[serde(rename = "Key")]
    pub key: String,
    /// Up to 256 characters.
    #[serde(rename = "Value")]
    pub value: String,
}
