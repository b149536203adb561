//! Endpoints as the gateway's configuration has them.

use std::collections::HashMap;

use crate::{
    config::{
        AdapterCalls, AdapterConfig, ComponentConfig, Copies, CopyConfig, EndpointConfig, HostPool,
        InstanceConfig, InstanceUrl, VariantConfig,
    },
    control::{
        Component, ComponentStatus, Deployment, Endpoint, EndpointStatus, Placed, Resources,
        resources::InstancePool,
    },
};

/// The endpoints that serve. Those without a deployment in service are left out: to who calls them they
/// do not exist yet.
pub fn endpoints(resources: &Resources, pools: &[HostPool]) -> Vec<EndpointConfig> {
    let mut of_endpoint: HashMap<&str, Vec<&Component>> = HashMap::new();
    for component in resources.components.values() {
        of_endpoint.entry(&component.endpoint).or_default().push(component);
    }
    let endpoints = resources.endpoints.values().filter_map(|endpoint| {
        let components = of_endpoint.remove(endpoint.name.as_str()).unwrap_or_default();
        of(endpoint, &components, pools)
    });
    endpoints.collect()
}

fn of(
    endpoint: &Endpoint,
    components: &[&Component],
    pools: &[HostPool],
) -> Option<EndpointConfig> {
    if matches!(endpoint.status, EndpointStatus::Deleting | EndpointStatus::OutOfService) {
        return None;
    }
    let serving = endpoint.serving.as_ref()?;
    let mut variants: Vec<_> = serving.variants.iter().map(variant).collect();
    let total = variants.iter().map(|variant| variant.weight).sum::<f64>();
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
    // What a shadow gets of copies goes by the others' weights, whatever these were scaled to.
    let scaled: f64 = variants.iter().map(|variant| variant.weight).sum();
    let shadows = serving.shadows.iter().map(variant).map(|it| VariantConfig {
        shadow: true,
        weight: if total > 0.0 { it.weight * scaled / total } else { it.weight },
        ..it
    });
    variants.extend(shadows);
    // Adapters come behind what they are adapters of.
    let of_kind = |adapters| components.iter().filter(move |it| it.is_adapter() == adapters);
    let alive = of_kind(false).chain(of_kind(true));
    let alive = alive.filter(|it| it.status != ComponentStatus::Deleting);
    Some(EndpointConfig {
        name: endpoint.name.clone(),
        variants,
        components: alive.map(|it| component(it, serving, pools)).collect(),
        needs_component: serving.variants.iter().all(|variant| variant.spec.model.is_none()),
    })
}

fn component(component: &Component, serving: &Deployment, pools: &[HostPool]) -> ComponentConfig {
    let types = serving.variants.iter().filter(|variant| variant.spec.name == component.variant);
    let types: Vec<_> = types.flat_map(|variant| &variant.spec.pools).collect();
    let base = component.base();
    let served = base.unwrap_or(&component.name);
    let adapter = base.zip(calls(component, &types, pools)).map(|(base, calls)| AdapterConfig {
        base: base.to_owned(),
        weights: component.specs.iter().find_map(|it| it.artifact.clone()).unwrap_or_default(),
        load: calls.load.clone(),
        unload: calls.unload.clone(),
    });
    let copies = component.places.iter().filter_map(|place| {
        let host = InstanceUrl::parse(&place.host).ok()?;
        let suits = |pool: &&HostPool| {
            types.iter().any(|it| it.instance_type == pool.instance_type)
                && pool.hosts.contains(&host)
        };
        let copies = pools.iter().find(suits).map_or(Copies::Name, |pool| pool.copies);
        let url = match copies {
            Copies::Port => Some(host.at_port_above(place.slot)?),
            Copies::Name | Copies::Path => None,
        };
        let path_prefix = (copies == Copies::Path).then(|| format!("/{served}"));
        Some(CopyConfig { host, slot: place.slot, url, path_prefix })
    });
    let model = component.specs.iter().find_map(|spec| spec.model_input.as_ref());
    let default = VariantConfig::named(&component.variant).invocations_path;
    ComponentConfig {
        name: component.name.clone(),
        variant: component.variant.clone(),
        invocations_path: model.and_then(|it| path(it, INVOCATIONS)).unwrap_or(default),
        health_path: model.and_then(health_path),
        copies: copies.collect(),
        adapter,
    }
}

/// The calls for adapters of the hosts that have a component.
fn calls<'p>(
    component: &Component,
    types: &[&InstancePool],
    pools: &'p [HostPool],
) -> Option<&'p AdapterCalls> {
    let has = |pool: &&HostPool| {
        types.iter().any(|it| it.instance_type == pool.instance_type)
            && component
                .places
                .iter()
                .any(|place| pool.hosts.iter().any(|host| host.as_str() == place.host))
    };
    pools.iter().filter(has).find_map(|pool| pool.adapters.as_ref())
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
        invocations_path: placed
            .model
            .as_ref()
            .and_then(|model| path(model, INVOCATIONS))
            .unwrap_or(default.invocations_path),
        health_path: placed.model.as_ref().and_then(health_path),
        instances: placed.hosts.iter().filter_map(instance).collect(),
        ..default
    }
}

/// The variable of a model's container that names the path at which its instances take calls.
const INVOCATIONS: &str = "ATALHO_INVOCATIONS_PATH";
/// The one that names the path at which they are asked for their health.
const HEALTH: &str = "ATALHO_HEALTH_PATH";

/// Where a model's instances are asked for their health, if it says so.
pub(super) fn health_path(model: &serde_json::Value) -> Option<String> {
    path(model, HEALTH)
}

/// What a model, as it was made, has in such a variable, if that is a path.
fn path(model: &serde_json::Value, variable: &str) -> Option<String> {
    let containers = model["Containers"].as_array().into_iter().flatten();
    let mut containers = std::iter::once(&model["PrimaryContainer"]).chain(containers);
    let path = containers.find_map(|it| it["Environment"][variable].as_str())?;
    let is_path = path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'#' | b'?'));
    is_path.then(|| path.to_owned())
}
