//! The choice of an instance.

use std::{cmp::Ordering, sync::Arc};

use super::{
    Ticket,
    rank::{Distance, PrefixKey},
};
use crate::{
    config::Strategy,
    fleet::{Instance, InstanceId, Serves, Status, Variant, health::TRIALS},
};

/// Why an instance was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is the key's home.
    Home,
    /// Another copy of the component on the home's host: the home is at the threshold.
    SameHost,
    /// The home has as many requests in flight as the threshold allows, or says that it is
    /// overloaded; this one is less busy.
    Overflow,
    /// All instances are at the threshold; this one is the least loaded.
    Saturated,
    /// The home cannot serve, or has just failed this request; this one is next.
    Failover,
    /// No instance is well; this one is tried all the same.
    LastResort,
    /// It has the fewest requests in flight.
    LeastOutstanding,
    /// Chance.
    Random,
    /// Fewer than two instances can serve, so there is nothing to choose.
    Single,
    /// The body's content coding kept its prompt from being read, so this is the least loaded.
    Undecodable,
    /// It keeps the stored response that the request names.
    Stored,
    /// It keeps the session that the request names.
    Session,
}

impl Reason {
    /// All reasons, for tables of metrics.
    pub const ALL: [Self; 12] = [
        Self::Home,
        Self::SameHost,
        Self::Overflow,
        Self::Saturated,
        Self::Failover,
        Self::LastResort,
        Self::LeastOutstanding,
        Self::Random,
        Self::Single,
        Self::Undecodable,
        Self::Stored,
        Self::Session,
    ];

    /// The name used in response headers, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::SameHost => "same_host",
            Self::Overflow => "overflow",
            Self::Saturated => "saturated",
            Self::Failover => "failover",
            Self::LastResort => "last_resort",
            Self::LeastOutstanding => "least_outstanding",
            Self::Random => "random",
            Self::Single => "single",
            Self::Undecodable => "undecodable",
            Self::Stored => "stored",
            Self::Session => "session",
        }
    }

    /// The same for a request whose body could not be decoded, so that it has no key.
    pub fn of_undecodable(self) -> Self {
        if self == Self::LeastOutstanding { Self::Undecodable } else { self }
    }
}

/// Why no instance can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoInstance {
    /// There is none, or all are draining or have no known address.
    #[error("no instance can serve: none is configured, or all are draining or unresolved")]
    None,
    /// Those that could were tried.
    #[error("every instance that can serve has failed this request")]
    Exhausted,
    /// All have `max_in_flight` requests.
    #[error("every instance has as many requests in flight as `max_in_flight` allows")]
    AtLimit,
}

impl NoInstance {
    /// The status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::None | Self::Exhausted => 503,
            Self::AtLimit => 429,
        }
    }

    /// The name used in headers, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no_instance",
            Self::Exhausted => "instances_failed",
            Self::AtLimit => "at_limit",
        }
    }
}

/// A chosen instance.
#[derive(Debug)]
pub struct Choice {
    /// Counts the request at the instance.
    pub ticket: Ticket,
    /// Why this instance.
    pub reason: Reason,
    /// The key's home, when routing by prefix applies.
    pub home: Option<InstanceId>,
}

/// Chooses the instance of `variant` that serves a request, and counts the request there.
///
/// `key` is `None` for requests that have no prefix. `exclude` names instances that have failed this
/// request already.
///
/// # Errors
/// When no instance can serve it.
pub fn choose(
    variant: &Variant,
    key: Option<PrefixKey>,
    exclude: &[InstanceId],
    rng: &mut fastrand::Rng,
) -> Result<Choice, NoInstance> {
    choose_of(variant, Serves::ANY, key, exclude, rng)
}

/// As [`choose`], of the instances that `serves` admits. These alone are ranked.
///
/// # Errors
/// When none of them can serve it.
pub fn choose_of(
    variant: &Variant,
    serves: Serves<'_>,
    key: Option<PrefixKey>,
    exclude: &[InstanceId],
    rng: &mut fastrand::Rng,
) -> Result<Choice, NoInstance> {
    let among = |tier| CandidateSet { variant, serves, exclude, tier };
    match among(Tier::Preferred).choose(key, rng) {
        // None, or none with room, that has not said that it is overloaded.
        Err(_) => {}
        chosen => return chosen,
    }
    match among(Tier::Able).choose(key, rng) {
        // What is known about the instances cannot help to choose among them, and may be wrong: a
        // health page that answers slowly must not stop a fleet that serves.
        Err(NoInstance::None) => {
            let choice = among(Tier::LastResort).choose(key, rng)?;
            Ok(Choice { reason: Reason::LastResort, ..choice })
        }
        chosen => chosen,
    }
}

/// Which instances do for a request. The next tier is asked when the one before it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Those that nothing speaks against.
    Preferred,
    /// Those that can serve, also if they would rather have fewer requests.
    Able,
    /// Those that have an address: no instance is well, and those that are not have to do.
    LastResort,
}

/// The instances that a choice is made among.
struct CandidateSet<'a> {
    variant: &'a Variant,
    serves: Serves<'a>,
    exclude: &'a [InstanceId],
    tier: Tier,
}

impl<'a> CandidateSet<'a> {
    fn choose(
        &self,
        key: Option<PrefixKey>,
        rng: &mut fastrand::Rng,
    ) -> Result<Choice, NoInstance> {
        match (self.variant.routing.strategy, key) {
            (Strategy::PrefixAware, Some(key)) => self.by_prefix(key, rng),
            (Strategy::Random, _) => self.by_chance(rng),
            // The gateway computes no key where there is nothing to choose.
            (Strategy::PrefixAware, None) if self.variant.instances.len() < 2 => {
                self.least_outstanding(Reason::Single, rng)
            }
            (Strategy::PrefixAware | Strategy::LeastOutstandingRequests, _) => {
                self.least_outstanding(Reason::LeastOutstanding, rng)
            }
        }
    }

    /// The instances that have a place in rankings: those that stay, well or not.
    ///
    /// Whether an instance stays is for the newest configuration to say. But when it leaves this
    /// request, which began under an older one, with no instance at all, then the older one holds.
    fn staying(&self) -> impl Iterator<Item = &'a Arc<Instance>> {
        let any = self.tier == Tier::LastResort;
        let serves = self.serves;
        self.variant
            .members()
            .filter(move |(instance, drains)| {
                !drains && (any || !instance.is_draining()) && instance.admitted(serves)
            })
            .map(|(instance, _)| instance)
    }

    /// Whether one that stays can serve.
    fn able(&self, status: Status) -> bool {
        let last = self.tier == Tier::LastResort && !status.unresolved() && !status.loading();
        status.available() || last
    }

    /// Whether one that stays is of the tier.
    fn fits(&self, status: Status) -> bool {
        self.able(status) && (self.tier != Tier::Preferred || status.preferred())
    }

    /// Those of the tier that have not failed the request, and how many requests each may have.
    fn candidates(&self) -> impl Iterator<Item = (&'a Arc<Instance>, u32)> {
        self.staying().filter_map(|instance| {
            let status = instance.status();
            let fits = self.fits(status) && !self.exclude.contains(&instance.id);
            fits.then(|| (instance, self.limit(status)))
        })
    }

    /// Why there is none to choose, with no candidate at hand.
    fn none(&self) -> NoInstance {
        let tried = |i: &Arc<Instance>| self.able(i.status()) && self.exclude.contains(&i.id);
        if self.tier == Tier::LastResort && self.staying().any(tried) {
            NoInstance::Exhausted
        } else {
            NoInstance::None
        }
    }

    /// Why there is none to choose, with candidates at hand or not.
    fn none_of(&self, candidates: bool) -> NoInstance {
        if candidates { NoInstance::AtLimit } else { self.none() }
    }

    /// Requests in flight that no instance may exceed, or, of an instance that is suspect while
    /// others are not, those that try it.
    fn limit(&self, status: Status) -> u32 {
        let limit = self.variant.max_in_flight.map_or(u32::MAX, Into::into);
        match self.tier {
            Tier::Preferred if status.suspect() => limit.min(TRIALS),
            _ => limit,
        }
    }

    fn by_prefix(&self, key: PrefixKey, rng: &mut fastrand::Rng) -> Result<Choice, NoInstance> {
        // An instance that is down for a while stays the home of its keys: they come back to it. One
        // that leaves does not.
        let mut home: Option<(Distance, &Arc<Instance>)> = None;
        let mut first: Option<(Distance, &Arc<Instance>, Status)> = None;
        let mut able = 0;
        for instance in self.staying() {
            let distance = Distance::new(key, instance);
            if home.as_ref().is_none_or(|(best, _)| distance.nearer_than(best)) {
                home = Some((distance, instance));
            }
            let status = instance.status();
            if self.able(status) {
                able += 1;
                if first.as_ref().is_none_or(|(best, ..)| distance.nearer_than(best))
                    && !self.exclude.contains(&instance.id)
                {
                    first = Some((distance, instance, status));
                }
            }
        }
        let (Some((_, home)), Some((_, first, status))) = (home, first) else {
            return Err(self.none());
        };
        if able < 2 {
            return self.least_outstanding(Reason::Single, rng);
        }
        let threshold = self.variant.routing.concurrency_threshold;
        let by_rank = |instance: &Arc<Instance>| {
            if instance.id == home.id { Reason::Home } else { Reason::Failover }
        };
        // An instance that is overloaded is as good as at the threshold.
        if self.fits(status)
            && first.counter().increment_below(threshold.min(self.limit(status))).is_some()
        {
            return Ok(choice(first, by_rank(first), Some(home.id)));
        }
        if self.variant.shares_hosts
            && let Some(instance) = self.take_beside(home, threshold, key)
        {
            return Ok(choice(instance, Reason::SameHost, Some(home.id)));
        }
        let (instance, over) = self.take_least(threshold, &mut Tie::ByRank(key))?;
        let reason = if over {
            Reason::Saturated
        } else if instance.id == first.id {
            // It has become less busy meanwhile.
            by_rank(instance)
        } else {
            Reason::Overflow
        };
        Ok(choice(instance, reason, Some(home.id)))
    }

    /// The least busy of the other copies on an instance's host, if it has room below the threshold.
    fn take_beside(
        &self,
        home: &Instance,
        threshold: u32,
        key: PrefixKey,
    ) -> Option<&'a Arc<Instance>> {
        // As long as another thread takes what was free, there may be more.
        for _ in 0..ROUNDS {
            let beside = self.candidates().filter(|(it, _)| it.host == home.host);
            let (instance, limit) = beside
                .map(|(it, limit)| (it, it.in_flight(), limit.min(threshold)))
                .filter(|(_, in_flight, limit)| in_flight < limit)
                .min_by(|(one, less, _), (other, more, _)| {
                    less.cmp(more).then_with(|| {
                        let nearer =
                            Distance::new(key, one).nearer_than(&Distance::new(key, other));
                        if nearer { Ordering::Less } else { Ordering::Greater }
                    })
                })
                .map(|(it, _, limit)| (it, limit))?;
            if instance.counter().increment_below(limit).is_some() {
                return Some(instance);
            }
        }
        None
    }

    fn least_outstanding(
        &self,
        reason: Reason,
        rng: &mut fastrand::Rng,
    ) -> Result<Choice, NoInstance> {
        let (instance, _) = self.take_least(u32::MAX, &mut Tie::ByChance(rng))?;
        let reason = if self.exclude.is_empty() { reason } else { Reason::Failover };
        Ok(choice(instance, reason, None))
    }

    fn by_chance(&self, rng: &mut fastrand::Rng) -> Result<Choice, NoInstance> {
        loop {
            // Each candidate replaces the choice with its share of the total so far, which comes to
            // a draw in proportion to the weights in one pass.
            let (mut total, mut chosen, mut any) = (0.0, None, false);
            for (instance, limit) in self.candidates() {
                any = true;
                if instance.in_flight() >= limit {
                    continue;
                }
                let weight = instance.weight();
                total += weight;
                if chosen.is_none() || rng.f64() * total < weight {
                    chosen = Some((instance, limit));
                }
            }
            let Some((instance, limit)) = chosen else { return Err(self.none_of(any)) };
            if instance.counter().increment_below(limit).is_some() {
                let reason =
                    if self.exclude.is_empty() { Reason::Random } else { Reason::Failover };
                return Ok(choice(instance, reason, None));
            }
        }
    }

    /// Counts a request at the least loaded candidate, those below `threshold` before the others;
    /// tells whether it was at the threshold.
    ///
    /// Load is requests in flight by weight. The count that was compared is the count that is
    /// raised: when another thread has changed it, the comparison is made again, so that a burst
    /// does not fall on one instance.
    fn take_least(
        &self,
        threshold: u32,
        tie: &mut Tie<'_>,
    ) -> Result<(&'a Arc<Instance>, bool), NoInstance> {
        // Each round that fails is another thread's success, so the rounds end; the bound only
        // keeps one thread from being the unlucky one for ever.
        for round in 0_u32.. {
            let mut best: Option<Loaded<'_>> = None;
            let (mut equals, mut any) = (0, false);
            for (instance, limit) in self.candidates() {
                any = true;
                let in_flight = instance.in_flight();
                if in_flight >= limit {
                    continue;
                }
                let over = in_flight >= threshold;
                let load = f64::from(in_flight) / instance.weight();
                let new = Loaded { over, load, in_flight, limit, instance };
                let better = match &best {
                    None => true,
                    Some(best) => match (over, load).partial_cmp(&(best.over, best.load)) {
                        Some(Ordering::Less) => true,
                        Some(Ordering::Equal) => {
                            equals += 1;
                            tie.goes_to(instance, best.instance, equals)
                        }
                        _ => continue,
                    },
                };
                if better {
                    if best.as_ref().is_none_or(|best| (over, load) != (best.over, best.load)) {
                        equals = 1;
                    }
                    best = Some(new);
                }
            }
            let Some(Loaded { over, in_flight, limit, instance, .. }) = best else {
                return Err(self.none_of(any));
            };
            let counter = instance.counter();
            if counter.increment_from(in_flight)
                || round >= ROUNDS && counter.increment_below(limit).is_some()
            {
                return Ok((instance, over));
            }
        }
        unreachable!("some round succeeds")
    }
}

/// Rounds after which a count may have changed since it was compared.
const ROUNDS: u32 = 1000;

struct Loaded<'a> {
    over: bool,
    load: f64,
    in_flight: u32,
    limit: u32,
    instance: &'a Arc<Instance>,
}

/// Who serves when several are equally loaded.
enum Tie<'a> {
    ByRank(PrefixKey),
    ByChance(&'a mut fastrand::Rng),
}

impl Tie<'_> {
    /// Whether `new`, the `count`th of as many equals, takes the place of `best`.
    fn goes_to(&mut self, new: &Instance, best: &Instance, count: usize) -> bool {
        match self {
            Self::ByRank(key) => Distance::new(*key, new).nearer_than(&Distance::new(*key, best)),
            Self::ByChance(rng) => rng.usize(..count) == 0,
        }
    }
}

fn choice(instance: &Arc<Instance>, reason: Reason, home: Option<InstanceId>) -> Choice {
    Choice { ticket: Ticket::counted(instance), reason, home }
}
