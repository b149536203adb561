//! Endpoint configurations: which variants an endpoint is to have.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Tag, VariantSpec};

/// `CreateEndpointConfig` makes it; nothing changes it but its tags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointConfig {
    /// Unique among endpoint configurations, whatever the case of its letters.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// The members of `CreateEndpointConfig` as they were given, without `Tags`.
    pub input: Value,
    /// What `ProductionVariants` says; at least one.
    pub variants: Vec<VariantSpec>,
    /// What `ShadowProductionVariants` says: they get copies of requests, and their answers are dropped.
    #[serde(default)]
    pub shadows: Vec<VariantSpec>,
    /// In the order in which they were added.
    #[serde(default)]
    pub tags: Vec<Tag>,
}
