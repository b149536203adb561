//! What the configuration file defines, as resources: visible, and never changed by an operation.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Deployment, Endpoint, EndpointConfig, EndpointStatus, Model, Placed, Resources, VariantSpec,
    Wanted,
};
use crate::config::{self, Strategy, VariantConfig};

/// An endpoint, an endpoint configuration and a model of the endpoint's name for each `[[endpoint]]`.
#[derive(Clone, Debug, Default)]
pub struct FileResources {
    endpoints: BTreeMap<String, Arc<config::EndpointConfig>>,
    resources: Resources,
}

impl FileResources {
    /// What is defined from now on. An endpoint that was there already keeps its time of creation, and is
    /// modified now if it has become another.
    pub fn updated(&self, endpoints: &[config::EndpointConfig], now: u64) -> Self {
        let mut next = Self::default();
        for endpoint in endpoints {
            let name = &endpoint.name;
            let former = self.endpoints.get(name).zip(self.resources.endpoints.get(name));
            let (created, modified) = match former {
                Some((defined, was)) if **defined == *endpoint => (was.created, was.modified),
                Some((_, was)) => (was.created, now),
                None => (now, now),
            };
            next.insert(endpoint, created, modified);
            next.endpoints.insert(name.clone(), Arc::new(endpoint.clone()));
        }
        next
    }

    /// As resources.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    fn insert(&mut self, endpoint: &config::EndpointConfig, created: u64, modified: u64) {
        let name = endpoint.name.clone();
        let specs: Vec<VariantSpec> = endpoint.variants.iter().map(|it| spec(&name, it)).collect();
        let variants = specs.iter().zip(&endpoint.variants).map(|(spec, variant)| Placed {
            spec: spec.clone(),
            model: None,
            weight: Wanted::settled(spec.weight),
            count: Wanted::settled(spec.instances),
            hosts: variant.instances.iter().map(|instance| instance.url.to_string()).collect(),
        });
        let serving =
            Deployment { config: name.clone(), variants: variants.collect(), shadows: vec![] };
        self.resources.endpoints.insert(
            name.clone(),
            Arc::new(Endpoint {
                name: name.clone(),
                status: EndpointStatus::InService,
                failure: None,
                created,
                modified,
                generation: 0,
                serving: Some(serving),
                pending: None,
                deployment_config: None,
                tags: vec![],
            }),
        );
        let model = Model { name: name.clone(), created, input: model(&name), tags: vec![] };
        self.resources.models.insert(name.clone(), Arc::new(model));
        let input = serde_json::json!({
            "EndpointConfigName": name,
            "ProductionVariants": specs.iter().map(variant).collect::<Vec<_>>(),
        });
        let config = EndpointConfig {
            name: name.clone(),
            created,
            input,
            variants: specs,
            shadows: vec![],
            tags: vec![],
        };
        self.resources.configs.insert(name, Arc::new(config));
    }
}

fn model(name: &str) -> serde_json::Value {
    serde_json::json!({ "ModelName": name })
}

fn spec(model: &str, variant: &VariantConfig) -> VariantSpec {
    let prefix_aware = variant.strategy == Strategy::PrefixAware;
    VariantSpec {
        name: variant.name.clone(),
        model: Some(model.to_owned()),
        instances: u32::try_from(variant.instances.len()).unwrap_or(u32::MAX),
        pools: vec![],
        weight: variant.weight,
        strategy: variant.strategy,
        prefix_length: prefix_aware.then_some(variant.prefix_length),
        concurrency_threshold: std::num::NonZeroU32::new(variant.concurrency_threshold)
            .filter(|_| prefix_aware),
        min_instances: None,
        max_instances: None,
        ready_within: None,
    }
}

/// A member of `ProductionVariants` that describes it.
fn variant(spec: &VariantSpec) -> serde_json::Value {
    let mut variant = serde_json::json!({
        "VariantName": spec.name,
        "ModelName": spec.model,
        "InitialVariantWeight": spec.weight,
        "RoutingConfig": super::routing_config(spec),
    });
    // The API knows no variant of zero instances by this member; it is left out then.
    if spec.instances > 0 {
        variant["InitialInstanceCount"] = spec.instances.into();
    }
    variant
}
