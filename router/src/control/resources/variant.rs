//! What an endpoint configuration says of one variant, as far as the gateway acts on it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::strategy;
use crate::config::Strategy;

/// One of `ProductionVariants` or `ShadowProductionVariants`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantSpec {
    /// Unique in its configuration.
    pub name: String,
    /// `ModelName`; absent where inference components bring the models.
    pub model: Option<String>,
    /// `InitialInstanceCount`, at least 1; [`ManagedInstanceScaling`](Self::min_instances) may start at 0.
    pub instances: u32,
    /// `InstanceType`, or the `InstancePools` in the order of their priority: hosts are taken from the first
    /// that has any.
    pub pools: Vec<InstancePool>,
    /// `InitialVariantWeight`, 1 unless it was given; 0 gets no requests but those that ask for the variant.
    pub weight: f64,
    /// `RoutingConfig.RoutingStrategy`, `RANDOM` unless it was given.
    #[serde(with = "strategy")]
    pub strategy: Strategy,
    /// `PrefixLength` in characters of messages or bytes of a body: only with `PREFIX_AWARE`.
    pub prefix_length: Option<usize>,
    /// `ConcurrencyThreshold` in requests in flight: only with `PREFIX_AWARE`.
    pub concurrency_threshold: Option<NonZeroU32>,
    /// `ManagedInstanceScaling.MinInstanceCount`, where that is enabled.
    #[serde(default)]
    pub min_instances: Option<u32>,
    /// `ManagedInstanceScaling.MaxInstanceCount`, where that is enabled.
    #[serde(default)]
    pub max_instances: Option<u32>,
    /// How long instances may take to become ready, in seconds
    /// (`VariantInstanceProvisionTimeoutInSeconds`, else `ContainerStartupHealthCheckTimeoutInSeconds`).
    #[serde(default)]
    pub ready_within: Option<u32>,
}

/// Where hosts may come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstancePool {
    /// Such as `ml.p5.48xlarge`.
    pub instance_type: String,
    /// `ModelNameOverride`: the model that hosts of this type serve instead of the variant's.
    #[serde(default)]
    pub model: Option<String>,
}
