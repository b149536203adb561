//! The gateway's own decision: its scanner, its key, its choice, and its counters.

use std::{collections::HashMap, iter, sync::Arc};

use router::{
    config::{
        ComponentConfig, Config, CopyConfig, EndpointConfig, InstanceConfig, InstanceUrl,
        PrefixEnd, VariantConfig,
    },
    fleet::{Counters, Fleet, Instance, InstanceId, Variant},
    metrics::Metrics,
    prefix::{self, Api, Decider, KeyParts, Known},
    routing::{self, Reason, Ticket},
};

use super::{Choice, HostView, Policy, Request};
use crate::simulator::host::RequestId;

/// Counters that a fleet may have at most: hosts of all times.
const COUNTERS: u32 = 4_096;
/// The endpoint's name.
const ENDPOINT: &str = "simulated";
/// The inference component's name.
const COMPONENT: &str = "component";

/// What chooses.
pub struct Atalho {
    name: String,
    variant: VariantConfig,
    api: Api,
    /// Whether requests name an inference component, which has a copy on each host.
    component: bool,
    end: PrefixEnd,
    counters: Counters,
    metrics: Arc<Metrics>,
    fleet: Option<Arc<Fleet>>,
    /// The numbers of the hosts in the fleet, in its order.
    hosts: Vec<usize>,
    tickets: HashMap<RequestId, Ticket>,
    rng: fastrand::Rng,
}

impl Atalho {
    /// With the routing of this variant, whose instances do not matter, for requests of `api`.
    pub fn new(name: impl Into<String>, variant: VariantConfig, api: Api, seed: u64) -> Self {
        Self {
            name: name.into(),
            variant,
            api,
            component: false,
            end: PrefixEnd::Length,
            counters: Counters::heap(COUNTERS),
            metrics: Metrics::new(),
            fleet: None,
            hosts: Vec::new(),
            tickets: HashMap::new(),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The same for an inference component with a copy on each host.
    #[must_use]
    pub fn with_component(mut self) -> Self {
        self.component = true;
        self
    }

    /// The same with the prefix ending there.
    #[must_use]
    pub fn ending(mut self, end: PrefixEnd) -> Self {
        self.end = end;
        self
    }

    fn variant(&self) -> Option<&Arc<Variant>> {
        let endpoint = self.fleet.as_ref()?.default_endpoint()?;
        match self.component {
            false => endpoint.variants.first(),
            true => endpoint.components.get(COMPONENT),
        }
    }

    fn instance(&self, host: usize) -> Option<&Arc<Instance>> {
        let at = self.hosts.iter().position(|number| *number == host)?;
        self.variant()?.instances.get(at)
    }

    fn host(&self, id: InstanceId) -> Option<usize> {
        let at = self.variant()?.instances.iter().position(|instance| instance.id == id)?;
        self.hosts.get(at).copied()
    }
}

impl Policy for Atalho {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        _hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let variant = Arc::clone(self.variant()?);
        let config = self.fleet.as_ref()?.config();
        let known = Known {
            api: self.api,
            prefix_length: variant.routing.prefix_length,
            decision_bytes: config.limits.decision_bytes,
            skip: &config.prefix.skip_lines,
            end: config.prefix.end,
            model: false,
            tenant: false,
        };
        let mut decider = Decider::new(known, iter::empty());
        decider.feed(request.body);
        let findings = decider.finish();
        let component = self.component.then_some(COMPONENT);
        let parts = KeyParts::of(ENDPOINT, &variant.name, None, component, &findings.prefix);
        let key = findings.has_prefix.then(|| prefix::key(&parts));
        let exclude: Vec<InstanceId> =
            failed.iter().filter_map(|host| Some(self.instance(*host)?.id)).collect();
        let choice = routing::choose(&variant, key, &exclude, &mut self.rng).ok()?;
        let host = self.host(choice.ticket.instance().id)?;
        self.tickets.insert(request.id, choice.ticket);
        let overflow = matches!(choice.reason, Reason::Overflow | Reason::Saturated);
        Some(Choice { host, overflow })
    }

    fn ended(&mut self, request: RequestId, _host: usize) {
        self.tickets.remove(&request);
    }

    fn listed(&mut self, hosts: &[HostView]) {
        self.hosts = (0..hosts.len()).filter(|host| hosts[*host].listed).collect();
        let mut variant = self.variant.clone();
        variant.instances = self.hosts.iter().map(|host| instance(*host)).collect();
        let component = self.component.then(|| component(&variant));
        let mut endpoint = EndpointConfig::new(ENDPOINT, vec![variant]);
        endpoint.components.extend(component);
        let mut config = Config { endpoints: vec![endpoint], ..Config::default() };
        config.prefix.end = self.end;
        let config = Arc::new(config);
        let fleet = Fleet::build(&config, self.fleet.as_deref(), &self.counters, &self.metrics)
            .expect("a valid fleet with fewer hosts than counters");
        self.fleet = Some(Arc::new(fleet));
    }
}

/// A component with a copy on each instance of the variant.
fn component(variant: &VariantConfig) -> ComponentConfig {
    let copy = |instance: &InstanceConfig| CopyConfig {
        host: instance.url.clone(),
        slot: 0,
        url: None,
        path_prefix: None,
    };
    ComponentConfig {
        name: COMPONENT.into(),
        variant: variant.name.clone(),
        invocations_path: variant.invocations_path.clone(),
        health_path: None,
        copies: variant.instances.iter().map(copy).collect(),
        adapter: None,
    }
}

fn instance(host: usize) -> InstanceConfig {
    let url: InstanceUrl = format!("http://10.1.{}.{}:8000", host >> 8, host & 0xff)
        .parse()
        .expect("an address of two bytes");
    InstanceConfig { url, weight: 1.0, drain: false }
}
