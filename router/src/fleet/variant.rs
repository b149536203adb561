//! Endpoints and their weighted variants.

use std::{num::NonZeroU32, sync::Arc};

use super::{Instance, Strategy};
use crate::metrics::EndpointMetrics;

/// A variant's routing configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// How an instance is chosen.
    pub strategy: Strategy,
    /// Units of a request that decide where it goes (characters, or bytes on the Invoke API).
    pub prefix_length: usize,
    /// Requests in flight from which an instance takes no more by affinity.
    pub concurrency_threshold: u32,
}

/// A weighted share of an endpoint's requests, with its own instances and routing.
#[derive(Debug)]
pub struct Variant {
    /// Name, unique in the endpoint.
    pub name: String,
    /// Share of requests, relative to the endpoint's other variants.
    pub weight: f64,
    /// How an instance is chosen.
    pub routing: Routing,
    /// Requests in flight that no instance may exceed.
    pub max_in_flight: Option<NonZeroU32>,
    /// Its instances, in the order of the configuration.
    pub instances: Vec<Arc<Instance>>,
}

impl Variant {
    /// Whether any instance can serve.
    pub fn available(&self) -> bool {
        self.instances.iter().any(|instance| instance.available())
    }
}

/// A named service.
#[derive(Debug)]
pub struct Endpoint {
    /// Name, unique in the fleet.
    pub name: String,
    /// What is counted about it.
    pub metrics: Arc<EndpointMetrics>,
    /// Its variants, at least one.
    pub variants: Vec<Arc<Variant>>,
}

/// A client asked for a variant that the endpoint does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint has no variant of that name")]
pub struct UnknownVariant;

impl Endpoint {
    /// The variant that serves a request: the one that the client named
    /// (`X-Amzn-SageMaker-Target-Variant`), or one at random by weight.
    ///
    /// A variant none of whose instances can serve is passed over while another one's can: its
    /// share is not worth an error. A named one is never replaced.
    ///
    /// # Errors
    /// When the client named one that does not exist.
    pub fn pick_variant(
        &self,
        name: Option<&[u8]>,
        rng: &mut fastrand::Rng,
    ) -> Result<&Arc<Variant>, UnknownVariant> {
        if let Some(name) = name {
            let named = |variant: &&Arc<Variant>| variant.name.as_bytes() == name;
            return self.variants.iter().find(named).ok_or(UnknownVariant);
        }
        if let [only] = &*self.variants {
            return Ok(only);
        }
        pick(self.variants.iter().filter(|variant| variant.available()), rng)
            .or_else(|| pick(self.variants.iter(), rng))
            .ok_or(UnknownVariant)
    }
}

/// One of `variants` with a probability in proportion to its weight, in one pass: each new one
/// replaces the choice with its share of the total so far.
fn pick<'a>(
    variants: impl Iterator<Item = &'a Arc<Variant>>,
    rng: &mut fastrand::Rng,
) -> Option<&'a Arc<Variant>> {
    let (mut total, mut choice) = (0.0, None);
    for variant in variants {
        total += variant.weight;
        if choice.is_none() || rng.f64() * total < variant.weight {
            choice = Some(variant);
        }
    }
    choice
}
