//! Fleets for tests.

use std::sync::Arc;

use super::{Counters, Fleet, Instance, Variant};
use crate::{
    config::{
        ComponentConfig, Config, CopyConfig, EndpointConfig, InstanceConfig, Strategy,
        VariantConfig,
    },
    metrics::Metrics,
};

/// A configuration of one variant with the instances `10.0.0.1`, `10.0.0.2`, ... of the given
/// weights.
pub(crate) fn config(strategy: Strategy, threshold: u32, weights: &[f64]) -> Config {
    let instances = weights.iter().zip(1..).map(|(weight, n)| InstanceConfig {
        url: format!("http://10.0.0.{n}:8000").parse().expect("a valid URL"),
        weight: *weight,
        drain: false,
    });
    let variant = VariantConfig {
        strategy,
        prefix_length: 1024,
        concurrency_threshold: threshold,
        instances: instances.collect(),
        ..VariantConfig::named("v")
    };
    let endpoint = EndpointConfig::new("e", vec![variant]);
    Config { endpoints: vec![endpoint], ..Config::default() }
}

/// The fleet of a configuration.
pub(crate) fn fleet(config: Config) -> Fleet {
    Fleet::build(&Arc::new(config), None, &Counters::heap(256), &Metrics::new())
        .expect("enough counters")
}

/// The only variant of [`config`]'s fleet.
pub(crate) fn variant(strategy: Strategy, threshold: u32, weights: &[f64]) -> Arc<Variant> {
    only_variant(&fleet(config(strategy, threshold, weights)))
}

/// The first variant of the first endpoint.
pub(crate) fn only_variant(fleet: &Fleet) -> Arc<Variant> {
    Arc::clone(&fleet.endpoints()[0].variants[0])
}

/// Has an instance list these models, separated by spaces.
pub(crate) fn list(instance: &Instance, models: &str) {
    let data: Vec<_> = models.split(' ').map(|id| serde_json::json!({ "id": id })).collect();
    let body = serde_json::json!({ "data": data }).to_string();
    let list = super::models::ModelList::parse(body.as_bytes()).expect("a list");
    instance.set_models(1, Some(Some(Arc::new(list))));
}

/// Takes an instance out as failed health checks do.
pub(crate) fn down(instance: &Instance) {
    for _ in 0..3 {
        instance.note_check(super::health::Check::Bad, "status 500");
    }
    assert!(!instance.available());
}

/// Brings an instance back as good health checks do.
pub(crate) fn up(instance: &Instance) {
    for _ in 0..2 {
        instance.note_check(super::health::Check::Good, "");
    }
    assert!(instance.available());
}

/// Makes an instance change its health by checks, back and forth.
pub(crate) fn flip(instance: &Instance) {
    use super::health::Check;
    for check in [Check::Bad, Check::Bad, Check::Bad, Check::Good, Check::Good] {
        instance.note_check(check, "status 500");
    }
}

/// Request number `n` of as many clients and prompts.
pub(crate) fn blame(n: u32) -> super::Blame {
    super::Blame { prefix: Some(n.into()), client: std::net::Ipv4Addr::from(n).into() }
}

/// Gives the only endpoint components, with the host's index and the slot of each copy.
pub(crate) fn components(config: &mut Config, components: &[(&str, &[(usize, u32)])]) {
    let endpoint = &mut config.endpoints[0];
    let variant = &endpoint.variants[0];
    let copy = |(host, slot): &(usize, u32)| CopyConfig {
        host: variant.instances[*host].url.clone(),
        slot: *slot,
        url: None,
        path_prefix: None,
    };
    endpoint.components = components
        .iter()
        .map(|(name, copies)| ComponentConfig {
            name: (*name).into(),
            variant: variant.name.clone(),
            invocations_path: variant.invocations_path.clone(),
            health_path: None,
            copies: copies.iter().map(copy).collect(),
            adapter: None,
        })
        .collect();
}
