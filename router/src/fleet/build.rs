//! From a configuration to a fleet, keeping the instances that stay.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;

use super::{
    Counters, Endpoint, Instance, ListingRounds, Listings, Routing, Variant,
    copies::Copies,
    health::Peers,
    models::make_a_difference,
    place::{BuildError, Place, place_name},
};
use crate::{
    config::{Config, InstanceConfig, VariantConfig},
    metrics::Metrics,
};

/// Everything that can serve, with the configuration that it came from. Immutable; a reload makes a
/// new one, and [`Fleet::replace`] puts it in the old one's place.
#[derive(Debug)]
pub struct Fleet {
    endpoints: Vec<Endpoint>,
    /// Where in `endpoints` each name is: there may be thousands.
    by_name: hashbrown::HashMap<String, usize>,
    config: Arc<Config>,
    places: HashMap<Place, Arc<Instance>>,
    /// Removed instances whose last requests have not ended. One that is configured again before
    /// that is still the same, and as busy as it is.
    leaving: HashMap<Place, Weak<Instance>>,
    /// Whether its endpoints differ in the models that they serve.
    many_models: AtomicBool,
    listings: Listings,
    rounds: Arc<ListingRounds>,
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
        let mut instance =
            |endpoint: &str, variant: &str, wanted: &InstanceConfig, peers: &Arc<Peers>| {
                let url = &wanted.url;
                let place: Place = (endpoint.into(), variant.into(), url.as_str().into());
                // A variant and the one that replaces it may share hosts.
                let shared = places.get(&place).cloned();
                let known = || previous.and_then(|previous| previous.known(&place));
                let instance = match shared.or_else(known) {
                    Some(instance) => instance,
                    None => {
                        let counter = counters.take_for(&place_name(&place)).map_err(|source| {
                            BuildError::NoCounter {
                                url: url.as_str().into(),
                                endpoint: endpoint.into(),
                                variant: variant.into(),
                                source,
                            }
                        })?;
                        let metrics = metrics.instance(endpoint, variant, url.as_str());
                        let (weight, drain, peers) =
                            (wanted.weight, wanted.drain, Arc::clone(peers));
                        Instance::new(url, weight, drain, counter, &health, peers, metrics)
                    }
                };
                places.insert(place, Arc::clone(&instance));
                Ok(instance)
            };
        let mut variant = |endpoint: &str, wanted: &VariantConfig| {
            let known = previous.and_then(|previous| {
                previous.endpoint(endpoint)?.variant(&wanted.name, wanted.incoming)
            });
            // Those that stay know each other already.
            let place =
                |i: &InstanceConfig| (endpoint.into(), wanted.name.clone(), i.url.as_str().into());
            let staying = wanted.instances.iter().find_map(|i| previous?.known(&place(i)));
            let peers = staying.map(|instance| Arc::clone(instance.peers())).unwrap_or_default();
            let instances =
                wanted.instances.iter().map(|i| instance(endpoint, &wanted.name, i, &peers));
            Ok(Arc::new(Variant {
                name: wanted.name.clone(),
                weight: wanted.weight,
                routing: Routing {
                    strategy: wanted.strategy,
                    prefix_length: wanted.prefix_length,
                    concurrency_threshold: wanted.concurrency_threshold,
                },
                max_in_flight: wanted.max_in_flight,
                invocations_path: wanted.invocations_path.clone(),
                health_path: wanted.health_path.clone(),
                instances: instances.collect::<Result<_, BuildError>>()?,
                answers: known.map(|variant| Arc::clone(&variant.answers)).unwrap_or_default(),
                prefixes: known.map(|variant| Arc::clone(&variant.prefixes)).unwrap_or_default(),
                trial: wanted
                    .incoming
                    .then(|| known.and_then(|variant| variant.trial.clone()).unwrap_or_default()),
                is_adapter: false,
                shares_hosts: false,
                drains: wanted.instances.iter().map(|i| i.drain).collect(),
                peers: Arc::clone(&peers),
            }))
        };
        let endpoints = config.endpoints.iter().map(|wanted| {
            let mut of_kind = |shadow| {
                let kind = wanted.variants.iter().filter(|variant| variant.shadow == shadow);
                kind.map(|v| variant(&wanted.name, v)).collect::<Result<_, BuildError>>()
            };
            Ok(Endpoint {
                name: wanted.name.clone(),
                metrics: metrics.endpoint(&wanted.name),
                variants: of_kind(false)?,
                shadows: of_kind(true)?,
                components: hashbrown::HashMap::new(),
                needs_component: wanted.needs_component,
                many_models: AtomicBool::new(false),
            })
        });
        let mut endpoints = endpoints.collect::<Result<Vec<_>, BuildError>>()?;
        let component = |endpoint: &str, name: &str| {
            previous?.endpoint(endpoint)?.components.get(name).map(Arc::clone)
        };
        let mut copies = Copies {
            component: &component,
            known: &|place| previous?.known(place),
            counters,
            metrics,
            health: &health,
            places: &mut places,
        };
        for (endpoint, wanted) in endpoints.iter_mut().zip(&config.endpoints) {
            copies.add(endpoint, &wanted.components)?;
        }
        let named = |(at, endpoint): (usize, &Endpoint)| (endpoint.name.clone(), at);
        let by_name = endpoints.iter().enumerate().map(named).collect();
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
        let fleet = Self {
            endpoints,
            by_name,
            config: Arc::clone(config),
            places,
            leaving,
            many_models: AtomicBool::new(false),
            listings: Listings::default(),
            rounds: previous.map(|previous| Arc::clone(&previous.rounds)).unwrap_or_default(),
        };
        fleet.compare_models();
        if previous.is_none() {
            fleet.introduce();
        }
        Ok(fleet)
    }

    /// Where the counters of its instances are, removed ones included, for another process that serves the same
    /// ones.
    pub fn slots(&self) -> Vec<(String, u32)> {
        let staying = self.places.iter().map(|(place, it)| (place, Arc::clone(it)));
        let leaving = self.leaving.iter().filter_map(|(place, it)| Some((place, it.upgrade()?)));
        staying.chain(leaving).map(|(place, it)| (place_name(place), it.counter().slot())).collect()
    }

    fn known(&self, place: &Place) -> Option<Arc<Instance>> {
        let staying = self.places.get(place).cloned();
        staying.or_else(|| self.leaving.get(place).and_then(Weak::upgrade))
    }

    /// Tells the instances of each variant of each other, and where they are asked for their health.
    fn introduce(&self) {
        for (_, variant, instance) in self.instances() {
            variant.peers.set(variant.instances.iter().map(Arc::downgrade));
            if !instance.shares_server() {
                instance.set_health_path(variant.health_path.as_deref());
            }
        }
    }

    /// Puts this fleet in the place of the current one: from here on new requests see it. Weights,
    /// draining and health settings of the instances that stay are those of this fleet, and removed
    /// instances get no new requests, also from who still looks at the old fleet.
    pub fn replace(self: Arc<Self>, current: &ArcSwap<Self>) {
        current.store(Arc::clone(&self));
        self.introduce();
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
        for copy in self.endpoints.iter().flat_map(Endpoint::copies) {
            copy.configure(copy.weight(), false, &health);
        }
        for instance in self.leaving.values().filter_map(Weak::upgrade) {
            instance.remove(&health);
        }
        // Which instances are draining may have changed.
        self.compare_models();
    }

    /// Finds out anew whether models make a difference, after an instance has changed its list.
    ///
    /// They may while instances are still to be asked, and never where these are not asked at all.
    pub(super) fn compare_models(&self) {
        self.listings.clear();
        let never = self.config.models.interval.is_zero();
        let matter = |endpoints: &[Endpoint]| {
            let instances = endpoints.iter().flat_map(Endpoint::instances).map(|(_, i)| i);
            let staying: Vec<_> = instances.filter(|i| !i.is_draining()).collect();
            !never
                && (staying.iter().any(|instance| instance.models_pending())
                    || make_a_difference(staying.iter().map(|instance| instance.models())))
        };
        for endpoint in &self.endpoints {
            endpoint.many_models.store(matter(std::slice::from_ref(endpoint)), Relaxed);
        }
        self.many_models.store(matter(&self.endpoints), Relaxed);
    }

    /// The last [round](ListingRounds) in which every instance that can be was asked for its models.
    pub(super) fn complete_round(&self) -> u64 {
        let rounds = self.servers().filter(|i| i.status().reachable()).map(|i| i.listed_in());
        rounds.min().unwrap_or_else(|| self.rounds.current())
    }

    /// The rounds in which instances are asked for their models before their time.
    pub fn rounds(&self) -> &Arc<ListingRounds> {
        &self.rounds
    }

    /// Whether the model that a request asks for may make a difference to which endpoint it goes to.
    pub fn has_many_models(&self) -> bool {
        self.endpoints.len() > 1 && self.many_models.load(Relaxed)
    }

    /// Answers to `GET /v1/models` that are given again.
    pub fn listings(&self) -> &Listings {
        &self.listings
    }

    /// The configuration that this fleet was made of.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.by_name.get(name).map(|at| &self.endpoints[*at])
    }

    /// The endpoint of requests that name none: the first of the configuration.
    pub fn default_endpoint(&self) -> Option<&Endpoint> {
        self.endpoints.first()
    }

    /// All endpoints, in the order of the configuration.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// All instances that answer clients, with their endpoint and variant, in the order of the
    /// configuration.
    pub fn answering(&self) -> impl Iterator<Item = (&Endpoint, &Arc<Variant>, &Arc<Instance>)> {
        self.endpoints.iter().flat_map(|endpoint| members(endpoint, &endpoint.variants))
    }

    /// All instances with their endpoint and variant: of each endpoint those that answer, its shadows, and the
    /// copies of its inference components.
    pub fn instances(&self) -> impl Iterator<Item = (&Endpoint, &Arc<Variant>, &Arc<Instance>)> {
        self.endpoints.iter().flat_map(|endpoint| {
            let components = endpoint.components.values();
            members(endpoint, endpoint.all_variants().chain(components))
        })
    }

    /// As [`instances`](Self::instances), without those whose server another one of them stands for.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances().map(|(.., instance)| instance).filter(|it| !it.shares_server())
    }

    /// Removed instances whose last requests have not ended.
    pub fn leaving(&self) -> impl Iterator<Item = Arc<Instance>> {
        self.leaving.values().filter_map(Weak::upgrade)
    }
}

/// The instances of these variants of an endpoint.
fn members<'a>(
    endpoint: &'a Endpoint,
    variants: impl IntoIterator<Item = &'a Arc<Variant>>,
) -> impl Iterator<Item = (&'a Endpoint, &'a Arc<Variant>, &'a Arc<Instance>)> {
    variants.into_iter().flat_map(move |variant| {
        variant.instances.iter().map(move |instance| (endpoint, variant, instance))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Strategy,
        fleet::{FailureKind, testing},
        routing::{PrefixKey, Ticket, choose},
    };

    fn urls(hosts: &[u8]) -> Config {
        let mut config = testing::config(Strategy::PrefixAware, 10, &vec![1.0; hosts.len()]);
        for (instance, host) in config.endpoints[0].variants[0].instances.iter_mut().zip(hosts) {
            instance.url = format!("http://10.0.0.{host}:8000").parse().expect("valid");
        }
        config
    }

    struct Gateway {
        counters: Counters,
        metrics: Arc<Metrics>,
        current: ArcSwap<Fleet>,
    }

    impl Gateway {
        fn new(slots: u32, config: Config) -> Self {
            let (counters, metrics) = (Counters::heap(slots), Metrics::new());
            let fleet = Fleet::build(&Arc::new(config), None, &counters, &metrics);
            let current = ArcSwap::from_pointee(fleet.expect("enough counters"));
            Self { counters, metrics, current }
        }

        fn reload(&self, config: Config) -> Result<(), BuildError> {
            let old = self.current.load();
            let new = Fleet::build(&Arc::new(config), Some(&old), &self.counters, &self.metrics)?;
            Arc::new(new).replace(&self.current);
            Ok(())
        }

        fn instance(&self, host: u8) -> Option<Arc<Instance>> {
            let url = format!("http://10.0.0.{host}:8000");
            let fleet = self.current.load();
            fleet.instances().map(|(_, _, i)| i).find(|i| i.url == url).cloned()
        }

        fn ticket(&self, key: u64) -> Ticket {
            let variant = testing::only_variant(&self.current.load());
            let mut rng = fastrand::Rng::with_seed(key);
            choose(&variant, Some(PrefixKey(key)), &[], &mut rng).expect("instances").ticket
        }
    }

    #[test]
    fn an_unchanged_url_stays_the_same_instance_with_count_and_health() {
        let gateway = Gateway::new(8, urls(&[1, 2, 3]));
        let one = gateway.instance(1).expect("configured");
        let ticket = loop {
            let ticket = gateway.ticket(fastrand::u64(..));
            if ticket.instance().id == one.id {
                break ticket;
            }
        };
        (1..=5).for_each(|n| one.note_failure(FailureKind::Reset, testing::blame(n)));
        assert_eq!(one.status().as_str(), "ejected");

        let mut changed = urls(&[4, 1, 2]);
        changed.endpoints[0].variants[0].instances[1].weight = 2.5;
        gateway.reload(changed).expect("room");
        let again = gateway.instance(1).expect("still configured");
        assert!(Arc::ptr_eq(&one, &again));
        assert_eq!((again.in_flight(), again.weight()), (1, 2.5));
        assert_eq!(again.status().as_str(), "ejected", "a reload heals nobody");
        drop(ticket);
        assert_eq!(one.in_flight(), 0);
    }

    #[test]
    fn a_removed_instance_lives_until_its_last_request_and_is_the_same_when_it_comes_back() {
        let gateway = Gateway::new(8, urls(&[1, 2]));
        let held: Vec<_> = (0..20).map(|key| gateway.ticket(key)).collect();
        let (id, slot) = {
            let one = gateway.instance(1).expect("configured");
            (one.id, one.counter().slot())
        };
        let there = held.iter().filter(|ticket| ticket.instance().id == id).count() as u32;
        assert!(there > 0);
        gateway.reload(urls(&[2, 3])).expect("room");
        assert!(gateway.instance(1).is_none());
        let leaving: Vec<_> = gateway.current.load().leaving().collect();
        assert_eq!((leaving.len(), leaving[0].in_flight()), (1, there));
        assert_eq!((leaving[0].status().as_str(), leaving[0].available()), ("removed", false));
        drop(leaving);
        // A reload in between forgets nothing, and its slot is nobody else's.
        gateway.reload(urls(&[2, 3, 4])).expect("room");
        for host in [2, 3, 4] {
            assert_ne!(gateway.instance(host).expect("configured").counter().slot(), slot);
        }
        gateway.reload(urls(&[1, 2])).expect("room");
        let back = gateway.instance(1).expect("configured again");
        assert_eq!((back.id, back.in_flight(), back.status().as_str()), (id, there, "up"));
        drop(back);
        gateway.reload(urls(&[2])).expect("room");
        drop(held);
        gateway.reload(urls(&[1, 2])).expect("room");
        let new = gateway.instance(1).expect("configured again");
        assert_ne!(new.id, id, "an identity is never used again");
        assert_eq!(gateway.counters.total() + gateway.counters.faults(), 0);
    }

    #[test]
    fn the_old_fleet_gives_a_removed_or_draining_instance_no_more_requests() {
        let gateway = Gateway::new(8, urls(&[1, 2, 3]));
        let old = gateway.current.load_full();
        let mut next = urls(&[1, 2]);
        next.endpoints[0].variants[0].instances[0].drain = true;
        gateway.reload(next).expect("room");
        // A request that began before the reload chooses from the fleet it began with.
        let variant = testing::only_variant(&old);
        let mut rng = fastrand::Rng::with_seed(1);
        for key in 0..100 {
            let choice = choose(&variant, Some(PrefixKey(key)), &[], &mut rng).expect("one left");
            assert_eq!(choice.ticket.instance().url, "http://10.0.0.2:8000");
        }
    }

    #[test]
    fn no_room_for_a_counter_changes_nothing() {
        let gateway = Gateway::new(3, urls(&[1, 2]));
        let before: Vec<_> = [1, 2].map(|host| gateway.instance(host).expect("there").id).into();
        let mut large = urls(&[2, 3, 4]);
        large.endpoints[0].variants[0].instances[0].drain = true;
        let error = gateway.reload(large).expect_err("four slots are needed");
        assert!(error.to_string().contains("http://10.0.0.4:8000 of e/v"), "{error}");
        assert_eq!(gateway.counters.free(), 1, "what was taken on the way came back");
        let after: Vec<_> = [1, 2].map(|host| gateway.instance(host).expect("there").id).into();
        assert_eq!(before, after);
        assert!([1, 2].iter().all(|host| gateway.instance(*host).expect("there").available()));
        // The same fleet in two steps fits, once the removed one has gone.
        gateway.reload(urls(&[2, 3])).expect("room");
        gateway.reload(urls(&[2, 3, 4])).expect("room");
    }

    #[test]
    fn one_url_in_two_variants_is_two_instances_with_counts_of_their_own() {
        let mut config = urls(&[1, 2]);
        let mut second = config.endpoints[0].variants[0].clone();
        second.name = "w".into();
        config.endpoints[0].variants.push(second);
        let mut other = config.endpoints[0].clone();
        other.name = "f".into();
        config.endpoints.push(other);
        let gateway = Gateway::new(8, config.clone());
        let fleet = gateway.current.load_full();
        let mut ids: Vec<_> = fleet.instances().map(|(_, _, i)| i.id).collect();
        let seeds: std::collections::HashSet<_> =
            fleet.instances().map(|(_, _, i)| i.seed).collect();
        ids.dedup();
        assert_eq!((ids.len(), seeds.len()), (8, 2));
        gateway.reload(config).expect("room");
        let after: Vec<_> = gateway.current.load().instances().map(|(_, _, i)| i.id).collect();
        assert_eq!(ids, after);
    }

    #[test]
    fn reload_storms_with_requests_under_way_leave_every_counter_at_zero() {
        let gateway = Gateway::new(64, urls(&[1, 2, 3, 4]));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..6 {
                let (gateway, stop) = (&gateway, &stop);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut held: Vec<Ticket> = Vec::new();
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        if held.len() < 16 && rng.bool() {
                            let variant = testing::only_variant(&gateway.current.load_full());
                            let key = Some(PrefixKey(rng.u64(..8)));
                            // With nothing but draining instances, there is none.
                            held.extend(choose(&variant, key, &[], &mut rng).map(|c| c.ticket));
                        } else if !held.is_empty() {
                            let ticket = held.swap_remove(rng.usize(..held.len()));
                            if rng.bool() {
                                ticket.instance().counter().decrement();
                                ticket.released_by_kernel();
                            }
                        }
                    }
                });
            }
            let mut rng = fastrand::Rng::with_seed(99);
            for _ in 0..500 {
                let hosts: Vec<u8> = (1..=8).filter(|_| rng.bool()).collect();
                let mut config = urls(&hosts);
                for instance in &mut config.endpoints[0].variants[0].instances {
                    instance.drain = rng.u8(..4) == 0;
                    instance.weight = f64::from(rng.u8(1..4));
                }
                gateway.reload(config).expect("removed ones end soon enough");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!((gateway.counters.total(), gateway.counters.faults()), (0, 0));
        gateway.reload(urls(&[])).expect("room");
        assert_eq!(gateway.counters.free(), 64, "every slot came back");
        assert_eq!(gateway.current.load().leaving().count(), 0);
    }
}
