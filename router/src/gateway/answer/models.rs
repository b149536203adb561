//! `GET /v1/models`, answered from what the instances say.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::gateway::{credentials::Credentials, read::Request, scope::Scope};
use crate::{
    fleet::{
        Endpoint, Instance, Listing,
        probe::{self, Answer, ProbeError},
    },
    http::Failure,
};

/// How long an instance may take to list its models.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Largest list of one instance, in bytes.
const SIZE_LIMIT: usize = 4 << 20;

/// The models of these endpoints, from what their instances answer to the client's own credentials:
/// each model once, in the order in which the configuration names the instances. An instance that
/// does not answer in time is left out.
///
/// `name` is that of the endpoint, `None` for all of them. Answers are given again for a while, to the
/// same credentials.
///
/// # Errors
/// When no instance answers.
pub(in crate::gateway) async fn models(
    scope: &Scope<'_>,
    request: &Request,
    name: Option<&str>,
) -> Result<Arc<Listing>, Failure> {
    let endpoints = match name {
        None => scope.fleet.endpoints(),
        Some(name) => scope.fleet.endpoint(name).map(std::slice::from_ref).unwrap_or_default(),
    };
    let (cached, age) = (scope.fleet.listings(), scope.config().models.cache);
    let credentials = Credentials::of(request);
    let whose = credentials.to_bytes();
    if let Some(listing) = cached.get(name, &whose, age) {
        return Ok(listing);
    }
    // Made-up credentials must not flood the instances, nor must many clients at the end of the while.
    let _permit = scope.worker.listings.acquire().await.ok();
    if let Some(listing) = cached.get(name, &whose, age) {
        return Ok(listing);
    }
    let listing = Arc::new(combine(ask(endpoints, &credentials).await)?);
    if !age.is_zero() {
        cached.put(name, whose, Arc::clone(&listing));
    }
    Ok(listing)
}

/// Asks the instances, all at once. Those that can serve, or all if none can.
async fn ask(endpoints: &[Endpoint], credentials: &Credentials) -> Vec<Result<Answer, ProbeError>> {
    let staying = || {
        let variants = endpoints.iter().flat_map(|endpoint| &endpoint.variants);
        let instances = variants.flat_map(|variant| &variant.instances);
        instances.filter(|instance| !instance.is_draining())
    };
    let any = !staying().any(|instance| instance.available());
    let mut asked = JoinSet::new();
    for (order, instance) in staying().filter(|i| any || i.available()).enumerate() {
        let (instance, credentials) = (Arc::clone(instance), credentials.clone());
        asked.spawn_local(async move { (order, list_of(&instance, &credentials).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(order, _)| *order);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn list_of(instance: &Instance, credentials: &Credentials) -> Result<Answer, ProbeError> {
    let headers = credentials.fields();
    let get = probe::Get {
        authority: &instance.authority,
        path: "/v1/models",
        headers: &headers,
        time_limit: TIME_LIMIT,
        size_limit: SIZE_LIMIT,
    };
    let answer = probe::get(&instance.addresses(), &get).await;
    match &answer {
        Ok(Answer { status: 200, .. }) => {}
        Ok(answer) => {
            tracing::debug!(instance = %instance.url, answer.status, "no list of models");
        }
        Err(error) => tracing::debug!(instance = %instance.url, %error, "no list of models"),
    }
    answer
}

/// One answer of the instances': their lists in one, or else what they refuse it with.
///
/// # Errors
/// None of them has said anything about it.
fn combine(answers: Vec<Result<Answer, ProbeError>>) -> Result<Listing, Failure> {
    let mut listed = false;
    let mut seen = hashbrown::HashSet::new();
    let mut data = Vec::new();
    let mut refused: Option<Listing> = None;
    for answer in answers.into_iter().flatten() {
        match answer.status {
            200 => {
                let Some(models) = list(&answer.body) else { continue };
                listed = true;
                data.extend(models.into_iter().filter(|model| {
                    model["id"].as_str().is_some_and(|id| seen.insert(id.to_owned()))
                }));
            }
            // Who may not see the list is told so, rather than that there is none.
            status @ 400..500
                if refused.as_ref().is_none_or(|r| worth(status) > worth(r.status)) =>
            {
                refused = Some(Listing { status, body: answer.body });
            }
            _ => {}
        }
    }
    if listed {
        let body = json!({ "object": "list", "data": data }).to_string().into_bytes();
        return Ok(Listing { status: 200, body });
    }
    match refused {
        Some(refused) if serde_json::from_slice::<serde::de::IgnoredAny>(&refused.body).is_ok() => {
            Ok(refused)
        }
        Some(Listing { status, .. }) => Err(Failure {
            status,
            reason: "models_refused",
            message: format!("The inference servers answer {status} when asked for their models.")
                .into(),
            retry_after: None,
        }),
        None => Err(Failure {
            status: 503,
            reason: "models_unavailable",
            message: "No inference server tells its models at the moment.".into(),
            retry_after: Some(5),
        }),
    }
}

/// Which refusal is passed on, of several: what a client can do something about.
fn worth(status: u16) -> u8 {
    match status {
        401 => 3,
        403 => 2,
        429 => 1,
        _ => 0,
    }
}

fn list(body: &[u8]) -> Option<Vec<Value>> {
    match serde_json::from_slice::<Value>(body).ok()?["data"].take() {
        Value::Array(models) => Some(models),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Result<Answer, ProbeError> {
        Ok(Answer { status, body: body.into() })
    }

    fn combined(answers: Vec<Result<Answer, ProbeError>>) -> (u16, String) {
        match combine(answers) {
            Ok(listing) => (listing.status, String::from_utf8(listing.body).expect("text")),
            Err(failure) => (failure.status, failure.reason.into()),
        }
    }

    fn late() -> Result<Answer, ProbeError> {
        Err(ProbeError::Timeout(TIME_LIMIT))
    }

    #[test]
    fn lists_are_joined_and_whoever_does_not_answer_is_left_out() {
        let (status, body) = combined(vec![
            answer(200, r#"{"data":[{"id":"b","x":1},{"id":"a"}]}"#),
            late(),
            answer(401, "{}"),
            answer(200, r#"{"data":[{"id":"a"},{"id":"c"},{"no":"id"}]}"#),
            answer(500, "{}"),
        ]);
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let expected = json!({"object": "list", "data": [{"id":"b","x":1},{"id":"a"},{"id":"c"}]});
        assert_eq!((status, body), (200, expected));
        assert_eq!(combined(vec![answer(200, r#"{"data":[]}"#), late()]).0, 200);
    }

    #[test]
    fn a_refusal_is_passed_on_and_silence_is_no_empty_list() {
        let refused = r#"{"error":"no key"}"#;
        assert_eq!(combined(vec![answer(401, refused), late()]), (401, refused.into()));
        assert_eq!(combined(vec![answer(404, "{}"), answer(403, refused)]), (403, refused.into()));
        assert_eq!(combined(vec![answer(401, "no key")]), (401, "models_refused".into()));
        assert_eq!(combined(vec![answer(404, "{}"), late()]).0, 404);
        for answers in [vec![], vec![late(), late()], vec![answer(500, "{}")]] {
            assert_eq!(combined(answers), (503, "models_unavailable".into()));
        }
        assert_eq!(combined(vec![answer(200, "<html>")]), (503, "models_unavailable".into()));
    }
}
