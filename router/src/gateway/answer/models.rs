//! `GET /v1/models`, answered from what the instances say.

use std::{rc::Rc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fleet::{Endpoint, Instance, probe};

/// How long an instance may take to list its models.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Largest list of one instance, in bytes.
const SIZE_LIMIT: usize = 4 << 20;

/// The models of an endpoint: those of all its able instances, each once, in the order in which
/// the configuration names the instances.
///
/// An instance that does not answer in time is left out: a client gets what can be served now.
///
/// `credentials` are the client's own, for servers that want a key.
pub(in crate::gateway) async fn models(endpoint: &Endpoint, credentials: Option<&[u8]>) -> Vec<u8> {
    let credentials: Option<Rc<[u8]>> = credentials.map(Into::into);
    let mut asked = JoinSet::new();
    let instances = endpoint.variants.iter().flat_map(|variant| &variant.instances);
    for (order, instance) in instances.filter(|instance| instance.available()).enumerate() {
        let (instance, credentials) = (instance.clone(), credentials.clone());
        asked.spawn_local(
            async move { (order, models_of(&instance, credentials.as_deref()).await) },
        );
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

async fn models_of(instance: &Instance, credentials: Option<&[u8]>) -> Vec<Value> {
    let headers = credentials.map(|value| ("authorization", value));
    let get = probe::Get {
        authority: &instance.authority,
        path: "/v1/models",
        headers: headers.as_slice(),
        time_limit: TIME_LIMIT,
        size_limit: SIZE_LIMIT,
    };
    let list = match probe::get(&instance.addresses(), &get).await {
        Ok(answer) if answer.status == 200 => serde_json::from_slice::<Value>(&answer.body),
        Ok(answer) => {
            tracing::debug!(instance = %instance.url, answer.status, "no list of models");
            return Vec::new();
        }
        Err(error) => {
            tracing::debug!(instance = %instance.url, %error, "no list of models");
            return Vec::new();
        }
    };
    match list {
        Ok(mut list) => match list["data"].take() {
            Value::Array(models) => models,
            _ => Vec::new(),
        },
        Err(error) => {
            tracing::debug!(instance = %instance.url, %error, "a list of models is no JSON");
            Vec::new()
        }
    }
}
