//! Members of `ProductionVariants` and `ShadowProductionVariants`.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use super::{items, number, optional, text};
use crate::{
    aws::AwsError,
    config::Strategy,
    control::resources::{InstancePool, VariantSpec},
};

/// `InitialVariantWeight` when it is not given.
const DEFAULT_WEIGHT: f64 = 1.0;

/// What it says, as far as the gateway acts on it.
pub(super) fn spec(input: &Value) -> Result<VariantSpec, AwsError> {
    let routing = &input["RoutingConfig"];
    let strategy = match text(routing, "RoutingStrategy") {
        "" => Strategy::Random,
        name => name.parse().map_err(|_| {
            AwsError::validation(format!("RoutingStrategy {name} is not offered by this gateway."))
        })?,
    };
    let prefix_aware = &routing["PrefixAwareRoutingConfig"];
    let scaling = &input["ManagedInstanceScaling"];
    let scaling = if text(scaling, "Status") == "ENABLED" { scaling } else { &Value::Null };
    Ok(VariantSpec {
        name: text(input, "VariantName").to_owned(),
        model: optional(input, "ModelName"),
        instances: number(input, "InitialInstanceCount").unwrap_or(1),
        pools: pools(input),
        weight: input["InitialVariantWeight"].as_f64().unwrap_or(DEFAULT_WEIGHT),
        strategy,
        prefix_length: prefix_aware["PrefixLength"]
            .as_u64()
            .and_then(|it| usize::try_from(it).ok()),
        concurrency_threshold: number(prefix_aware, "ConcurrencyThreshold")
            .and_then(NonZeroU32::new),
        min_instances: number(scaling, "MinInstanceCount"),
        max_instances: number(scaling, "MaxInstanceCount"),
        ready_within: number(input, "VariantInstanceProvisionTimeoutInSeconds")
            .or_else(|| number(input, "ContainerStartupHealthCheckTimeoutInSeconds")),
    })
}

fn pools(input: &Value) -> Vec<InstancePool> {
    if let Some(instance_type) = optional(input, "InstanceType") {
        return vec![InstancePool { instance_type, model: None }];
    }
    let mut pools: Vec<&Value> = items(input, "InstancePools").iter().collect();
    // The sort is stable: pools of one priority stay in the order in which they were given.
    pools.sort_by_key(|pool| pool["Priority"].as_u64());
    let pool = |pool: &Value| InstancePool {
        instance_type: text(pool, "InstanceType").to_owned(),
        model: optional(pool, "ModelNameOverride"),
    };
    pools.into_iter().map(pool).collect()
}

/// Puts in what holds when a member is not given, as descriptions have it.
pub(super) fn complete(input: &mut Value) {
    if input["InitialVariantWeight"].is_null() {
        input["InitialVariantWeight"] = json!(DEFAULT_WEIGHT);
    }
}
