//! The decide phase: which fleet serves a request, and the key of its prefix.

mod body;
mod destination;
mod plan;

use std::time::Duration;

use bytes::Bytes;

pub(super) use self::plan::Plan;
use super::{
    admit::{Admitted, Asked},
    failure::Stop,
    read::Request,
    scope::Scope,
};
use crate::{
    api::stored,
    config::Strategy,
    fleet::Endpoint,
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
    /// The gateway, from what this endpoint's instances say.
    Models(&'f Endpoint),
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
        Asked::Instances(target) => target,
    };
    let (endpoint, variant) = {
        let mut rng = scope.worker.rng.borrow_mut();
        destination::find(scope.fleet, target, request, &mut rng).map_err(Stop::Reply)?
    };
    scope.record.endpoint = Some(endpoint);
    scope.record.variant = Some(variant);
    if target.api == Api::Models {
        return Ok(Decision::Models(endpoint));
    }
    let mut plan = Plan {
        api: target.api,
        endpoint,
        variant,
        key: None,
        undecodable: false,
        stored: stored_response(target, request),
        target: rewritten_target(target, request),
        body: Bytes::new(),
        framing: request.head.framing,
        spent: Duration::ZERO,
    };
    if request.head.expect_continue && scope.client.input.is_empty() && !plan.framing.is_done() {
        body::ask_for_it(scope).await?;
    }
    let by_prefix = variant.routing.strategy == Strategy::PrefixAware
        && target.api.has_prefix()
        && variant.instances.len() > 1;
    // Any instance of the endpoint may keep the response that a request follows.
    let follows = target.api == Api::Responses && endpoint.instances().nth(1).is_some();
    if by_prefix || follows {
        body::scan(scope, request, &mut plan, target, *tenant, by_prefix).await?;
    } else {
        let named = target.named_model().map(str::as_bytes);
        scope.record.asks_for(named, tenant.map(str::as_bytes));
        body::take_at_hand(scope.client, &mut plan)?;
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

/// The target to send on when the API's path at the instance is another; the query stays.
fn rewritten_target(target: &Target<'_>, request: &Request) -> Option<Vec<u8>> {
    let mut rewritten = target.path?.as_bytes().to_vec();
    if let Some(query) = request.query() {
        rewritten.push(b'?');
        rewritten.extend_from_slice(query);
    }
    Some(rewritten)
}
