//! From a configuration to a fleet, keeping the instances that stay.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use arc_swap::ArcSwap;

use super::{Counters, Endpoint, Instance, Routing, Variant, counters::NoSlot};
use crate::{
    config::{Config, InstanceConfig, VariantConfig},
    metrics::Metrics,
};

/// Why a valid configuration could not become a fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There are more instances than counters.
    #[error("instance {url} of {endpoint}/{variant} gets no in-flight counter: {source}")]
    NoCounter {
        /// The instance.
        url: String,
        /// Its endpoint.
        endpoint: String,
        /// Its variant.
        variant: String,
        /// Why.
        source: NoSlot,
    },
}

/// Endpoint, variant, URL: what an instance is the same by.
type Place = (String, String, String);

/// Everything that can serve, with the configuration that it came from. Immutable; a reload makes a
/// new one, and [`Fleet::replace`] puts it in the old one's place.
#[derive(Debug)]
pub struct Fleet {
    endpoints: Vec<Endpoint>,
    config: Arc<Config>,
    places: HashMap<Place, Arc<Instance>>,
    /// Removed instances whose last requests have not ended. One that is configured again before
    /// that is still the same, and as busy as it is.
    leaving: HashMap<Place, Weak<Instance>>,
}

impl Fleet {
    /// Makes the fleet of `config`. Instances of `previous` with the same endpoint, variant and URL
    /// stay the same; nothing about them changes before [`Fleet::replace`].
    ///
    /// # Errors
    /// When there are more instances than free counters. `previous` is then as it was.
    pub fn build(
        config: &Arc<Config>,
        previous: Option<&Self>,
        counters: &Counters,
        metrics: &Metrics,
    ) -> Result<Self, BuildError> {
        let health = Arc::new(config.health.clone());
        let mut places = HashMap::new();
        let mut instance = |endpoint: &str, variant: &str, wanted: &InstanceConfig| {
            let url = &wanted.url;
            let place: Place = (endpoint.into(), variant.into(), url.as_str().into());
            let instance = match previous.and_then(|previous| previous.known(&place)) {
                Some(instance) => instance,
                None => {
                    let counter = counters.take().map_err(|source| BuildError::NoCounter {
                        url: url.as_str().into(),
                        endpoint: endpoint.into(),
                        variant: variant.into(),
                        source,
                    })?;
                    let metrics = metrics.instance(endpoint, variant, url.as_str());
                    Instance::new(url, wanted.weight, wanted.drain, counter, &health, metrics)
                }
            };
            places.insert(place, Arc::clone(&instance));
            Ok(instance)
        };
        let mut variant = |endpoint: &str, wanted: &VariantConfig| {
            let instances = wanted.instances.iter().map(|i| instance(endpoint, &wanted.name, i));
            Ok(Arc::new(Variant {
                name: wanted.name.clone(),
                weight: wanted.weight,
                routing: Routing {
                    strategy: wanted.strategy,
                    prefix_length: wanted.prefix_length,
                    concurrency_threshold: wanted.concurrency_threshold,
                },
                max_in_flight: wanted.max_in_flight,
                instances: instances.collect::<Result<_, BuildError>>()?,
            }))
        };
        let endpoints = config.endpoints.iter().map(|wanted| {
            let variants = wanted.variants.iter().map(|v| variant(&wanted.name, v));
            Ok(Endpoint {
                name: wanted.name.clone(),
                metrics: metrics.endpoint(&wanted.name),
                variants: variants.collect::<Result<_, BuildError>>()?,
            })
        });
        let endpoints = endpoints.collect::<Result<_, BuildError>>()?;
        let mut leaving = HashMap::new();
        if let Some(previous) = previous {
            let gone = previous.places.iter().map(|(p, i)| (p, Arc::downgrade(i)));
            let before = previous.leaving.iter().map(|(p, i)| (p, Weak::clone(i)));
            leaving.extend(
                before
                    .chain(gone)
                    .filter(|(place, instance)| {
                        !places.contains_key(*place) && instance.strong_count() > 0
                    })
                    .map(|(place, instance)| (place.clone(), instance)),
            );
        }
        Ok(Self { endpoints, config: Arc::clone(config), places, leaving })
    }

    fn known(&self, place: &Place) -> Option<Arc<Instance>> {
        let staying = self.places.get(place).cloned();
        staying.or_else(|| self.leaving.get(place).and_then(Weak::upgrade))
    }

    /// Puts this fleet in the place of the current one: from here on new requests see it. Weights,
    /// draining and health settings of the instances that stay are those of this fleet, and removed
    /// instances get no new requests, also from who still looks at the old fleet.
    pub fn replace(self: Arc<Self>, current: &ArcSwap<Self>) {
        current.store(Arc::clone(&self));
        let health = Arc::new(self.config.health.clone());
        for endpoint in &self.config.endpoints {
            for variant in &endpoint.variants {
                for wanted in &variant.instances {
                    let place = (
                        endpoint.name.clone(),
                        variant.name.clone(),
                        wanted.url.as_str().to_owned(),
                    );
                    self.places[&place].configure(wanted.weight, wanted.drain, &health);
                }
            }
        }
        for instance in self.leaving.values().filter_map(Weak::upgrade) {
            instance.remove(&health);
        }
    }

    /// The configuration that this fleet was made of.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.name == name)
    }

    /// The endpoint of requests that name none: the first of the configuration.
    pub fn default_endpoint(&self) -> Option<&Endpoint> {
        self.endpoints.first()
    }

    /// All endpoints, in the order of the configuration.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// All instances with their endpoint and variant, in the order of the configuration.
    pub fn instances(&self) -> impl Iterator<Item = (&Endpoint, &Arc<Variant>, &Arc<Instance>)> {
        self.endpoints.iter().flat_map(|endpoint| {
            endpoint.variants.iter().flat_map(move |variant| {
                variant.instances.iter().map(move |instance| (endpoint, variant, instance))
            })
        })
    }

    /// Removed instances whose last requests have not ended.
    pub fn leaving(&self) -> impl Iterator<Item = Arc<Instance>> {
        self.leaving.values().filter_map(Weak::upgrade)
    }
}
