//! Endpoints as the gateway's configuration has them.

use crate::{
    config::{EndpointConfig, InstanceConfig, InstanceUrl, VariantConfig},
    control::{Endpoint, EndpointStatus, Placed, Resources},
};

/// The endpoints that serve. Those without a deployment in service are left out: to who calls them they
/// do not exist yet.
pub fn endpoints(resources: &Resources) -> Vec<EndpointConfig> {
    resources.endpoints.values().filter_map(|endpoint| of(endpoint)).collect()
}

fn of(endpoint: &Endpoint) -> Option<EndpointConfig> {
    if matches!(endpoint.status, EndpointStatus::Deleting | EndpointStatus::OutOfService) {
        return None;
    }
    let serving = endpoint.serving.as_ref()?;
    let variants = serving.variants.iter().map(variant).collect();
    Some(EndpointConfig { name: endpoint.name.clone(), variants })
}

fn variant(placed: &Placed) -> VariantConfig {
    let default = VariantConfig::named(&placed.spec.name);
    let instance = |host: &String| {
        // Hosts come out of the pools of a configuration, where they were checked.
        let url = InstanceUrl::parse(host).ok()?;
        Some(InstanceConfig { url, weight: 1.0, drain: false })
    };
    VariantConfig {
        weight: placed.weight.current,
        strategy: placed.spec.strategy,
        prefix_length: placed.spec.prefix_length.unwrap_or(default.prefix_length),
        concurrency_threshold: placed
            .spec
            .concurrency_threshold
            .map_or(default.concurrency_threshold, Into::into),
        instances: placed.hosts.iter().filter_map(instance).collect(),
        ..default
    }
}
