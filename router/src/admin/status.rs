//! The status page: what an operator wants to see at once.

use serde::Serialize;

use crate::{
    fleet::{Endpoint, Instance, Variant},
    shared::{Phase, Shared},
};

/// Everything on the page.
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    /// `running`, `draining` or `stopped`.
    phase: &'static str,
    config: Config,
    client_connections: i64,
    engines: Vec<Engine>,
    endpoints: Vec<EndpointStatus>,
    /// Instances that were removed from the configuration and still serve their last requests.
    leaving: Vec<InstanceStatus>,
}

#[derive(Serialize)]
struct Config {
    /// Counts up with each configuration that took effect.
    generation: i64,
    /// Seconds since 1970.
    applied_at: i64,
    /// Reloads that were refused since the start; the log says why.
    refused: u64,
}

#[derive(Serialize)]
struct Engine {
    name: &'static str,
    available: bool,
    reason: &'static str,
}

#[derive(Serialize)]
struct EndpointStatus {
    name: String,
    variants: Vec<VariantStatus>,
}

#[derive(Serialize)]
struct VariantStatus {
    name: String,
    weight: f64,
    strategy: &'static str,
    prefix_length: usize,
    concurrency_threshold: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight: Option<u32>,
    instances: Vec<InstanceStatus>,
}

#[derive(Serialize)]
struct InstanceStatus {
    url: String,
    /// `up`, or what speaks against it: `down`, `ejected`, `draining`, `unresolved`, `removed`.
    status: &'static str,
    available: bool,
    in_flight: u32,
    weight: f64,
    addresses: Vec<String>,
}

impl Status {
    pub(super) fn of(shared: &Shared) -> Status {
        let fleet = shared.fleet.load();
        let config = &shared.metrics.config;
        let engines = shared.metrics.engines();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            phase: match *shared.phase.borrow() {
                Phase::Running => "running",
                Phase::Draining => "draining",
                Phase::Stopped => "stopped",
            },
            config: Config {
                generation: config.generation.get(),
                applied_at: config.applied_at.get(),
                refused: config.reloads_failed.get(),
            },
            client_connections: shared.metrics.clients.open.get(),
            engines: engines
                .into_iter()
                .map(|(name, reason)| Engine { name, available: reason == "ok", reason })
                .collect(),
            endpoints: fleet.endpoints().iter().map(endpoint).collect(),
            leaving: fleet.leaving().map(|leaving| instance(&leaving)).collect(),
        }
    }
}

fn endpoint(endpoint: &Endpoint) -> EndpointStatus {
    let variants = endpoint.variants.iter().map(|known| variant(known)).collect();
    EndpointStatus { name: endpoint.name.clone(), variants }
}

fn variant(variant: &Variant) -> VariantStatus {
    VariantStatus {
        name: variant.name.clone(),
        weight: variant.weight,
        strategy: variant.routing.strategy.as_str(),
        prefix_length: variant.routing.prefix_length,
        concurrency_threshold: variant.routing.concurrency_threshold,
        max_in_flight: variant.max_in_flight.map(Into::into),
        instances: variant.instances.iter().map(|known| instance(known)).collect(),
    }
}

fn instance(instance: &Instance) -> InstanceStatus {
    InstanceStatus {
        url: instance.url.clone(),
        status: instance.status().as_str(),
        available: instance.available(),
        in_flight: instance.in_flight(),
        weight: instance.weight(),
        addresses: instance.addresses().iter().map(ToString::to_string).collect(),
    }
}
