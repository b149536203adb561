//! Copies of inference components on the hosts of their variants.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    BuildError, Counters, Endpoint, Fleet, Instance, Variant, build::Place, build::place_name,
    health::Peers,
};
use crate::{
    config::{ComponentConfig, CopyConfig, Health},
    metrics::Metrics,
};

/// What copies are made of.
pub(super) struct Copies<'a> {
    pub(super) previous: Option<&'a Fleet>,
    pub(super) counters: &'a Counters,
    pub(super) metrics: &'a Metrics,
    pub(super) health: &'a Arc<Health>,
    /// Where each instance is, the hosts' included.
    pub(super) places: &'a mut HashMap<Place, Arc<Instance>>,
}

impl Copies<'_> {
    /// Gives an endpoint its components. A copy whose host the endpoint does not have is left out.
    ///
    /// # Errors
    /// When there is no counter left.
    pub(super) fn add(
        &mut self,
        endpoint: &mut Endpoint,
        components: &[ComponentConfig],
    ) -> Result<(), BuildError> {
        for wanted in components {
            // While requests move, it is with the variant that they come from.
            let hosting = endpoint
                .variants
                .iter()
                .find(|variant| variant.name == wanted.variant && variant.trial.is_none());
            let Some(hosting) = hosting.map(Arc::clone) else { continue };
            let known = self.previous.and_then(|it| it.endpoint(&endpoint.name));
            let known = known.and_then(|endpoint| endpoint.components.get(&wanted.name));
            // Its copies with servers of their own know each other; others are as well as their hosts.
            let peers = known.map(|known| Arc::clone(&known.peers)).unwrap_or_default();
            let copies = wanted.copies.iter();
            let copies = copies.map(|copy| self.copy(endpoint, wanted, &hosting, copy, &peers));
            let copies: Vec<_> = copies.filter_map(Result::transpose).collect::<Result<_, _>>()?;
            let hosts: HashSet<u64> = copies.iter().map(|copy| copy.host).collect();
            let component = Variant {
                name: hosting.name.clone(),
                weight: hosting.weight,
                routing: hosting.routing,
                max_in_flight: hosting.max_in_flight,
                invocations_path: wanted.invocations_path.clone(),
                shares_hosts: hosts.len() < copies.len(),
                drains: vec![false; copies.len()],
                instances: copies,
                answers: known.map(|known| Arc::clone(&known.answers)).unwrap_or_default(),
                prefixes: known.map(|known| Arc::clone(&known.prefixes)).unwrap_or_default(),
                trial: None,
                peers,
            };
            endpoint.components.insert(wanted.name.clone(), Arc::new(component));
        }
        Ok(())
    }

    fn copy(
        &mut self,
        endpoint: &Endpoint,
        component: &ComponentConfig,
        hosting: &Variant,
        copy: &CopyConfig,
        peers: &Arc<Peers>,
    ) -> Result<Option<Arc<Instance>>, BuildError> {
        let place =
            |url: &str| -> Place { (endpoint.name.clone(), hosting.name.clone(), url.to_owned()) };
        let Some(host) = self.places.get(&place(copy.host.as_str())).map(Arc::clone) else {
            return Ok(None);
        };
        let url = copy.url.as_ref().unwrap_or(&copy.host);
        let name = format!("{}#{}.{}", url.as_str(), component.name, copy.slot);
        let place = place(&name);
        let known = self.previous.and_then(|previous| previous.known(&place));
        let instance = match known.filter(|known| known.is_copy_on(&host)) {
            Some(known) => known,
            None => {
                let (endpoint, variant) = (&endpoint.name, &hosting.name);
                let counter = self.counters.take_for(&place_name(&place));
                let counter = counter.map_err(|source| BuildError::NoCounter {
                    url: name.clone(),
                    endpoint: endpoint.clone(),
                    variant: variant.clone(),
                    source,
                })?;
                let metrics = self.metrics.instance(endpoint, variant, &name);
                let own = copy.url.as_ref().map(|url| (url, self.health, Arc::clone(peers)));
                host.copy(name, own, copy.path_prefix.clone(), counter, metrics)
            }
        };
        self.places.insert(place, Arc::clone(&instance));
        Ok(Some(instance))
    }
}
