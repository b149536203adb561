//! The status page: what an operator wants to see at once.
//!
//! The same types are written by the page and read by `atalho status`.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{moment::Time, ready::ready};
use crate::{
    fleet::{Endpoint, Instance, Variant},
    shared::{Phase, Shared},
};

/// A word of this program: borrowed where the page is written, owned where it is read.
type Word = Cow<'static, str>;

/// Everything on the page.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Status {
    pub(crate) version: Word,
    /// `running`, `draining` or `stopped`.
    pub(crate) phase: Word,
    /// Whether clients should be sent here, as in `/readyz`.
    pub(crate) ready: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_ready: Option<Word>,
    pub(crate) config: Config,
    pub(crate) client_connections: i64,
    pub(crate) engines: Vec<Engine>,
    pub(crate) endpoints: Vec<EndpointStatus>,
    /// Instances that were removed from the configuration and still serve their last requests.
    pub(crate) leaving: Vec<InstanceStatus>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Config {
    /// Counts up with each configuration that took effect.
    pub(crate) generation: i64,
    /// When the running one did.
    pub(crate) applied_at: Time,
    /// Reloads that were refused since the start.
    pub(crate) refused: u64,
    /// The last attempt to take over a changed file; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_reload: Option<LastReload>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct LastReload {
    pub(crate) at: Time,
    pub(crate) successful: bool,
    /// What is wrong or was left out, a line for each.
    pub(crate) messages: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Engine {
    pub(crate) name: Word,
    pub(crate) available: bool,
    pub(crate) reason: Word,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct EndpointStatus {
    pub(crate) name: String,
    pub(crate) variants: Vec<VariantStatus>,
    /// Its inference components, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) components: Vec<ComponentStatus>,
}

/// An inference component and its copies.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ComponentStatus {
    pub(crate) name: String,
    /// The variant that hosts it.
    pub(crate) variant: String,
    pub(crate) copies: Vec<InstanceStatus>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct VariantStatus {
    pub(crate) name: String,
    pub(crate) weight: f64,
    pub(crate) strategy: Word,
    pub(crate) prefix_length: usize,
    pub(crate) concurrency_threshold: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) instances: Vec<InstanceStatus>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct InstanceStatus {
    pub(crate) url: String,
    /// `up`, or what speaks against it: `removed`, `draining`, `unresolved`, `down`, `ejected`,
    /// `suspect`, `overloaded`.
    pub(crate) status: Word,
    /// Whether it may get new requests.
    pub(crate) available: bool,
    /// Since when it has this status.
    pub(crate) since: Time,
    /// What speaks against it, as a clause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// When requests will be tried there again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ejected_until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_check: Option<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<Failure>,
    pub(crate) in_flight: u32,
    pub(crate) weight: f64,
    /// The models that it lists; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<Vec<String>>,
    pub(crate) addresses: Vec<String>,
}

/// The last health check.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Check {
    pub(crate) at: Time,
    pub(crate) ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The last request that failed by the instance's fault.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Failure {
    pub(crate) at: Time,
    /// `connect`, `reset`, `timeout`, `protocol` or `status`.
    pub(crate) kind: Word,
}

impl Status {
    pub(super) fn of(shared: &Shared) -> Status {
        let fleet = shared.fleet.load();
        let config = &shared.metrics.config;
        let engines = shared.metrics.engines();
        let readiness = ready(shared);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            phase: match *shared.phase.borrow() {
                Phase::Running => "running",
                Phase::LameDuck => "lame_duck",
                Phase::HandedOver => "handed_over",
                Phase::Draining => "draining",
                Phase::Stopped => "stopped",
            }
            .into(),
            ready: readiness.is_ok(),
            not_ready: readiness.err().map(Into::into),
            config: Config {
                generation: config.generation(),
                applied_at: Time(config.applied_at()),
                refused: config.failed(),
                last_reload: config.last_reload().map(|last| LastReload {
                    at: Time(last.at),
                    successful: last.successful,
                    messages: last.message.lines().map(str::to_owned).collect(),
                }),
            },
            client_connections: shared.metrics.clients.open.get(),
            engines: engines
                .into_iter()
                .map(|(name, reason)| Engine {
                    name: name.into(),
                    available: reason == "ok",
                    reason: reason.into(),
                })
                .collect(),
            endpoints: fleet.endpoints().iter().map(endpoint).collect(),
            leaving: fleet.leaving().map(|leaving| instance(&leaving)).collect(),
        }
    }
}

fn endpoint(endpoint: &Endpoint) -> EndpointStatus {
    let variants = endpoint.all_variants().map(|known| variant(known)).collect();
    let component = |(name, component): (&String, &Arc<Variant>)| ComponentStatus {
        name: name.clone(),
        variant: component.name.clone(),
        copies: component.instances.iter().map(|copy| instance(copy)).collect(),
    };
    let mut components: Vec<_> = endpoint.components.iter().map(component).collect();
    components.sort_by(|one, other| one.name.cmp(&other.name));
    EndpointStatus { name: endpoint.name.clone(), variants, components }
}

fn variant(variant: &Variant) -> VariantStatus {
    VariantStatus {
        name: variant.name.clone(),
        weight: variant.weight,
        strategy: variant.routing.strategy.as_str().into(),
        prefix_length: variant.routing.prefix_length,
        concurrency_threshold: variant.routing.concurrency_threshold,
        max_in_flight: variant.max_in_flight.map(Into::into),
        instances: variant.instances.iter().map(|known| instance(known)).collect(),
    }
}

fn instance(instance: &Instance) -> InstanceStatus {
    let known = instance.diagnosis();
    InstanceStatus {
        url: instance.url.clone(),
        status: known.status.as_str().into(),
        available: known.status.available(),
        since: Time(known.since),
        why: known.why,
        ejected_until: known.ejected_until.map(Time),
        last_check: known.last_check.map(|check| Check {
            at: Time(check.at),
            ok: check.error.is_none(),
            error: check.error,
        }),
        last_failure: known
            .last_failure
            .map(|failure| Failure { at: Time(failure.at), kind: failure.kind.as_str().into() }),
        in_flight: instance.in_flight(),
        weight: instance.weight(),
        models: instance.models().map(|list| list.ids().map(str::to_owned).collect()),
        addresses: instance.addresses().iter().map(ToString::to_string).collect(),
    }
}
