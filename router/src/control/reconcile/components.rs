//! Which hosts have the copies of inference components: a pure function of what exists and of the pools.

use std::{collections::HashMap, time::Duration};

use super::{
    adapters::{Wanted, sets},
    describe::health_path,
    hosts::Looks,
    step::{Look, Step, View, shortened},
};
use crate::{
    config::{Copies, HostPool, InstanceUrl},
    control::{
        Component, ComponentSettled, ComponentStatus, Deployment, Placed, Resources,
        resources::{ComponentSpec, CopyPlace, Key, Requirements},
    },
};

/// What is to be done about components, once the endpoints are as `resources` has them. Older components come
/// first.
pub(super) fn steps(view: &View<'_>, resources: &Resources) -> Vec<Step> {
    let mut components: Vec<&Component> =
        resources.components.values().map(AsRef::as_ref).collect();
    components.sort_by_key(|component| (component.created, &component.name));
    let mut rooms = Rooms::new(view.pools, view.looks);
    // What is there stays there: it is counted before anything is added.
    let kept: Vec<_> =
        components.iter().map(|it| rooms.keep(it, host_variant(resources, it))).collect();
    let mut settled: HashMap<&str, ComponentSettled> = HashMap::new();
    for (component, kept) in components.iter().zip(kept).filter(|(it, _)| !it.is_adapter()) {
        if !matches!(component.status, ComponentStatus::Deleting | ComponentStatus::Failed) {
            let variant = host_variant(resources, component);
            settled.insert(&component.name, rooms.fill(view, component, variant, kept));
        }
    }
    let targets = targets(&components, &settled);
    for component in components.iter().filter(|it| it.is_adapter()) {
        if !matches!(component.status, ComponentStatus::Deleting | ComponentStatus::Failed) {
            let target = targets.get(component.name.as_str()).map_or(&[][..], |it| it);
            let next = adapter(view, component, target, host_variant(resources, component));
            settled.insert(&component.name, next);
        }
    }
    let step = |component: &&Component| match settled.remove(component.name.as_str()) {
        None if component.status == ComponentStatus::Deleting => {
            Some(Step::Gone(Key::component(&component.name), component.generation))
        }
        Some(next) if next != ComponentSettled::of(component) => {
            Some(Step::Component(component.name.clone(), component.generation, next.into()))
        }
        _ => None,
    };
    components.iter().filter_map(step).collect()
}

/// Where each adapter is to be, from where the bases are.
fn targets<'c>(
    components: &[&'c Component],
    bases: &HashMap<&str, ComponentSettled>,
) -> HashMap<&'c str, Vec<CopyPlace>> {
    let mut of_base: HashMap<&str, Vec<Wanted<'c>>> = HashMap::new();
    for component in components {
        let gone = matches!(component.status, ComponentStatus::Deleting | ComponentStatus::Failed);
        if let Some(base) = component.base().filter(|_| !gone) {
            let copies = component.copies.desired as usize;
            of_base.entry(base).or_default().push(Wanted { name: &component.name, copies });
        }
    }
    let sets = of_base.into_iter().flat_map(|(base, adapters)| {
        let places = bases.get(base).map_or(&[][..], |base| &base.places);
        let sets = sets(&adapters, places);
        adapters.into_iter().map(|it| it.name).zip(sets).collect::<Vec<_>>()
    });
    sets.collect()
}

/// How far an adapter is that is to be at `target`. What it leaves it leaves once it is loaded where it goes.
fn adapter(
    view: &View<'_>,
    component: &Component,
    target: &[CopyPlace],
    variant: Option<&Placed>,
) -> ComponentSettled {
    let loads = |place: &CopyPlace| {
        let types = variant.map_or(&[][..], |it| &it.spec.pools);
        let has = |pool: &&HostPool| {
            types.iter().any(|it| it.instance_type == pool.instance_type)
                && pool.hosts.iter().any(|host| host.as_str() == place.host)
        };
        view.pools.iter().find(has).is_some_and(|pool| pool.adapters.is_some())
    };
    if let Some(place) = target.iter().find(|place| !loads(place)) {
        let failure = format!(
            "Host {} loads no adapters: set `adapters = true` in its [[host_pool]] if its server can.",
            place.host
        );
        let (status, failure) = (ComponentStatus::Failed, Some(shortened(failure)));
        return ComponentSettled { status, failure, places: Vec::new() };
    }
    let (loaded, failure) = (view.loads)(&component.endpoint, &component.name);
    let now = &component.places;
    let there = target.iter().all(|place| now.contains(place)) && loaded == now.len();
    let leaves = now.iter().filter(|place| !target.contains(place) && !there);
    let places: Vec<_> = target.iter().chain(leaves).cloned().collect();
    let pending = matches!(component.status, ComponentStatus::Creating | ComponentStatus::Updating);
    let waited = Duration::from_millis(view.now.saturating_sub(component.modified));
    let own = component.specs.iter().filter_map(|spec| spec.ready_within).max();
    let limit = own.map_or(view.ready_within, |limit| Duration::from_secs(limit.into()));
    let complete = there && (!target.is_empty() || component.copies.desired == 0);
    let (status, failure) = match component.status {
        _ if complete => (ComponentStatus::InService, None),
        status if !pending || waited < limit => (status, component.failure.clone()),
        _ => {
            let why = failure.unwrap_or_else(|| match target.is_empty() {
                true => "its base has no copies".to_owned(),
                false => "a server has not answered yet".to_owned(),
            });
            let failure = format!(
                "The adapter was loaded {loaded} times of {} within {} s: {why}.",
                component.copies.desired,
                waited.as_secs()
            );
            let failed =
                if loaded == 0 { ComponentStatus::Failed } else { ComponentStatus::InService };
            (failed, Some(shortened(failure)))
        }
    };
    let places = if status == ComponentStatus::Failed { Vec::new() } else { places };
    ComponentSettled { status, failure, places }
}

/// URLs of copies that have servers of their own and are about to be used: how they are has to be known first.
pub(super) fn wanted(resources: &Resources, pools: &[HostPool]) -> Vec<Look> {
    let looks = Looks::new();
    let mut rooms = Rooms::new(pools, &looks);
    for component in resources.components.values() {
        rooms.keep(component, host_variant(resources, component));
    }
    let short = |it: &&std::sync::Arc<Component>| {
        !it.is_adapter()
            && it.places.len() < it.copies.desired as usize
            && !matches!(it.status, ComponentStatus::Failed | ComponentStatus::Deleting)
    };
    let mut wanted: Vec<Look> = Vec::new();
    for component in resources.components.values().filter(short) {
        let model = component.specs.iter().find_map(|spec| spec.model_input.as_ref());
        let path = model.and_then(health_path);
        let Some(variant) = host_variant(resources, component) else { continue };
        for host in &variant.hosts {
            let Some(room) = rooms.of(host, variant) else { continue };
            if room.copies == Copies::Port
                && let Some(url) = room.url(host, room.free_slot())
                && wanted.iter().all(|look| look.host != url)
            {
                wanted.push(Look { host: url, path: path.clone() });
            }
        }
    }
    wanted
}

/// The variant that hosts a component, once it serves.
fn host_variant<'a>(resources: &'a Resources, component: &Component) -> Option<&'a Placed> {
    let endpoint = resources.endpoints.get(&component.endpoint)?;
    let serving: &Deployment = endpoint.serving.as_ref()?;
    serving.variants.iter().find(|variant| variant.spec.name == component.variant)
}

/// What is left of every host.
struct Rooms<'a> {
    pools: &'a [HostPool],
    looks: &'a Looks,
    hosts: HashMap<String, Room>,
}

#[derive(Clone)]
struct Room {
    instance_type: String,
    copies: Copies,
    cpus: Option<f64>,
    accelerators: Option<f64>,
    /// MiB.
    memory: Option<i64>,
    slots: Vec<u32>,
}

impl Room {
    fn of(pool: &HostPool) -> Self {
        Self {
            instance_type: pool.instance_type.clone(),
            copies: pool.copies,
            cpus: pool.cpus.map(f64::from),
            accelerators: pool.accelerators.map(f64::from),
            memory: pool.memory_mb.map(i64::from),
            slots: Vec::new(),
        }
    }

    /// What a copy needs that the host does not have; `None` if it fits.
    fn lacks(&self, needs: &Requirements) -> Option<String> {
        // Shares of a device add up to whole ones, as far as fractions go.
        let short = |left: Option<f64>, need: f64| left.filter(|left| *left + 1e-9 < need);
        let memory = self.memory.map(|left| left as f64);
        let all = [
            (short(self.cpus, needs.cpus), needs.cpus, "cores"),
            (short(self.accelerators, needs.accelerators), needs.accelerators, "accelerators"),
            (short(memory, needs.memory_mb as f64), needs.memory_mb as f64, "MiB of memory"),
        ];
        all.into_iter().find_map(|(left, need, what)| {
            left.map(|left| format!("it has {} of {need} {what}", left.max(0.0)))
        })
    }

    fn take(&mut self, needs: &Requirements, slot: u32) {
        self.cpus = self.cpus.map(|left| left - needs.cpus);
        self.accelerators = self.accelerators.map(|left| left - needs.accelerators);
        let memory = i64::try_from(needs.memory_mb).unwrap_or(i64::MAX);
        self.memory = self.memory.map(|left| left.saturating_sub(memory));
        self.slots.push(slot);
    }

    fn free_slot(&self) -> u32 {
        (0..).find(|slot| !self.slots.contains(slot)).unwrap_or_default()
    }

    /// Where a copy in this slot serves, if it has a server of its own.
    fn url(&self, host: &str, slot: u32) -> Option<String> {
        let host = InstanceUrl::parse(host).ok()?;
        (self.copies == Copies::Port).then(|| host.at_port_above(slot))?.map(|url| url.to_string())
    }
}

impl<'a> Rooms<'a> {
    fn new(pools: &'a [HostPool], looks: &'a Looks) -> Self {
        Self { pools, looks, hosts: HashMap::new() }
    }

    /// The host as it is for this variant; `None` if no pool has it any more.
    fn of(&mut self, host: &str, variant: &Placed) -> Option<&mut Room> {
        if !self.hosts.contains_key(host) {
            let suits = |pool: &&HostPool| {
                variant.spec.pools.iter().any(|it| it.instance_type == pool.instance_type)
                    && pool.hosts.iter().any(|url| url.as_str() == host)
            };
            let pool = self.pools.iter().find(suits)?;
            self.hosts.insert(host.to_owned(), Room::of(pool));
        }
        self.hosts.get_mut(host)
    }

    /// The copies that a component has and keeps: those whose hosts its variant still has, as many as are
    /// wanted, and of a changed component as many as fit.
    fn keep(&mut self, component: &Component, variant: Option<&Placed>) -> Vec<CopyPlace> {
        let Some(variant) = variant else { return Vec::new() };
        let mut kept = Vec::new();
        if component.is_adapter() || component.status == ComponentStatus::Deleting {
            return kept;
        }
        for place in &component.places {
            let room = match variant.hosts.contains(&place.host) {
                true => self.of(&place.host, variant),
                false => None,
            };
            let Some(room) = room else { continue };
            let Some(spec) = spec(component, &room.instance_type) else { continue };
            let fits = component.status == ComponentStatus::InService
                || room.lacks(&spec.requires).is_none();
            if fits && kept.len() < component.copies.desired as usize {
                room.take(&spec.requires, place.slot);
                kept.push(place.clone());
            }
        }
        kept
    }

    /// Adds copies as long as there is room for them.
    fn fill(
        &mut self,
        view: &View<'_>,
        component: &Component,
        variant: Option<&Placed>,
        mut places: Vec<CopyPlace>,
    ) -> ComponentSettled {
        let desired = component.copies.desired as usize;
        let mut missing = "its variant has no hosts yet".to_owned();
        if let Some(variant) = variant {
            while places.len() < desired {
                match self.next(component, variant, &places) {
                    Ok(place) => places.push(place),
                    Err(why) => {
                        missing = why;
                        break;
                    }
                }
            }
        }
        let waited = Duration::from_millis(view.now.saturating_sub(component.modified));
        let own = component.specs.iter().filter_map(|spec| spec.ready_within).max();
        let limit = own.map_or(view.ready_within, |limit| Duration::from_secs(limit.into()));
        let pending =
            matches!(component.status, ComponentStatus::Creating | ComponentStatus::Updating);
        let (status, failure) = match component.status {
            _ if places.len() == desired => (ComponentStatus::InService, None),
            // Hosts may come back.
            status if !pending || waited < limit => (status, component.failure.clone()),
            _ => {
                let status = match places.is_empty() {
                    true => ComponentStatus::Failed,
                    false => ComponentStatus::InService,
                };
                let failure = format!(
                    "There is not enough room on the hosts of variant {} for {desired} copies: {} fit \
                     within {} s, and for another one {missing}.",
                    component.variant,
                    places.len(),
                    waited.as_secs()
                );
                (status, Some(shortened(failure)))
            }
        };
        ComponentSettled { status, failure, places }
    }

    /// Where another copy goes: the host with the fewest copies of the component, and of these the one with
    /// the most room.
    fn next(
        &mut self,
        component: &Component,
        variant: &Placed,
        places: &[CopyPlace],
    ) -> Result<CopyPlace, String> {
        let mut best: Option<(usize, f64, &String)> = None;
        let mut lacking = Vec::new();
        let looks = self.looks;
        for host in &variant.hosts {
            let here = places.iter().filter(|place| place.host == *host).count();
            let Some(room) = self.of(host, variant) else { continue };
            let Some(spec) = spec(component, &room.instance_type) else {
                lacking.push(format!("{host}: no Specification is for {}", room.instance_type));
                continue;
            };
            if let Some(lacks) = room.lacks(&spec.requires) {
                lacking.push(format!("{host}: {lacks}"));
                continue;
            }
            if room.copies == Copies::Port {
                let look = match room.url(host, room.free_slot()) {
                    None => Err("it has no port left".to_owned()),
                    Some(url) => match looks.get(&url) {
                        Some(look) => look.clone().map_err(|why| format!("{url}: {why}")),
                        None => Err(format!("{url}: no answer yet")),
                    },
                };
                if let Err(why) = look {
                    lacking.push(why);
                    continue;
                }
            }
            let left = room.accelerators.or(room.cpus).unwrap_or(-(room.slots.len() as f64));
            if best.is_none_or(|(copies, most, _)| (here, -left) < (copies, -most)) {
                best = Some((here, left, host));
            }
        }
        let Some((_, _, host)) = best else {
            lacking.truncate(NAMED);
            return Err(match lacking.is_empty() {
                true => "there is no host".to_owned(),
                false => lacking.join(", "),
            });
        };
        let room = self.of(host, variant).expect("it has been looked at");
        let spec = spec(component, &room.instance_type).expect("as before");
        let slot = room.free_slot();
        room.take(&spec.requires, slot);
        Ok(CopyPlace { host: host.clone(), slot })
    }
}

/// Hosts that a reason names at most.
const NAMED: usize = 3;

/// What a component needs of a host of this type.
fn spec<'c>(component: &'c Component, instance_type: &str) -> Option<&'c ComponentSpec> {
    let of_type =
        component.specs.iter().find(|it| it.instance_type.as_deref() == Some(instance_type));
    of_type.or_else(|| component.specs.iter().find(|it| it.instance_type.is_none()))
}
