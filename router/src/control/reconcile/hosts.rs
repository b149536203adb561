//! Which hosts a deployment gets.

use std::collections::{HashMap, HashSet};

use crate::{
    config::HostPool,
    control::{Deployment, Placed, VariantSpec},
};

/// What the last look at hosts that serve nobody came to: the error says why one is not to be had.
pub(super) type Looks = HashMap<String, Result<(), String>>;

/// Unhealthy hosts that a reason names at most.
const NAMED: usize = 3;

/// Every host of the pools, and who has it.
pub(super) struct Hosts<'a> {
    pools: &'a [HostPool],
    looks: &'a Looks,
    taken: HashSet<String>,
}

impl<'a> Hosts<'a> {
    /// With these hosts given away.
    pub(super) fn new<'h>(
        pools: &'a [HostPool],
        looks: &'a Looks,
        taken: impl Iterator<Item = &'h String>,
    ) -> Self {
        Self { pools, looks, taken: taken.cloned().collect() }
    }

    /// Gives each variant of `wanted` its number of hosts, or none of them any. What `serving` has comes
    /// first, to the variant of the same name before others, in its order; then hosts that nobody has, in
    /// the order of the pools.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn assign(
        &mut self,
        wanted: &Deployment,
        serving: Option<&Deployment>,
    ) -> Result<Deployment, String> {
        let mut next = wanted.clone();
        let mut mine: Vec<&String> = Vec::new();
        let all = |deployment: &'_ Deployment| -> Vec<String> {
            placed(deployment).flat_map(|variant| variant.hosts.iter().cloned()).collect()
        };
        let has = serving.map(all).unwrap_or_default();
        for variant in placed_mut(&mut next) {
            let same = serving
                .and_then(|it| placed(it).find(|other| other.spec.name == variant.spec.name));
            let hosts = same.into_iter().flat_map(|it| &it.hosts);
            let suits = |host: &&String| self.suits(host, &variant.spec);
            let kept: Vec<_> = hosts.filter(suits).take(variant.count.desired as usize).collect();
            variant.hosts = kept.iter().map(|host| (*host).clone()).collect();
            mine.extend(kept);
        }
        let mut spare: Vec<String> =
            has.iter().filter(|host| !mine.contains(host)).cloned().collect();
        let mut given: Vec<String> = Vec::new();
        let mut missing = Vec::new();
        for variant in placed_mut(&mut next) {
            let count = variant.count.desired as usize;
            while variant.hosts.len() < count
                && let Some(at) = spare.iter().position(|host| self.suits(host, &variant.spec))
            {
                variant.hosts.push(spare.remove(at));
            }
            let free = self.free(&variant.spec).filter(|host| {
                !given.contains(host) && self.looks.get(host).is_some_and(Result::is_ok)
            });
            let more: Vec<_> = free.take(count - variant.hosts.len()).collect();
            given.extend(more.iter().cloned());
            variant.hosts.extend(more);
            if variant.hosts.len() < count {
                missing.push(self.shortage(variant, &given));
            }
        }
        if missing.is_empty() {
            self.taken.extend(given);
            Ok(next)
        } else {
            Err(missing.join("; "))
        }
    }

    /// As [`assign`](Self::assign), for a deployment that is to serve beside another one for a while: hosts
    /// that nobody has come first, then those of the variant of the same name, then others of the
    /// endpoint, which serve both for as long.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn assign_beside(
        &mut self,
        wanted: &Deployment,
        serving: &Deployment,
    ) -> Result<Deployment, String> {
        let mut next = wanted.clone();
        let mut given: Vec<String> = Vec::new();
        let mut missing = Vec::new();
        for variant in placed_mut(&mut next) {
            let spec = &variant.spec;
            let free =
                self.free(spec).filter(|host| self.looks.get(host).is_some_and(Result::is_ok));
            let (same, others): (Vec<_>, Vec<_>) =
                placed(serving).partition(|other| other.spec.name == spec.name);
            let shared =
                same.into_iter().chain(others).flat_map(|other| other.hosts.iter().cloned());
            let shared = shared.filter(|host| self.suits(host, spec));
            let hosts = free.chain(shared).filter(|host| !given.contains(host));
            let hosts: Vec<_> = hosts.take(variant.count.desired as usize).collect();
            given.extend(hosts.iter().cloned());
            variant.hosts = hosts;
            if variant.hosts.len() < variant.count.desired as usize {
                missing.push(self.shortage(variant, &given));
            }
        }
        if !missing.is_empty() {
            return Err(missing.join("; "));
        }
        self.taken.extend(given);
        Ok(next)
    }

    /// Takes from a variant in service the hosts that its pools no longer have, and fills it up as far as
    /// there are any.
    pub(super) fn mend(&mut self, variant: &mut Placed) {
        let spec = &variant.spec;
        variant.hosts.retain(|host| self.suits(host, spec));
        let room = (variant.count.desired as usize).saturating_sub(variant.hosts.len());
        let free = self.free(spec).filter(|host| self.looks.get(host).is_some_and(Result::is_ok));
        let more: Vec<_> = free.take(room).collect();
        self.taken.extend(more.iter().cloned());
        variant.hosts.extend(more);
        variant.count.current = u32::try_from(variant.hosts.len()).unwrap_or(u32::MAX);
    }

    /// Hosts that nobody has and that the variant could be given, those of its first pool first.
    pub(super) fn free(&self, spec: &VariantSpec) -> impl Iterator<Item = String> {
        let pools = spec.pools.iter().flat_map(|wanted| {
            let model = wanted.model.as_deref().or(spec.model.as_deref());
            self.pools.iter().filter(move |pool| suits(pool, &wanted.instance_type, model))
        });
        pools
            .flat_map(|pool| &pool.hosts)
            .map(ToString::to_string)
            .filter(|host| !self.taken.contains(host))
    }

    fn suits(&self, host: &str, spec: &VariantSpec) -> bool {
        spec.pools.iter().any(|wanted| {
            let model = wanted.model.as_deref().or(spec.model.as_deref());
            self.pools.iter().any(|pool| {
                suits(pool, &wanted.instance_type, model)
                    && pool.hosts.iter().any(|url| url.as_str() == host)
            })
        })
    }

    /// Why the variant has fewer hosts than it is to have.
    fn shortage(&self, variant: &Placed, given: &[String]) -> String {
        let spec = &variant.spec;
        let types: Vec<_> = spec.pools.iter().map(|it| it.instance_type.as_str()).collect();
        let model = spec.model.as_ref().map(|model| format!(" for model {model}"));
        let mut text = format!(
            "variant {} has {} of {} hosts of type {}{}",
            spec.name,
            variant.hosts.len(),
            variant.count.desired,
            types.join(" or "),
            model.unwrap_or_default(),
        );
        let unwell: Vec<_> = self
            .free(spec)
            .filter(|host| !given.contains(host))
            .filter_map(|host| match self.looks.get(&host) {
                Some(Err(why)) => Some(format!("{host}: {why}")),
                Some(Ok(())) => None,
                None => Some(format!("{host}: no answer yet")),
            })
            .collect();
        match unwell.len() {
            0 => text.push_str(", and no [[host_pool]] has another one to give"),
            n => {
                let named = unwell[..n.min(NAMED)].join(", ");
                text.push_str(&format!("; not healthy: {named}"));
                if n > NAMED {
                    text.push_str(&format!(" and {} more", n - NAMED));
                }
            }
        }
        text
    }
}

fn suits(pool: &HostPool, instance_type: &str, model: Option<&str>) -> bool {
    match model {
        Some(model) => pool.suits(instance_type, model),
        // Inference components will bring the models.
        None => pool.instance_type == instance_type,
    }
}

/// All variants of a deployment, shadows too.
pub(super) fn placed(deployment: &Deployment) -> impl Iterator<Item = &Placed> {
    deployment.variants.iter().chain(&deployment.shadows)
}

pub(super) fn placed_mut(deployment: &mut Deployment) -> impl Iterator<Item = &mut Placed> {
    deployment.variants.iter_mut().chain(&mut deployment.shadows)
}
