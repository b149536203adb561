//! What it costs to decide in a large fleet, beside a small one.
//!
//! Measured is the whole of a [decision](super::decision) for a body of 4 KiB, with the look-ups of endpoint and
//! inference component in front: for the same component again and again, whose data is in the processor's caches, and
//! for components in random order, whose data is not where there are thousands. And how long a change of the
//! large fleet takes.

use std::{sync::Arc, time::Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use router::{
    config::{
        ComponentConfig, Config, CopyConfig, EndpointConfig, InstanceConfig, InstanceUrl,
        VariantConfig,
    },
    fleet::{Counters, Fleet},
    metrics::Metrics,
    prefix::Api,
};
use serde::Serialize;

use super::{bodies::Shape, decision::decide};
use crate::report::{Table, median, number};

/// Endpoints of the large fleet.
pub const ENDPOINTS: usize = 1_000;
/// Inference components of each endpoint.
pub const COMPONENTS: usize = 10;
/// Hosts of each endpoint, each with a copy of every component.
const HOSTS: usize = 2;
/// Times that each fleet has its turn.
const ROUNDS: usize = 10;
/// Decisions that are timed together.
const BATCH: usize = 5_000;

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sizes {
    /// Microseconds of a decision for one component of a fleet of one endpoint.
    pub small_us: f64,
    /// The same in the large fleet.
    pub large_us: f64,
    /// For components in random order, in the small fleet.
    pub small_random_us: f64,
    /// The same in the large fleet.
    pub large_random_us: f64,
    /// Milliseconds to make the large fleet anew with another component in the place of one, and to put it in force.
    pub change_ms: f64,
}

/// Measures both fleets in turn.
///
/// # Errors
/// When one of them cannot be made.
pub fn run() -> anyhow::Result<Sizes> {
    let (counters, metrics) = (Counters::heap(32_768), Metrics::new());
    let make = |endpoints| -> anyhow::Result<Arc<Fleet>> {
        let config = Arc::new(config(endpoints)?);
        Ok(Arc::new(Fleet::build(&config, None, &counters, &metrics)?))
    };
    let (small, large) = (make(1)?, make(ENDPOINTS)?);
    let body = Shape::Long.body(4 << 10);
    let turns = [(&small, false), (&large, false), (&small, true), (&large, true)];
    let mut rounds = [const { Vec::new() }; 4];
    for round in 0..ROUNDS as u64 {
        for ((fleet, random), times) in turns.iter().zip(&mut rounds) {
            times.push(batch(fleet, *random, &body, round));
        }
    }
    let [small_us, large_us, small_random_us, large_random_us] = rounds.map(median);
    let current = ArcSwap::new(large);
    let mut changes = Vec::new();
    for round in 0..ROUNDS {
        let mut config = Config::clone(current.load().config());
        // One goes, and another one comes.
        let components = &mut config.endpoints[ENDPOINTS / 2].components;
        if let Some(last) = components.last_mut() {
            last.name = format!("another-{round}");
        }
        let begin = Instant::now();
        let old = current.load_full();
        let new = Fleet::build(&Arc::new(config), Some(&old), &counters, &metrics)?;
        Arc::new(new).replace(&current);
        changes.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let change_ms = median(changes);
    Ok(Sizes { small_us, large_us, small_random_us, large_random_us, change_ms })
}

/// Microseconds of one decision out of many.
fn batch(fleet: &Fleet, random: bool, body: &[u8], seed: u64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let endpoints = fleet.endpoints().len();
    // Making the names is no part of it.
    let names: Vec<(String, String)> = (0..BATCH)
        .map(|_| match random {
            true => (rng.usize(..endpoints), rng.usize(..COMPONENTS)),
            false => (endpoints / 2, COMPONENTS / 2),
        })
        .map(|(endpoint, component)| (name(endpoint), component_name(component)))
        .collect();
    let begin = Instant::now();
    for (endpoint, component) in &names {
        let endpoint = fleet.endpoint(endpoint).expect("it has all of them");
        let component = endpoint.components.get(component).expect("each has all of them");
        decide(component, Api::ChatCompletions, 1_024, body, &mut rng);
    }
    begin.elapsed().as_secs_f64() * 1e6 / BATCH as f64
}

fn config(endpoints: usize) -> anyhow::Result<Config> {
    let endpoints = (0..endpoints).map(endpoint).collect::<anyhow::Result<_>>()?;
    Ok(Config { endpoints, ..Config::default() })
}

fn name(endpoint: usize) -> String {
    format!("endpoint-{endpoint}")
}

fn component_name(component: usize) -> String {
    format!("component-{component}")
}

fn endpoint(number: usize) -> anyhow::Result<EndpointConfig> {
    let url = |host: usize| {
        let url = format!("http://10.{}.{}.{}:8000", host + 1, number / 250, number % 250 + 1);
        InstanceUrl::parse(&url).context("the URL of a host")
    };
    let hosts: Vec<InstanceUrl> = (0..HOSTS).map(url).collect::<anyhow::Result<_>>()?;
    let instance =
        |url: &InstanceUrl| InstanceConfig { url: url.clone(), weight: 1.0, drain: false };
    let variant = VariantConfig {
        instances: hosts.iter().map(instance).collect(),
        ..VariantConfig::named("v")
    };
    let component = |n: usize| ComponentConfig {
        name: component_name(n),
        variant: "v".into(),
        invocations_path: variant.invocations_path.clone(),
        health_path: None,
        copies: hosts
            .iter()
            .map(|host| CopyConfig {
                host: host.clone(),
                slot: n as u32,
                url: None,
                path_prefix: None,
            })
            .collect(),
        adapter: None,
    };
    let components = (0..COMPONENTS).map(component).collect();
    let endpoint = EndpointConfig::new(&name(number), vec![variant]);
    Ok(EndpointConfig { components, needs_component: true, ..endpoint })
}

/// What was measured, for people.
pub fn table(sizes: &Sizes) -> Table {
    let title = format!(
        "Deciding in a fleet of one endpoint, and of {} with {} components",
        number(ENDPOINTS as f64),
        number((ENDPOINTS * COMPONENTS) as f64)
    );
    let mut table = Table::new(title, ["", "small (us)", "large (us)", "ratio"]);
    for (what, small, large) in [
        ("the same component", sizes.small_us, sizes.large_us),
        ("any component", sizes.small_random_us, sizes.large_random_us),
    ] {
        table.row([what.to_owned(), number(small), number(large), number(large / small)]);
    }
    table.row([
        "a change of one component".to_owned(),
        String::new(),
        number(sizes.change_ms * 1e3),
        String::new(),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_of_both_fleets_can_be_decided_for() {
        let (counters, metrics) = (Counters::heap(256), Metrics::new());
        let config = Arc::new(config(3).unwrap());
        let fleet = Fleet::build(&config, None, &counters, &metrics).unwrap();
        assert_eq!(fleet.endpoints().len(), 3);
        assert!(fleet.endpoints().iter().all(|it| it.components.len() == COMPONENTS));
        let body = Shape::Long.body(4 << 10);
        assert!(batch(&fleet, true, &body, 1) > 0.0 && batch(&fleet, false, &body, 1) > 0.0);
    }
}
