//! Endpoints and their weighted variants.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use super::{Instance, Rule, Serves, health::Peers, prefix_shares::PrefixShares};
use crate::{config::Strategy, engine::Kinds, metrics::EndpointMetrics};

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
    /// Where instances take what InvokeEndpoint sends.
    pub invocations_path: String,
    /// Where its instances are asked for their health, if not where all are.
    pub health_path: Option<String>,
    /// Its instances, in the order of the configuration.
    pub instances: Vec<Arc<Instance>>,
    /// How long its answers have been lately, by API.
    pub answers: Arc<Kinds>,
    /// How its requests are shared by their prefixes.
    pub prefixes: Arc<PrefixShares>,
    /// How its requests end, while it [is about to replace](crate::config::VariantConfig::incoming)
    /// another one.
    pub trial: Option<Arc<Trial>>,
    /// Whether it is an adapter of another component.
    pub is_adapter: bool,
    /// Whether several of its instances are on one host.
    pub shares_hosts: bool,
    /// Which of them are draining by this variant's configuration.
    pub(super) drains: Vec<bool>,
    /// Who they are to each other.
    pub(super) peers: Arc<Peers>,
}

/// How the requests of a variant that is being rolled out end.
#[derive(Debug, Default)]
pub struct Trial {
    requests: AtomicU64,
    failed: AtomicU64,
}

impl Trial {
    /// A request has ended, by its client's will alone or as the instances had it.
    pub fn note(&self, failed: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(failed), Relaxed);
    }

    /// How many have ended, and how many of them failed.
    pub fn counts(&self) -> (u64, u64) {
        // In this order: never more failures than requests.
        let failed = self.failed.load(Relaxed);
        (self.requests.load(Relaxed).max(failed), failed)
    }
}

impl Variant {
    /// Its instances, and whether each is draining by this variant's configuration. An instance's
    /// own state may say otherwise: it follows the newest configuration, also for requests that
    /// began under an older one.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<Instance>, bool)> {
        self.instances.iter().zip(self.drains.iter().copied())
    }

    /// Whether any instance can serve.
    pub fn available(&self) -> bool {
        self.available_for(Serves::ANY)
    }

    /// Whether any instance of those that `serves` admits can serve.
    pub fn available_for(&self, serves: Serves<'_>) -> bool {
        self.instances.iter().any(|i| i.available() && i.admitted(serves))
    }

    fn admits(&self, serves: Serves<'_>) -> bool {
        self.instances.iter().any(|instance| instance.admitted(serves))
    }
}

/// A named service.
#[derive(Debug)]
pub struct Endpoint {
    /// Name, unique in the fleet.
    pub name: String,
    /// What is counted about it.
    pub metrics: Arc<EndpointMetrics>,
    /// Its variants that answer, at least one.
    pub variants: Vec<Arc<Variant>>,
    /// Its variants that get copies.
    pub shadows: Vec<Arc<Variant>>,
    /// Its inference components by name, each as a variant whose instances are its copies: it has the name
    /// and the routing of the variant that hosts it.
    pub components: hashbrown::HashMap<String, Arc<Variant>>,
    /// Whether each request has to name one of them.
    pub needs_component: bool,
    /// Whether its instances list different models, or not all of them any.
    pub(super) many_models: AtomicBool,
}

/// Why no variant serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVariant {
    /// The client asked for one that the endpoint does not have.
    #[error("the endpoint has no variant of that name")]
    Unknown,
    /// The client asked for none, and none has a share of the requests.
    #[error(
        "the endpoint has no variant with a weight above zero, so it serves those alone that name one"
    )]
    NoShare,
}

impl Endpoint {
    /// All its instances that answer, with their variants.
    pub fn instances(&self) -> impl Iterator<Item = (&Variant, &Arc<Instance>)> {
        self.variants.iter().flat_map(|variant| {
            variant.instances.iter().map(move |instance| (&**variant, instance))
        })
    }

    /// As [`instances`](Self::instances), and the copies of its inference components.
    pub fn all_instances(&self) -> impl Iterator<Item = (&Variant, &Arc<Instance>)> {
        let components = self.components.values().flat_map(|component| {
            component.instances.iter().map(move |instance| (&**component, instance))
        });
        self.instances().chain(components)
    }

    /// The copies of its inference components.
    pub(super) fn copies(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.components.values().flat_map(|component| &component.instances)
    }

    /// All its variants: those that answer, then its shadows.
    pub fn all_variants(&self) -> impl Iterator<Item = &Arc<Variant>> {
        self.variants.iter().chain(&self.shadows)
    }

    /// How many of its requests `shadow` gets a copy of: a share, 0 to 1.
    pub fn copied_to(&self, shadow: &Variant) -> f64 {
        let total: f64 = self.variants.iter().map(|variant| variant.weight).sum();
        if shadow.weight >= total { 1.0 } else { shadow.weight / total }
    }

    /// The variants of this name that answer: one, or two of which one is about to replace the other.
    fn named(&self, name: &str) -> impl Iterator<Item = &Arc<Variant>> {
        self.variants.iter().filter(move |variant| variant.name == name)
    }

    /// The variant of this name, and the one that is about to replace it, if that is asked for.
    pub(super) fn variant(&self, name: &str, incoming: bool) -> Option<&Arc<Variant>> {
        let mut named = self.all_variants().filter(|variant| variant.name == name);
        named.find(|variant| variant.trial.is_some() == incoming)
    }

    /// Whether the model that a request asks for may make a difference to where in this endpoint it
    /// goes. Never in a fleet whose instances are alike.
    pub fn has_many_models(&self) -> bool {
        self.many_models.load(Relaxed)
    }

    /// The variant that serves a request for `model`, as [`Endpoint::pick_variant`] does, among those
    /// that have instances for it, and which instances these are. `None` when all instances list their
    /// models, and none this one.
    ///
    /// `chosen` was picked before the model was known, and stays if it does.
    ///
    /// # Errors
    /// When the client named a variant that does not exist.
    pub fn pick_variant_for(
        &self,
        model: &[u8],
        name: Option<&[u8]>,
        chosen: Option<&Variant>,
        rng: &mut fastrand::Rng,
    ) -> Result<Option<(&Arc<Variant>, Rule)>, NoVariant> {
        let named = name.map(|_| self.pick_variant(name, rng)).transpose()?;
        let variants = named.map_or(&*self.variants, std::slice::from_ref);
        let instances = variants.iter().flat_map(|variant| &variant.instances);
        let staying = || instances.clone().filter(|instance| !instance.is_draining());
        let rule = match Rule::of(model, staying().map(|instance| instance.models())) {
            None => return Ok(None),
            // One that is being asked is not taken for an equal yet.
            Some(Rule::NotWithout) if staying().any(|i| i.models_pending()) => Rule::Listing,
            Some(rule) => rule,
        };
        let serves = Serves { model, rule };
        let candidates = || variants.iter().filter(|v| named.is_some() || v.weight > 0.0);
        let able = || candidates().filter(|variant| variant.available_for(serves));
        let picked = able()
            .find(|variant| chosen.is_some_and(|chosen| std::ptr::eq(&***variant, chosen)))
            .or_else(|| pick(able(), rng))
            .or_else(|| pick(candidates().filter(|variant| variant.admits(serves)), rng));
        Ok(picked.map(|variant| (variant, rule)))
    }

    /// The variant that serves a request: the one that the client named
    /// (`X-Amzn-SageMaker-Target-Variant`), or one at random by weight. Where one replaces another of its
    /// name, the name stands for both.
    ///
    /// A variant none of whose instances can serve is passed over while another one's can: its
    /// share is not worth an error. A named one is never replaced. One of weight 0 replaces nobody.
    ///
    /// # Errors
    /// When the client named one that does not exist, or none has a weight above zero.
    pub fn pick_variant(
        &self,
        name: Option<&[u8]>,
        rng: &mut fastrand::Rng,
    ) -> Result<&Arc<Variant>, NoVariant> {
        if let Some(name) = name {
            let name = std::str::from_utf8(name).map_err(|_| NoVariant::Unknown)?;
            return pick(self.named(name), rng).ok_or(NoVariant::Unknown);
        }
        let mut sharing = self.variants.iter().filter(|variant| variant.weight > 0.0);
        if let (Some(only), None) = (sharing.next(), sharing.next()) {
            return Ok(only);
        }
        let sharing = || self.variants.iter().filter(|variant| variant.weight > 0.0);
        pick(sharing().filter(|variant| variant.available()), rng)
            .or_else(|| pick(sharing(), rng))
            .ok_or(NoVariant::NoShare)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{
        Fleet,
        testing::{config, down, fleet, list},
    };

    /// An endpoint with the variants `a`, `b`, `c` of these weights, one instance each.
    fn endpoint(weights: [f64; 3]) -> Fleet {
        let mut config = config(Strategy::Random, 1, &[1.0]);
        let template = config.endpoints[0].variants[0].clone();
        config.endpoints[0].variants = weights
            .into_iter()
            .zip(["a", "b", "c"])
            .map(|(weight, name)| {
                let mut variant = template.clone();
                (variant.weight, variant.name) = (weight, name.into());
                variant
            })
            .collect();
        fleet(config)
    }

    fn shares(endpoint: &Endpoint) -> [usize; 3] {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let variant = endpoint.pick_variant(None, &mut rng).expect("there are three");
            counts[usize::from(variant.name.as_bytes()[0] - b'a')] += 1;
        }
        counts
    }

    #[test]
    fn variants_get_their_weight_s_share() {
        let fleet = endpoint([7.0, 2.0, 1.0]);
        let [a, b, c] = shares(&fleet.endpoints()[0]);
        assert!((6800..7200).contains(&a), "{a}");
        assert!((1850..2150).contains(&b), "{b}");
        assert!((850..1150).contains(&c), "{c}");
    }

    proptest::proptest! {
        /// Uniform in the long run, whatever the weights: no share strays from its own by more than chance
        /// may make it, six deviations in ten thousand draws.
        #[test]
        fn shares_follow_any_weights(weights in proptest::array::uniform3(0u8..20), seed: u64) {
            let weights = weights.map(f64::from);
            let fleet = endpoint(weights);
            let endpoint = &fleet.endpoints()[0];
            let total: f64 = weights.iter().sum();
            let mut rng = fastrand::Rng::with_seed(seed);
            if total == 0.0 {
                let none = endpoint.pick_variant(None, &mut rng).map(|v| v.name.clone());
                proptest::prop_assert_eq!(none, Err(NoVariant::NoShare));
                return Ok(());
            }
            let mut counts = [0.0; 3];
            for _ in 0..10_000 {
                let variant = endpoint.pick_variant(None, &mut rng).expect("one has a share");
                counts[usize::from(variant.name.as_bytes()[0] - b'a')] += 1.0;
            }
            for (weight, count) in weights.into_iter().zip(counts) {
                let share = weight / total;
                let deviation = (10_000.0 * share * (1.0 - share)).sqrt();
                proptest::prop_assert!((count - 10_000.0 * share).abs() <= 6.0 * deviation);
            }
        }
    }

    #[test]
    fn a_variant_of_weight_zero_serves_who_names_it_and_nobody_else() {
        let fleet = endpoint([0.0, 1.0, 0.0]);
        let endpoint = &fleet.endpoints()[0];
        assert_eq!(shares(endpoint), [0, 10_000, 0]);
        let mut rng = fastrand::Rng::with_seed(5);
        let named = endpoint.pick_variant(Some(b"c"), &mut rng);
        assert_eq!(named.map(|variant| &*variant.name), Ok("c"));
        // Nor does it take the place of one that cannot serve.
        down(&endpoint.variants[1].instances[0]);
        assert_eq!(shares(endpoint), [0, 10_000, 0]);
        let mut of_model = |name| {
            let picked =
                endpoint.pick_variant_for(b"m", name, None, &mut rng).expect("known names");
            picked.map(|(variant, _)| variant.name.clone())
        };
        assert_eq!(of_model(None).as_deref(), Some("b"));
        assert_eq!(of_model(Some(b"a")).as_deref(), Some("a"));
    }

    #[test]
    fn a_named_variant_is_that_one_or_an_error() {
        let fleet = endpoint([1e6, 1.0, 1e-6]);
        let endpoint = &fleet.endpoints()[0];
        let mut rng = fastrand::Rng::with_seed(5);
        let mut pick = |name: &[u8]| endpoint.pick_variant(Some(name), &mut rng);
        assert_eq!(pick(b"c").expect("there is one").name, "c");
        for name in [&b"d"[..], b"C", b"", b"c ", b"\xff"] {
            assert_eq!(pick(name).expect_err("there is none"), NoVariant::Unknown);
        }
        down(&endpoint.variants[2].instances[0]);
        assert_eq!(pick(b"c").expect("dead, but asked for").name, "c");
    }

    #[test]
    fn a_variant_and_the_one_that_replaces_it_go_by_one_name_and_may_share_hosts() {
        let mut config = config(Strategy::Random, 1, &[1.0, 1.0]);
        let mut incoming = config.endpoints[0].variants[0].clone();
        (incoming.incoming, incoming.weight) = (true, 0.25);
        incoming.instances.remove(0);
        let other = crate::config::InstanceConfig {
            url: "http://10.0.0.9:8000".parse().expect("valid"),
            ..incoming.instances[0].clone()
        };
        incoming.instances.push(other);
        config.endpoints[0].variants[0].weight = 0.75;
        config.endpoints[0].variants.push(incoming);
        let fleet = fleet(config);
        let endpoint = &fleet.endpoints()[0];
        let [now, next] = &endpoint.variants[..] else { panic!("there are two") };
        assert!(Arc::ptr_eq(&now.instances[1], &next.instances[0]), "counted once");
        let mut rng = fastrand::Rng::with_seed(5);
        for name in [None, Some(&b"v"[..])] {
            let chosen = (0..4_000).filter(|_| {
                let picked = endpoint.pick_variant(name, &mut rng).expect("there are two");
                picked.trial.is_some()
            });
            let chosen = chosen.count();
            assert!((900..1100).contains(&chosen), "{chosen}");
        }
    }

    #[test]
    fn a_model_goes_to_the_variants_that_have_it_by_their_weights() {
        let fleet = endpoint([2.0, 1.0, 1.0]);
        let endpoint = &fleet.endpoints()[0];
        let [a, b, c] = [0, 1, 2].map(|n| &endpoint.variants[n].instances[0]);
        let asked = |instances: [&Arc<Instance>; 2]| {
            for instance in instances {
                instance.set_models(1, Some(None));
            }
        };
        let shares = |model: &str, name: Option<&[u8]>| {
            let mut rng = fastrand::Rng::with_seed(5);
            let mut counts = [0; 3];
            for _ in 0..10_000 {
                // As the gateway does: a variant is chosen before the model is known.
                let chosen = endpoint.pick_variant(name, &mut rng).expect("there are three");
                let picked =
                    endpoint.pick_variant_for(model.as_bytes(), name, Some(chosen), &mut rng);
                let (variant, _) = picked.expect("there is one of that name")?;
                counts[usize::from(variant.name.as_bytes()[0] - b'a')] += 1;
            }
            Some(counts)
        };
        let near = |counts: Option<[i32; 3]>, expected: [i32; 3]| {
            let counts = counts.expect("it is served");
            assert!(
                counts.iter().zip(expected).all(|(n, expected)| (n - expected).abs() < 200),
                "{counts:?}"
            );
        };
        near(shares("x", None), [5000, 2500, 2500]);
        list(a, "x");
        near(shares("x", None), [10_000, 0, 0]);
        asked([b, c]);
        // What the others serve is not known, and may be the same.
        near(shares("x", None), [5000, 2500, 2500]);
        near(shares("y", None), [0, 5000, 5000]);
        list(b, "x y");
        near(shares("x", None), [6667, 3333, 0]);
        near(shares("y", None), [0, 10_000, 0]);
        near(shares("z", None), [0, 0, 10_000]);
        list(c, "z");
        assert_eq!(shares("w", None), None);
        // A named one is never replaced.
        assert_eq!(shares("z", Some(b"a")), None);
        near(shares("x", Some(b"a")), [10_000, 0, 0]);
        down(a);
        near(shares("x", None), [0, 10_000, 0]);
        down(b);
        near(shares("x", None), [6667, 3333, 0]);
    }

    #[test]
    fn a_variant_that_cannot_serve_gives_its_share_to_the_others() {
        let fleet = endpoint([1.0, 1.0, 2.0]);
        let endpoint = &fleet.endpoints()[0];
        down(&endpoint.variants[2].instances[0]);
        let [a, b, c] = shares(endpoint);
        assert!(c == 0 && (4800..5200).contains(&a) && a + b == 10_000);
        endpoint.variants.iter().take(2).for_each(|v| down(&v.instances[0]));
        let [a, b, c] = shares(endpoint);
        assert!(c > a && c > b, "with none well, all are tried: {a} {b} {c}");
    }
}
