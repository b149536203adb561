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
    let mut variants: Vec<_> = serving.variants.iter().map(variant).collect();
    // While requests move, each side has its share of them, and within it each variant its own.
    if let Some(pending) = endpoint.pending.as_ref().filter(|it| it.shifted.is_some()) {
        let share = f64::from(pending.traffic) / 100.0;
        scale(&mut variants, 1.0 - share);
        let mut incoming: Vec<_> = pending.deployment.variants.iter().map(variant).collect();
        for (config, placed) in incoming.iter_mut().zip(&pending.deployment.variants) {
            (config.weight, config.incoming) = (placed.weight.desired, true);
        }
        scale(&mut incoming, share);
        variants.extend(incoming);
    }
    let shadow = |placed| VariantConfig { shadow: true, ..variant(placed) };
    variants.extend(serving.shadows.iter().map(shadow));
    Some(EndpointConfig { name: endpoint.name.clone(), variants })
}

/// Gives the variants' weights this sum.
fn scale(variants: &mut [VariantConfig], sum: f64) {
    let total: f64 = variants.iter().map(|variant| variant.weight).sum();
    if total > 0.0 {
        variants.iter_mut().for_each(|variant| variant.weight *= sum / total);
    }
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
