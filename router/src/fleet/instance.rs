//! One inference server, as the gateway sees it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    Blame, Counter, Diagnosis, FailureKind, Status,
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
    /// `http://host:port`.
    pub url: String,
    /// `host:port`, as in a Host field.
    pub authority: String,
    /// Seed of its place in rankings. It depends on the URL alone, so that every gateway host ranks
    /// alike.
    pub seed: u64,
    /// What is counted about it.
    pub metrics: Arc<InstanceMetrics>,
    /// Bits of an f64.
    weight: AtomicU64,
    counter: Counter,
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
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let literal = url.literal();
        let instance = Self {
            id: NEXT.fetch_add(1, Relaxed),
            url: url.as_str().into(),
            authority: url.authority().into(),
            seed: xxhash_rust::xxh3::xxh3_64(url.as_str().as_bytes()),
            weight: AtomicU64::new(weight.to_bits()),
            counter,
            health: HealthState::new(literal.is_some(), drain, Arc::clone(health)),
            notes: Notes::default(),
            peers,
            addresses: ArcSwap::from_pointee(literal.into_iter().collect()),
            models: ArcSwapOption::empty(),
            listed_in: AtomicU64::new(0),
            literal: literal.is_some(),
            metrics,
        };
        Arc::new(instance)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.counter.get()
    }

    pub(super) fn configure(&self, weight: f64, drain: bool, health: &Arc<Health>) {
        self.weight.store(weight.to_bits(), Relaxed);
        self.health.configure(health, drain, false);
    }

    pub(super) fn remove(&self, health: &Arc<Health>) {
        self.health.configure(health, true, true);
    }

    pub(super) fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.health.set_resolved(!addresses.is_empty());
        self.addresses.store(Arc::new(addresses));
    }

    /// `why` says what was wrong, unless the check was good.
    pub(super) fn note_check(&self, check: Check, why: &str) -> Option<Change> {
        self.notes.check(if check == Check::Good { Ok(()) } else { Err(why.to_owned()) });
        self.health.note_check(check)
    }

    /// Records what came of a look-up of its host name; the error is for people.
    pub(super) fn note_lookup(&self, result: Result<(), String>) {
        self.notes.lookup(result);
    }

    /// Whether its host name has to be looked up from time to time.
    pub(super) fn named(&self) -> bool {
        !self.literal
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
        &self.peers
    }

    /// Whether it may get new requests: well, resolved, neither draining nor removed.
    pub fn available(&self) -> bool {
        self.health.available()
    }

    /// Whether it takes no new requests by configuration, or is no longer configured. Pools close
    /// its idle connections.
    pub fn is_draining(&self) -> bool {
        self.health.status().leaving()
    }

    /// What speaks against it, if anything.
    pub fn status(&self) -> Status {
        self.health.status()
    }

    /// Why it has its status, since when, and what happened last.
    pub fn diagnosis(&self) -> Diagnosis {
        let failure = self.health.last_failure().map(|(at, kind)| FailureNote { at, kind });
        let status = self.status();
        Diagnosis {
            since: self.health.since(),
            ejected_until: self.health.ejected_until(),
            ..self.notes.diagnosis(status, failure)
        }
    }

    /// Where it can be reached: all addresses of its host name, the preferred one first; empty
    /// while the name has not been resolved.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.addresses.load_full()
    }

    /// The preferred address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses.load().first().copied()
    }

    /// The models that it lists, as far as that is known.
    pub fn models(&self) -> models::Known {
        self.models.load_full()
    }

    /// Whether a request may go to it that may go to `serves` only.
    pub fn admitted(&self, serves: Serves<'_>) -> bool {
        // Nearly all fleets are of one model.
        serves.rule == Rule::Any || serves.admits(&self.models.load())
    }

    /// The last [round](super::ListingRounds) in which it was asked for its models; 0 before the
    /// first.
    pub(super) fn listed_in(&self) -> u64 {
        self.listed_in.load(Acquire)
    }

    /// Whether it is still to be asked for its models, and can be.
    pub fn models_pending(&self) -> bool {
        self.listed_in() == 0 && self.status().reachable()
    }

    /// Takes over the models that it lists; `None` when it has said nothing new about them.
    /// `round` is the one in which it was asked. True when something is known that was not before.
    pub(super) fn set_models(&self, round: u64, known: Option<models::Known>) -> bool {
        let changed = known.as_ref().is_some_and(|known| *self.models.load() != *known);
        if let (true, Some(known)) = (changed, known) {
            self.models.store(known);
        }
        // Who sees the round sees the list.
        let first = self.listed_in.swap(round, AcqRel) == 0;
        changed || first
    }

    /// Records that it answered a request of `client` with a [good](super::Verdict::Well) status, and
    /// to the end.
    pub fn note_success(&self, client: IpAddr) {
        if self.health.note_success(client) == Some(Change::Up) {
            tracing::info!(instance = self.url, "instance up again: its requests succeed");
        }
    }

    /// Records that the first byte of a response's body came, or the end of one without a body.
    pub fn note_answering(&self) {
        if self.health.note_answering() {
            tracing::info!(instance = self.url, "instance no longer suspect: it answers");
        }
    }

    /// Records that a request was given up before the first byte of its response's body, by its
    /// client or for its time limit, after it had `waited` since it had been sent.
    pub fn note_unanswered(&self, waited: Duration, blame: Blame) {
        if self.health.note_unanswered(waited, blame, &self.peers) {
            tracing::warn!(
                instance = self.url,
                "instance suspect: requests wait for its first byte until they are given up"
            );
        }
    }

    /// Records that its port refused a connection.
    pub fn note_refused(&self) {
        self.health.alarm().refused();
    }

    /// What befalls it while requests are under way.
    pub fn alarm(&self) -> &Alarm {
        self.health.alarm()
    }

    /// Records that it answered that it has too much to do, with the `Retry-After` that it gave.
    pub fn note_overload(&self, retry_after: Option<Duration>) {
        self.health.note_overload(retry_after);
    }

    /// Records that a request failed by the instance's fault, and whose it was.
    pub fn note_failure(&self, kind: FailureKind, blame: Blame) {
        if let Some(ejected) = self.health.note_failure(kind, blame, &self.peers) {
            tracing::warn!(
                instance = self.url, %kind, seconds = ejected.as_secs_f64(),
                "instance ejected: its requests fail"
            );
        }
    }
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
