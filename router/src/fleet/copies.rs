//! Copies of inference components on the hosts of their variants.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Counters, Endpoint, Instance, Variant,
    adapter::Adapter,
    health::Peers,
    place::{BuildError, Place, place_name},
};
use crate::{
    config::{ComponentConfig, CopyConfig, Health},
    metrics::Metrics,
};

/// What copies are made of.
pub(super) struct Copies<'a> {
    /// A component of the fleet before, by its endpoint and name.
    pub(super) component: &'a dyn Fn(&str, &str) -> Option<Arc<Variant>>,
    /// An instance of the fleet before.
    pub(super) known: &'a dyn Fn(&Place) -> Option<Arc<Instance>>,
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
            let known = (self.component)(&endpoint.name, &wanted.name);
            // Its copies with servers of their own know each other; others are as well as their hosts.
            let known = known.as_deref();
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
                health_path: wanted.health_path.clone(),
                is_adapter: wanted.adapter.is_some(),
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
        let url = copy.url.as_ref().unwrap_or(&copy.host);
        // An adapter is on a copy of its base.
        let on = match &component.adapter {
            None => copy.host.as_str().to_owned(),
            Some(adapter) => format!("{}#{}.{}", url.as_str(), adapter.base, copy.slot),
        };
        let Some(host) = self.places.get(&place(&on)).map(Arc::clone) else {
            return Ok(None);
        };
        let name = format!("{}#{}.{}", url.as_str(), component.name, copy.slot);
        let place = place(&name);
        let known = (self.known)(&place);
        let same = |known: &Arc<Instance>| {
            known.is_copy_on(&host)
                && match (known.adapter(), &component.adapter) {
                    (Some((adapter, _)), Some(wanted)) => adapter.is(wanted),
                    (None, None) => true,
                    _ => false,
                }
        };
        let instance = match known.filter(same) {
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
                let adapter = component.adapter.as_ref();
                let adapter = adapter.map(|config| Arc::new(Adapter::new(&component.name, config)));
                let own = copy.url.as_ref().filter(|_| adapter.is_none());
                let own = own.map(|url| (url, self.health, Arc::clone(peers)));
                host.copy(name, own, copy.path_prefix.clone(), adapter, counter, metrics)
            }
        };
        self.places.insert(place, Arc::clone(&instance));
        Ok(Some(instance))
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::*;
    use crate::{
        config::{Config, Strategy},
        fleet::{
            Fleet,
            testing::{self, components, down},
        },
    };

    /// A fleet that can be replaced, of two hosts.
    struct Gateway {
        counters: Counters,
        metrics: Arc<Metrics>,
        current: ArcSwap<Fleet>,
    }

    fn config(copies: &[(&str, &[(usize, u32)])]) -> Config {
        let mut config = testing::config(Strategy::PrefixAware, 2, &[1.0, 1.0]);
        components(&mut config, copies);
        config
    }

    impl Gateway {
        fn new(config: Config) -> Self {
            let (counters, metrics) = (Counters::heap(32), Metrics::new());
            let fleet = Fleet::build(&Arc::new(config), None, &counters, &metrics);
            Self { counters, metrics, current: ArcSwap::from_pointee(fleet.expect("room")) }
        }

        fn reload(&self, config: Config) {
            let old = self.current.load();
            let new = Fleet::build(&Arc::new(config), Some(&old), &self.counters, &self.metrics);
            Arc::new(new.expect("room")).replace(&self.current);
        }

        fn copies(&self, component: &str) -> Vec<Arc<Instance>> {
            let fleet = self.current.load();
            fleet.endpoints()[0].components.get(component).expect("it is there").instances.clone()
        }

        fn host(&self, n: usize) -> Arc<Instance> {
            Arc::clone(&self.current.load().endpoints()[0].variants[0].instances[n])
        }
    }

    #[test]
    fn a_copy_counts_its_own_requests_and_is_as_well_as_its_host() {
        let gateway = Gateway::new(config(&[("a", &[(0, 0), (0, 1), (1, 0)]), ("b", &[(0, 2)])]));
        let (a, b) = (gateway.copies("a"), gateway.copies("b"));
        let urls: Vec<_> = a.iter().chain(&b).map(|it| &*it.url).collect();
        let expected = ["1:8000#a.0", "1:8000#a.1", "2:8000#a.0", "1:8000#b.2"];
        assert_eq!(urls, expected.map(|it| format!("http://10.0.0.{it}")));
        assert_eq!(a[0].authority, "10.0.0.1:8000");
        a[0].counter().increment_below(9);
        let counts: Vec<_> = a.iter().chain(&b).map(|it| it.in_flight()).collect();
        assert_eq!((counts, gateway.host(0).in_flight()), (vec![1, 0, 0, 0], 0));
        a[0].counter().decrement();
        down(&gateway.host(0));
        let well: Vec<_> = a.iter().chain(&b).map(|it| it.available()).collect();
        assert_eq!(well, [false, false, true, false]);
        // One look at each host is enough.
        assert_eq!(gateway.current.load().servers().count(), 2);
        assert_eq!(gateway.current.load().instances().count(), 6);
    }

    #[test]
    fn what_stays_is_the_same_and_what_goes_leaves_its_host_alone() {
        let gateway = Gateway::new(config(&[("a", &[(0, 0), (1, 0)]), ("b", &[(0, 1)])]));
        let (a, b) = (gateway.copies("a"), gateway.copies("b"));
        b[0].counter().increment_below(9);
        gateway.reload(config(&[("a", &[(0, 0), (1, 0), (1, 1)])]));
        let now = gateway.copies("a");
        assert!(Arc::ptr_eq(&a[0], &now[0]) && Arc::ptr_eq(&a[1], &now[1]) && now.len() == 3);
        assert_eq!((b[0].status().as_str(), b[0].available()), ("removed", false));
        assert!(gateway.host(0).available() && now[0].available(), "others are there as before");
        // It comes back as busy as it is.
        gateway.reload(config(&[("b", &[(0, 1)])]));
        let back = gateway.copies("b");
        assert!(Arc::ptr_eq(&b[0], &back[0]) && back[0].available());
        assert_eq!(back[0].in_flight(), 1);
        b[0].counter().decrement();
    }

    #[test]
    fn a_copy_with_a_port_has_a_server_of_its_own() {
        let mut config = config(&[("a", &[(0, 0), (0, 1)])]);
        for copy in &mut config.endpoints[0].components[0].copies {
            copy.url = copy.host.at_port_above(copy.slot);
        }
        let gateway = Gateway::new(config);
        let a = gateway.copies("a");
        assert_eq!((&*a[1].url, &*a[1].authority), ("http://10.0.0.1:8001#a.1", "10.0.0.1:8001"));
        assert_eq!(a[0].host, a[1].host);
        assert_eq!(gateway.current.load().servers().count(), 4);
        down(&a[1]);
        assert!(gateway.host(0).available() && a[0].available() && !a[1].available());
    }

    /// A host that moves to another variant is another instance: its copies go with it.
    #[test]
    fn copies_without_their_host_are_left_out() {
        let gateway = Gateway::new(config(&[("a", &[(0, 0), (1, 0)])]));
        let mut fewer = config(&[("a", &[(0, 0), (1, 0)])]);
        fewer.endpoints[0].variants[0].instances.truncate(1);
        gateway.reload(fewer);
        assert_eq!(gateway.copies("a").len(), 1);
    }
}
