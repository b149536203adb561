//! Where a request goes by the model that it asks for, in fleets of more than one.

use std::cell::RefCell;

use percent_encoding::percent_decode_str;

use super::destination::TARGET_VARIANT;
use crate::gateway::read::Request;
use crate::{
    fleet::{Endpoint, Fleet, Rule, Serves, Variant},
    http::Failure,
    prefix::{Api, Target},
};

/// Characters of a model's name that an error repeats.
const SHOWN: usize = 100;

/// Whether a request's model may make a difference. Never in a fleet of equals: its requests are not
/// looked at for their model.
pub(super) fn matters(fleet: &Fleet, target: &Target<'_>, endpoint: &Endpoint) -> bool {
    let differ = endpoint.has_many_models() || chooses_endpoint(fleet, target);
    // A component is no model that instances list.
    let named = target.model.is_some() || matches!(target.api, Api::Model | Api::Realtime);
    differ && target.component.is_none() && (target.api.names_model() || named)
}

/// Whether the model chooses the endpoint: on paths that name none.
pub(super) fn chooses_endpoint(fleet: &Fleet, target: &Target<'_>) -> bool {
    target.endpoint.is_none() && fleet.has_many_models()
}

/// Where a request for a model goes.
pub(super) struct Destination<'f> {
    pub(super) endpoint: &'f Endpoint,
    pub(super) variant: &'f Variant,
    /// Which of the variant's instances.
    pub(super) rule: Rule,
    /// How much of the model's name the rule is about, in bytes.
    pub(super) named: usize,
}

impl Destination<'_> {
    fn available(&self, model: &[u8]) -> bool {
        self.variant.available_for(Serves { model, rule: self.rule })
    }
}

/// The destination of a request for a model: instances that list it, or else those of which it is not
/// known. Of several endpoints, the first one in the configuration.
///
/// The endpoint and variant that were found before the model was known stay if they have it. Before a
/// request is refused, or sent to where nobody answers, all instances are asked anew.
///
/// # Errors
/// None of them may serve it.
pub(super) async fn find<'f>(
    fleet: &'f Fleet,
    target: &Target<'_>,
    (endpoint, chosen): (&'f Endpoint, &'f Variant),
    request: &Request,
    model: &[u8],
    rng: &RefCell<fastrand::Rng>,
) -> Result<Destination<'f>, Failure> {
    let variant = request.header(TARGET_VARIANT);
    let several = chooses_endpoint(fleet, target);
    let endpoints = if several { fleet.endpoints() } else { std::slice::from_ref(endpoint) };
    let look = |model| destination(endpoints, variant, chosen, model, &mut rng.borrow_mut());
    let listed = || {
        let listed = |model| look(model).filter(|found| found.rule.is_listed());
        // Not all servers that take `base:adapter` list their adapters.
        listed(model).or_else(|| listed(&model[..model.iter().rposition(|b| *b == b':')?]))
    };
    if let Some(found) = listed() {
        return Ok(found);
    }
    let pending = |endpoint: &Endpoint| endpoint.instances().any(|(_, i)| i.models_pending());
    match look(model) {
        Some(found) if found.available(model) && !endpoints.iter().any(pending) => {
            return Ok(found);
        }
        // What its body names is an adapter, which not all of its servers list.
        None if target.api == Api::Generate && target.model.is_none() => {
            return Ok(Destination { endpoint, variant: chosen, rule: Rule::Any, named: 0 });
        }
        _ => {}
    }
    match fleet.rounds().wait_for(listed).await {
        Some(found) => Ok(found),
        None => look(model).ok_or_else(|| unknown(model, !several)),
    }
}

fn destination<'f>(
    endpoints: &'f [Endpoint],
    asked: Option<&[u8]>,
    chosen: &Variant,
    model: &[u8],
    rng: &mut fastrand::Rng,
) -> Option<Destination<'f>> {
    let mut unlisted = None;
    for endpoint in endpoints {
        // An endpoint without a variant of the name that was asked for is none for this request.
        let found = endpoint.pick_variant_for(model, asked, Some(chosen), rng).ok().flatten();
        let Some((variant, rule)) = found else { continue };
        let found = Destination { endpoint, variant, rule, named: model.len() };
        if rule.is_listed() {
            return Some(found);
        }
        unlisted.get_or_insert(found);
    }
    unlisted
}

/// The model that a request's target names; empty if it names none.
pub(super) fn of_target(target: &Target<'_>, request: &Request) -> Vec<u8> {
    let name = match target.api {
        // Names may have slashes of their own.
        Api::Model => request.path().split_once("/models/").map(|(_, name)| name),
        Api::Realtime => {
            let query = request.query().and_then(|query| std::str::from_utf8(query).ok());
            query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("model=")))
        }
        _ => target.model,
    };
    name.map(|name| percent_decode_str(name.trim_end_matches('/')).collect()).unwrap_or_default()
}

/// The answer to a request for a model that no instance lists, of one endpoint or of all.
fn unknown(model: &[u8], one_endpoint: bool) -> Failure {
    let name: String = String::from_utf8_lossy(model).chars().take(SHOWN).collect();
    let whose = if one_endpoint { "of this endpoint" } else { "behind this gateway" };
    Failure {
        status: 404,
        reason: "model_not_found",
        message: format!(
            "The model `{name}` does not exist: no inference server {whose} lists it. GET /v1/models \
             says which there are."
        )
        .into(),
        retry_after: None,
    }
}
