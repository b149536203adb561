//! What the gateway counts, for Prometheus.
//!
//! One [`Metrics`] exists per process. Whoever handles requests holds *handles*
//! ([`InstanceMetrics`], [`EndpointMetrics`], [`EngineMetrics`]) that were resolved when the fleet
//! was built, so that counting is an atomic addition and never a look-up by label.
//!
//! No label value comes from a client: labels are names of the configuration, addresses of
//! instances, and slugs that are written in this program. The help texts here are the reference of
//! every metric; `docs/operations.md` says which ones to watch.

mod config;
mod endpoint;
mod engine;
mod families;
mod instance;
mod labelled;
mod prefix_cache;
mod process;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicU64},
};

use prometheus::{Encoder, IntCounter, IntGauge, Registry, TextEncoder};

pub use config::{ConfigMetrics, LastReload};
pub use endpoint::EndpointMetrics;
pub use engine::{Direction, EngineMetrics, Unavailable};
pub use instance::{InstanceMetrics, Outcome};
pub use prefix_cache::{PAGE_BYTES, PrefixCache};

use families::Families;
use labelled::{Mirror, Mirrors};

/// Instances that are gone and whose series may still be there.
const MAX_GONE: usize = 1_000;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Names of the reasons for which an instance is chosen, as in the `reason` label.
pub const REASONS: [&str; 12] = [
    "home",
    "same_host",
    "overflow",
    "saturated",
    "failover",
    "last_resort",
    "least_outstanding",
    "random",
    "single",
    "undecodable",
    "stored",
    "session",
];

/// Something to run just before the metrics are rendered, to set gauges from live state.
type Hook = Box<dyn Fn(&Metrics) + Send + Sync>;

/// Every metric of the process.
pub struct Metrics {
    /// For the handles that remove their series when they go.
    this: Weak<Metrics>,
    registry: Registry,
    families: Families,
    engines: Mutex<HashMap<&'static str, Arc<EngineMetrics>>>,
    endpoints: Mutex<HashMap<String, Arc<EndpointMetrics>>>,
    instances: Mutex<HashMap<InstanceName, Weak<InstanceMetrics>>>,
    /// Instances that nobody holds any more and whose series are still there: to find these takes a look at all
    /// series, which is not for the thread that happened to hold an instance last, and not once for each.
    gone: Mutex<HashSet<InstanceName>>,
    guard: Mirrors,
    xdp: Mirror,
    hooks: Mutex<Vec<Hook>>,
    /// The gateway's client connections.
    pub clients: ClientMetrics,
    /// The configuration and its reloads.
    pub config: ConfigMetrics,
}

/// What identifies an instance's series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InstanceName {
    endpoint: String,
    variant: String,
    url: String,
}

/// Handles about client connections.
#[derive(Debug)]
pub struct ClientMetrics {
    /// Connections accepted.
    pub accepted: IntCounter,
    /// Connections open now.
    pub open: IntGauge,
    /// Exchanges that were cut at the end of the drain time. Nobody can ask for it any more by
    /// then: it is for the log.
    pub cut: AtomicU64,
}

impl Metrics {
    /// The registry with every family in it.
    pub fn new() -> Arc<Metrics> {
        let registry = Registry::new();
        let families = Families::new(&registry);
        process::register(&registry);
        Arc::new_cyclic(|this| Metrics {
            this: this.clone(),
            clients: ClientMetrics {
                accepted: families.client_connections.clone(),
                open: families.client_connections_open.clone(),
                cut: AtomicU64::new(0),
            },
            config: ConfigMetrics::new(&families),
            guard: Mirrors::new(families.guard_packets.clone()),
            xdp: Mirror::new(families.xdp_packets.clone()),
            registry,
            families,
            engines: Mutex::default(),
            endpoints: Mutex::default(),
            instances: Mutex::default(),
            gone: Mutex::default(),
            hooks: Mutex::default(),
        })
    }

    /// The handles of an endpoint of the configuration. Ask when the fleet is built.
    pub fn endpoint(&self, name: &str) -> Arc<EndpointMetrics> {
        let mut endpoints = lock(&self.endpoints);
        if let Some(known) = endpoints.get(name) {
            return Arc::clone(known);
        }
        let new = Arc::new(EndpointMetrics::new(&self.families, name));
        endpoints.insert(name.to_owned(), Arc::clone(&new));
        new
    }

    /// The handles of an instance. Ask when the fleet is built: this takes a lock and allocates.
    ///
    /// The same three names give the same handles for as long as anybody holds them. When the last
    /// holder is gone (no fleet, ticket or pool knows the instance), its series are removed.
    pub fn instance(&self, endpoint: &str, variant: &str, url: &str) -> Arc<InstanceMetrics> {
        let name = InstanceName {
            endpoint: endpoint.to_owned(),
            variant: variant.to_owned(),
            url: url.to_owned(),
        };
        let mut instances = lock(&self.instances);
        if let Some(known) = instances.get(&name).and_then(Weak::upgrade) {
            return known;
        }
        let mut gone = lock(&self.gone);
        if gone.contains(&name) {
            // What it had counted before is no more.
            self.families.remove_instances(&mut gone);
        }
        drop(gone);
        let new = Arc::new(InstanceMetrics::new(self, name.clone()));
        instances.insert(name, Arc::downgrade(&new));
        new
    }

    /// Takes note of an instance that nobody holds any more. Its series go before the next page is rendered.
    fn forget_instance(&self, name: &InstanceName) {
        let mut instances = lock(&self.instances);
        // Somebody may have asked for the same names again between the last drop and this lock:
        // then the series are in use.
        if instances.get(name).is_some_and(|known| known.strong_count() == 0) {
            instances.remove(name);
            let mut gone = lock(&self.gone);
            gone.insert(name.clone());
            // Where nobody looks at the page, they must not pile up.
            if gone.len() >= MAX_GONE {
                self.families.remove_instances(&mut gone);
            }
        }
    }

    /// The handles of an engine: `userspace`, `sockmap`.
    pub fn engine(&self, name: &'static str) -> Arc<EngineMetrics> {
        let mut engines = lock(&self.engines);
        Arc::clone(
            engines
                .entry(name)
                .or_insert_with(|| Arc::new(EngineMetrics::new(&self.families, name))),
        )
    }

    /// Name and reason (see [`EngineMetrics::reason`]) of each engine, by name.
    pub fn engines(&self) -> Vec<(&'static str, &'static str)> {
        let engines = lock(&self.engines);
        let mut all: Vec<_> =
            engines.iter().map(|(name, engine)| (*name, engine.reason())).collect();
        all.sort_unstable();
        all
    }

    /// Counts an error reply that the gateway made before it knew the endpoint.
    ///
    /// `reason` is the slug that the reply carries in `x-atalho-error`.
    pub fn error(&self, status: u16, reason: &'static str) {
        families::count_error(&self.families.errors, "", status, reason);
    }

    /// Sets the number of packets that a rule of the guard has dropped or passed since it was
    /// loaded, as the kernel program counts them.
    pub fn guard_packets(&self, rule: &'static str, total: u64) {
        self.guard.set(&[rule], total);
    }

    /// Sets the number of packets that were forwarded before they became socket buffers, as the kernel
    /// program counts them.
    pub fn xdp_packets(&self, total: u64) {
        self.xdp.set(total);
    }

    /// Says on how many interfaces that is done, and on how many it should have been.
    pub fn xdp_interfaces(&self, native: usize, fallback: usize) {
        for (state, count) in [("native", native), ("fallback", fallback)] {
            self.families.xdp_interfaces.with_label_values(&[state]).set(count as i64);
        }
    }

    /// Sets what was learned, by endpoint, variant and API, of how long answers are. Nothing is known of others.
    pub fn learned_reads<'a>(&self, known: impl Iterator<Item = ([&'a str; 3], u64)>) {
        self.families.learned_reads.reset();
        for (labels, reads) in known {
            self.families.learned_reads.with_label_values(&labels).set(reads as i64);
        }
    }

    /// Sets the share of its requests that the most frequent prefix of each variant had, by endpoint
    /// and variant.
    pub fn top_prefix_shares<'a>(&self, known: impl Iterator<Item = ([&'a str; 2], f64)>) {
        self.families.top_prefix_share.reset();
        for (labels, share) in known {
            self.families.top_prefix_share.with_label_values(&labels).set(share);
        }
    }

    /// Runs `hook` before every rendering: the place to set gauges from live state, such as the
    /// in-flight counters.
    pub fn on_render(&self, hook: impl Fn(&Metrics) + Send + Sync + 'static) {
        lock(&self.hooks).push(Box::new(hook));
    }

    /// All metrics in the Prometheus text format; see [`CONTENT_TYPE`].
    pub fn render(&self) -> Vec<u8> {
        self.families.remove_instances(&mut lock(&self.gone));
        for hook in lock(&self.hooks).iter() {
            hook(self);
        }
        let mut page = Vec::with_capacity(64 << 10);
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut page) {
            tracing::warn!(%error, "the metrics page is incomplete");
        }
        page
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl InstanceName {
    /// With these labels.
    fn of([endpoint, variant, url]: [&str; 3]) -> Self {
        Self { endpoint: endpoint.into(), variant: variant.into(), url: url.into() }
    }

    /// In the order of the families' label names.
    fn labels(&self) -> [&str; 3] {
        [&self.endpoint, &self.variant, &self.url]
    }
}

/// The maps hold nothing that a panic could leave half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
