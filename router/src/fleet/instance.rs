//! One inference server, as the gateway sees it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    Blame, Counter, Diagnosis, FailureKind, Status,
    adapter::Adapter,
    diagnosis::{FailureNote, Notes},
    health::{Alarm, Change, Check, HasStatus, HealthState, Peers},
    models::{self, ModelList, Rule, Serves},
};
use crate::config::{Health, InstanceUrl};
use crate::metrics::InstanceMetrics;

/// Identifies an instance for the life of the process; never reused.
pub type InstanceId = u64;

/// One inference server of one variant.
///
/// Its identity, counter and health outlive reloads that keep its URL in the same variant. Tickets
/// hold it, so a removed instance lives until its last request has ended.
pub struct Instance {
    /// Its identity.
    pub id: InstanceId,
    /// `http://host:port`; of a copy of an inference component with `#component.slot` behind it.
    pub url: String,
    /// `host:port`, as in a Host field.
    pub authority: String,
    /// Seed of its place in rankings. It depends on that alone, so that every gateway host ranks
    /// alike.
    pub seed: u64,
    /// What is counted about it.
    pub metrics: Arc<InstanceMetrics>,
    /// Equal for copies on one host.
    pub host: u64,
    /// What goes in front of a request's path.
    pub path_prefix: Option<String>,
    /// Bits of an f64.
    weight: AtomicU64,
    counter: Counter,
    server: Arc<Server>,
    /// Whether the server is another instance's, which looks after it.
    shares: bool,
    /// Of one that shares: whether it is no longer configured.
    removed: AtomicBool,
    /// What its server has to load before it can serve.
    adapter: Option<Arc<Adapter>>,
}

/// The process that serves: one for several instances that are copies on one host.
struct Server {
    health: HealthState,
    /// For people who ask why.
    notes: Notes,
    /// The instances of its variant, itself included.
    peers: Arc<Peers>,
    addresses: ArcSwap<Vec<SocketAddr>>,
    models: ArcSwapOption<ModelList>,
    /// The last [round](super::ListingRounds) in which it was asked for them; 0 before the first.
    listed_in: AtomicU64,
    literal: bool,
    /// Where it is asked for its health, if not where all are.
    health_path: ArcSwapOption<String>,
    /// Lists of models that it has given.
    lists: AtomicU64,
    /// Whether these have had an adapter: not all servers list theirs.
    lists_adapters: AtomicBool,
    /// The adapters that it is to load.
    adapters: Mutex<Vec<Weak<Adapter>>>,
    /// Rises whenever the process may be another one than before, which has loaded nothing.
    epoch: AtomicU64,
}

impl Server {
    /// Taken for well until something speaks against it. A literal address is known at once, a host name has to
    /// be resolved first.
    fn new(url: &InstanceUrl, drain: bool, health: &Arc<Health>, peers: Arc<Peers>) -> Self {
        let literal = url.literal();
        Self {
            health: HealthState::new(literal.is_some(), drain, Arc::clone(health)),
            notes: Notes::default(),
            peers,
            addresses: ArcSwap::from_pointee(literal.into_iter().collect()),
            models: ArcSwapOption::empty(),
            listed_in: AtomicU64::new(0),
            literal: literal.is_some(),
            health_path: ArcSwapOption::empty(),
            lists: AtomicU64::new(0),
            lists_adapters: AtomicBool::new(false),
            adapters: Mutex::default(),
            epoch: AtomicU64::new(0),
        }
    }
}

impl Server {
    /// Takes note that it has listed its models. What it has listed before and lists no more it has lost.
    fn note_list(&self) {
        let lists = self.lists.fetch_add(1, AcqRel) + 1;
        let Some(models) = self.models.load_full() else { return };
        let adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = |adapter: &Adapter| models.ids().any(|id| id == adapter.name());
        for adapter in adapters.iter().filter_map(Weak::upgrade) {
            if listed(&adapter) {
                self.lists_adapters.store(true, Relaxed);
            } else if self.lists_adapters.load(Relaxed) {
                adapter.note_unlisted(lists);
            }
        }
    }
}

impl Instance {
    /// A new instance, taken for well until something speaks against it. A literal address is
    /// known at once, a host name has to be resolved first.
    pub(super) fn new(
        url: &InstanceUrl,
        weight: f64,
        drain: bool,
        counter: Counter,
        health: &Arc<Health>,
        peers: Arc<Peers>,
        metrics: Arc<InstanceMetrics>,
    ) -> Arc<Self> {
        let seed = seed(url.as_str());
        let (removed, path_prefix) = (AtomicBool::new(false), None);
        let instance = Self {
            id: next_id(),
            url: url.as_str().into(),
            authority: url.authority().into(),
            seed,
            host: seed,
            path_prefix,
            weight: AtomicU64::new(weight.to_bits()),
            counter,
            server: Arc::new(Server::new(url, drain, health, peers)),
            shares: false,
            removed,
            adapter: None,
            metrics,
        };
        Arc::new(instance)
    }

    /// A copy of a component on this host, called so. It is as well as the host is, unless it has a server of
    /// its own, and has its own place in rankings and its own requests in flight.
    pub(super) fn copy(
        self: &Arc<Self>,
        name: String,
        own: Option<(&InstanceUrl, &Arc<Health>, Arc<Peers>)>,
        path_prefix: Option<String>,
        adapter: Option<Arc<Adapter>>,
        counter: Counter,
        metrics: Arc<InstanceMetrics>,
    ) -> Arc<Self> {
        let weight = self.weight();
        let other = own.map(|(url, health, peers)| {
            (url.authority().to_owned(), Arc::new(Server::new(url, false, health, peers)))
        });
        let shares = other.is_none();
        let (authority, server) =
            other.unwrap_or_else(|| (self.authority.clone(), Arc::clone(&self.server)));
        if let Some(adapter) = &adapter {
            let mut adapters = server.adapters.lock().unwrap_or_else(PoisonError::into_inner);
            adapters.retain(|known| known.strong_count() > 0);
            adapters.push(Arc::downgrade(adapter));
        }
        let instance = Self {
            id: next_id(),
            seed: seed(&name),
            url: name,
            authority,
            host: self.host,
            path_prefix,
            weight: AtomicU64::new(weight.to_bits()),
            counter,
            server,
            shares,
            removed: AtomicBool::new(false),
            adapter,
            metrics,
        };
        Arc::new(instance)
    }

    /// Whether it is a copy on this host: with its server, or with one of its own.
    pub(super) fn is_copy_on(&self, host: &Self) -> bool {
        self.host == host.host && (!self.shares || Arc::ptr_eq(&self.server, &host.server))
    }

    pub(super) fn set_health_path(&self, path: Option<&str>) {
        self.server.health_path.store(path.map(|path| Arc::new(path.to_owned())));
    }

    /// Where it is asked for its health, if not where all are.
    pub(super) fn health_path(&self) -> Option<Arc<String>> {
        self.server.health_path.load_full()
    }

    /// Whether another instance's checks say how it is.
    pub(super) fn shares_server(&self) -> bool {
        self.shares
    }

    /// What clients are told of who answered: its URL without the scheme.
    pub fn name(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.counter.get()
    }

    pub(super) fn configure(&self, weight: f64, drain: bool, health: &Arc<Health>) {
        self.weight.store(weight.to_bits(), Relaxed);
        if self.shares {
            self.removed.store(false, Relaxed);
        } else {
            self.server.health.configure(health, drain, false);
        }
    }

    pub(super) fn remove(&self, health: &Arc<Health>) {
        if self.shares {
            self.removed.store(true, Relaxed);
        } else {
            self.server.health.configure(health, true, true);
        }
    }

    pub(super) fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.server.health.set_resolved(!addresses.is_empty());
        self.server.addresses.store(Arc::new(addresses));
    }

    /// `why` says what was wrong, unless the check was good.
    pub(super) fn note_check(&self, check: Check, why: &str) -> Option<Change> {
        self.server.notes.check(if check == Check::Good { Ok(()) } else { Err(why.to_owned()) });
        if check == Check::Unreachable {
            self.note_restart();
        }
        self.server.health.note_check(check)
    }

    /// Its process may be another one from now on: adapters are loaded anew before they are asked for.
    fn note_restart(&self) {
        self.server.epoch.fetch_add(1, AcqRel);
    }

    /// The adapter that it is, with the epoch of its server.
    pub(super) fn adapter(&self) -> Option<(&Adapter, u64)> {
        self.adapter.as_ref().map(|adapter| (&**adapter, self.server.epoch.load(Acquire)))
    }

    /// Lists of models that its server has given.
    pub(super) fn lists(&self) -> u64 {
        self.server.lists.load(Acquire)
    }

    /// Whether its server can be asked to load an adapter now.
    pub(super) fn can_load(&self) -> bool {
        self.server.health.status().reachable()
    }

    /// Why its server could not load the adapter that it is.
    pub fn adapter_failure(&self) -> Option<String> {
        self.adapter.as_ref().and_then(|adapter| adapter.failure())
    }

    /// Records that its server does not know the adapter that it is.
    pub fn note_unknown(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.forget();
        }
    }

    /// Records what came of a look-up of its host name; the error is for people.
    pub(super) fn note_lookup(&self, result: Result<(), String>) {
        self.server.notes.lookup(result);
    }

    /// Whether its host name has to be looked up from time to time.
    pub(super) fn named(&self) -> bool {
        !self.server.literal
    }

    pub(crate) fn counter(&self) -> &Counter {
        &self.counter
    }

    /// Share of prefixes and requests, relative to the variant's other instances.
    pub fn weight(&self) -> f64 {
        f64::from_bits(self.weight.load(Relaxed))
    }

    /// The instances of its variant.
    pub(super) fn peers(&self) -> &Arc<Peers> {
        &self.server.peers
    }

    /// Whether it may get new requests: well, resolved, neither draining nor removed.
    pub fn available(&self) -> bool {
        if self.shares { self.status().available() } else { self.server.health.available() }
    }

    /// Whether it takes no new requests by configuration, or is no longer configured. Pools close
    /// its idle connections.
    pub fn is_draining(&self) -> bool {
        self.status().leaving()
    }

    /// What speaks against it, if anything.
    pub fn status(&self) -> Status {
        let status = self.server.health.status();
        if !self.shares {
            return status;
        }
        let status = if self.removed.load(Relaxed) { status.removed() } else { status };
        let loads = |adapter: &Arc<Adapter>| !adapter.is_loaded(self.server.epoch.load(Acquire));
        if self.adapter.as_ref().is_some_and(loads) { status.not_loaded() } else { status }
    }

    /// Why it has its status, since when, and what happened last.
    pub fn diagnosis(&self) -> Diagnosis {
        let failure = self.server.health.last_failure().map(|(at, kind)| FailureNote { at, kind });
        let status = self.status();
        Diagnosis {
            since: self.server.health.since(),
            ejected_until: self.server.health.ejected_until(),
            ..self.server.notes.diagnosis(status, failure)
        }
    }

    /// Where it can be reached: all addresses of its host name, the preferred one first; empty
    /// while the name has not been resolved.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.server.addresses.load_full()
    }

    /// The preferred address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.addresses.load().first().copied()
    }

    /// The models that it lists, as far as that is known.
    pub fn models(&self) -> models::Known {
        self.server.models.load_full()
    }

    /// Whether a request may go to it that may go to `serves` only.
    pub fn admitted(&self, serves: Serves<'_>) -> bool {
        // Nearly all fleets are of one model.
        serves.rule == Rule::Any || serves.admits(&self.server.models.load())
    }

    /// The last [round](super::ListingRounds) in which it was asked for its models; 0 before the
    /// first.
    pub(super) fn listed_in(&self) -> u64 {
        self.server.listed_in.load(Acquire)
    }

    /// Whether it is still to be asked for its models, and can be.
    pub fn models_pending(&self) -> bool {
        self.listed_in() == 0 && self.status().reachable()
    }

    /// Takes over the models that it lists; `None` when it has said nothing new about them.
    /// `round` is the one in which it was asked. True when something is known that was not before.
    pub(super) fn set_models(&self, round: u64, known: Option<models::Known>) -> bool {
        let changed = known.as_ref().is_some_and(|known| *self.server.models.load() != *known);
        let is_list = known.is_some();
        if let (true, Some(known)) = (changed, known) {
            self.server.models.store(known);
        }
        if is_list {
            self.server.note_list();
        }
        // Who sees the round sees the list.
        let first = self.server.listed_in.swap(round, AcqRel) == 0;
        changed || first
    }

    /// Records that it answered a request of `client` with a [good](super::Verdict::Well) status, and
    /// to the end.
    pub fn note_success(&self, client: IpAddr) {
        if self.server.health.note_success(client) == Some(Change::Up) {
            tracing::info!(instance = self.url, "instance up again: its requests succeed");
        }
    }

    /// Records that the first byte of a response's body came, or the end of one without a body.
    pub fn note_answering(&self) {
        if self.server.health.note_answering() {
            tracing::info!(instance = self.url, "instance no longer suspect: it answers");
        }
    }

    /// Records that a request was given up before the first byte of its response's body, by its
    /// client or for its time limit, after it had `waited` since it had been sent.
    pub fn note_unanswered(&self, waited: Duration, blame: Blame) {
        if self.server.health.note_unanswered(waited, blame, &self.server.peers) {
            tracing::warn!(
                instance = self.url,
                "instance suspect: requests wait for its first byte until they are given up"
            );
        }
    }

    /// Records that its port refused a connection.
    pub fn note_refused(&self) {
        self.server.health.alarm().refused();
    }

    /// What befalls it while requests are under way.
    pub fn alarm(&self) -> &Alarm {
        self.server.health.alarm()
    }

    /// Records that it answered that it has too much to do, with the `Retry-After` that it gave.
    pub fn note_overload(&self, retry_after: Option<Duration>) {
        self.server.health.note_overload(retry_after);
    }

    /// Records that a request failed by the instance's fault, and whose it was.
    pub fn note_failure(&self, kind: FailureKind, blame: Blame) {
        if kind == FailureKind::Connect {
            self.note_restart();
        }
        if let Some(ejected) = self.server.health.note_failure(kind, blame, &self.server.peers) {
            tracing::warn!(
                instance = self.url, %kind, seconds = ejected.as_secs_f64(),
                "instance ejected: its requests fail"
            );
        }
    }
}

fn next_id() -> InstanceId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

fn seed(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("url", &self.url)
            .field("in_flight", &self.in_flight())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl HasStatus for Instance {
    fn status(&self) -> Status {
        Instance::status(self)
    }
}
