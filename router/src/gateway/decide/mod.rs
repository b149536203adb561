//! The decide phase: which fleet serves a request, and the key of its prefix.

mod body;
mod destination;
mod model;
mod plan;
mod session;

use std::time::Duration;

use bytes::Bytes;

pub(super) use self::plan::Plan;
use self::session::Session;
use super::{
    admit::{Admitted, Asked},
    failure::Stop,
    read::Request,
    scope::Scope,
};
use crate::{
    api::stored,
    config::Strategy,
    fleet::{Rule, Variant},
    prefix::{Api, Target},
};

/// What the decide phase makes: who answers.
pub(super) enum Decision<'f> {
    /// The gateway, about itself.
    Options,
    /// The gateway, about which web pages may send what.
    Preflight,
    /// The gateway, about whether it can serve.
    Health,
    /// The control plane.
    Control,
    /// The gateway, from what the instances of the endpoint of this name say, or of all.
    Models(Option<&'f str>),
    /// An instance.
    Forward(Plan<'f>),
}

/// Reads as much of the body as the choice needs, and decides.
pub(super) async fn decide<'f>(
    scope: &mut Scope<'f>,
    request: &Request,
    admitted: &Admitted<'_>,
) -> Result<Decision<'f>, Stop> {
    let Admitted { asked, tenant } = admitted;
    let target = match asked {
        Asked::Options => return Ok(Decision::Options),
        Asked::Preflight => return Ok(Decision::Preflight),
        Asked::Health => return Ok(Decision::Health),
        Asked::Control => return Ok(Decision::Control),
        Asked::Instances(target) => target,
    };
    let (endpoint, variant) = {
        let mut rng = scope.worker.rng.borrow_mut();
        destination::find(scope.fleet, target, request, &mut rng).map_err(Stop::Reply)?
    };
    scope.record.endpoint = Some(endpoint);
    let session = session::find(scope, request, target, endpoint).map_err(Stop::Reply)?;
    let of_session = !matches!(session, Session::None);
    let (variant, keeper) = match session {
        Session::At(variant, keeper) => (variant, Some(keeper)),
        Session::None | Session::New => (variant, None),
    };
    scope.record.variant = Some(variant);
    if target.api == Api::Models {
        let all = model::chooses_endpoint(scope.fleet, target);
        return Ok(Decision::Models((!all).then_some(endpoint.name.as_str())));
    }
    let mut plan = Plan {
        api: target.api,
        call: target.call,
        endpoint,
        variant,
        any_endpoint: model::chooses_endpoint(scope.fleet, target),
        key: None,
        undecodable: false,
        shortfall: None,
        session: of_session,
        keeper,
        stored: stored_response(target, request),
        model: Vec::new(),
        rule: Rule::Any,
        component: target.component.map(str::to_owned),
        target: rewritten_target(target, request),
        body: Bytes::new(),
        framing: request.head.framing,
        spent: Duration::ZERO,
    };
    if request.head.expect_continue && scope.client.input.is_empty() && !plan.framing.is_done() {
        body::ask_for_it(scope).await?;
    }
    // A session is where it is.
    let free = plan.keeper.is_none();
    let by_model = free && model::matters(scope.fleet, target, endpoint);
    let by_prefix = free && by_prefix(target, variant);
    // Any instance of the endpoint may keep the response that a request follows.
    let several = plan.any_endpoint || endpoint.instances().nth(1).is_some();
    let follows = target.api == Api::Responses && several;
    if by_prefix || follows {
        let wanted = body::Wanted { key: by_prefix, model: by_model };
        body::scan(scope, request, &mut plan, target, *tenant, wanted).await?;
    } else if by_model && target.api.names_model() && target.model.is_none() {
        body::find_model(scope, request, &mut plan, target, *tenant).await?;
    } else {
        if by_model {
            plan.model = model::of_target(target, request);
        }
        body::take_at_hand(scope.client, &mut plan)?;
        body::note_asked(scope, request, &plan, target, *tenant);
    }
    if by_model && !plan.model.is_empty() {
        follow_model(scope, request, &mut plan, admitted).await?;
    }
    if plan.call.is_some() {
        plan.target = Some(with_query(&plan.variant.invocations_path, request));
    }
    if let Some(shortfall) = plan.shortfall {
        let (endpoint, why) = (plan.endpoint.name.as_str(), shortfall.as_str());
        tracing::debug!(endpoint, why, "decided with less than the body might tell");
        plan.endpoint.metrics.shortfall(why);
    }
    scope.body_read = plan.framing.is_done();
    Ok(Decision::Forward(plan))
}

/// The stored response that the path names, such as `/v1/responses/{id}/cancel`.
fn stored_response(target: &Target<'_>, request: &Request) -> Option<String> {
    if target.api != Api::StoredResponse {
        return None;
    }
    stored::id_of(target.path.unwrap_or(request.path())).map(str::to_owned)
}

/// Whether the start of the prompt decides.
fn by_prefix(target: &Target<'_>, variant: &Variant) -> bool {
    variant.routing.strategy == Strategy::PrefixAware
        && target.api.has_prefix()
        && variant.instances.len() > 1
}

/// Sends a request where its model is served.
async fn follow_model<'f>(
    scope: &mut Scope<'f>,
    request: &Request,
    plan: &mut Plan<'f>,
    Admitted { asked, tenant }: &Admitted<'_>,
) -> Result<(), Stop> {
    let Asked::Instances(target) = asked else { return Ok(()) };
    let (fleet, rng) = (scope.fleet, &scope.worker.rng);
    let chosen = (plan.endpoint, plan.variant);
    let model::Destination { endpoint, variant, rule, named } =
        model::find(fleet, target, chosen, request, &plan.model, rng).await.map_err(Stop::Reply)?;
    plan.rule = rule;
    plan.model.truncate(named);
    if std::ptr::eq(variant, plan.variant) {
        return Ok(());
    }
    (plan.endpoint, plan.variant, plan.key) = (endpoint, variant, None);
    scope.record.endpoint = Some(endpoint);
    scope.record.variant = Some(variant);
    if by_prefix(target, variant) {
        let wanted = body::Wanted { key: true, model: false };
        body::scan(scope, request, plan, target, *tenant, wanted).await?;
    }
    Ok(())
}

/// The target to send on when the API's path at the instance is another; the query stays.
fn rewritten_target(target: &Target<'_>, request: &Request) -> Option<Vec<u8>> {
    Some(with_query(target.path?, request))
}

/// A path, with the request's query.
pub(super) fn with_query(path: &str, request: &Request) -> Vec<u8> {
    let mut target = path.as_bytes().to_vec();
    if let Some(query) = request.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}
