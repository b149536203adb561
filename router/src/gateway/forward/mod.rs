//! The forward phase: an instance is chosen, and sent the request until its response begins.

mod attempt;
mod connect;
mod keeper;
mod resend;
mod shadow;

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use self::{attempt::Begun, connect::Failed};
use super::{
    decide::Plan,
    failure::{self, Stop},
    read::Request,
    relay::Relay,
    scope::Scope,
};
use crate::{
    fleet::{Blame, FailureKind, Instance, InstanceId},
    http::ResponseHead,
    metrics::Outcome,
    routing::{self, Choice, NoInstance, Reason},
};

/// Instances tried at most for one request, the first included.
const MAX_TRIES: usize = 3;

/// What the forward phase makes: an instance's response has begun.
pub(super) struct Forwarded<'f> {
    pub(super) plan: Plan<'f>,
    pub(super) choice: Choice,
    pub(super) relay: Relay<'f>,
    pub(super) response: ResponseHead,
    /// The bytes of the response's head.
    pub(super) head: Bytes,
    /// Bytes of the request's body that were read for the decision, and are the instance's now.
    pub(super) read_ahead: u64,
    /// Whose request it is, for what its end says of the instance.
    pub(super) blame: Blame,
}

/// Chooses instances until one answers.
pub(super) async fn forward<'f>(
    scope: &mut Scope<'f>,
    request: &mut Request,
    mut plan: Plan<'f>,
) -> Result<Forwarded<'f>, Stop> {
    let mut tried: Vec<InstanceId> = Vec::new();
    let blame = Blame { prefix: plan.key.map(|key| key.0), client: request.identity.client };
    let keeper = match plan.keeper.take() {
        Some(keeper) => Some((keeper, Reason::Session)),
        None => {
            keeper::find(scope, request, &mut plan).await.map(|keeper| (keeper, Reason::Stored))
        }
    };
    loop {
        let began = Instant::now();
        let choice = match &keeper {
            Some((keeper, reason)) => routing::choose_keeper(plan.variant, keeper, *reason),
            None => {
                let mut rng = scope.worker.rng.borrow_mut();
                routing::choose_of(plan.variant, plan.serves(), plan.key, &tried, &mut rng)
            }
        };
        let choice = match choice {
            Ok(choice) if plan.undecodable => {
                Choice { reason: choice.reason.of_undecodable(), ..choice }
            }
            Ok(choice) => choice,
            Err(none) => {
                let failure = match scope.record.unreachable.take() {
                    Some((outcome, own)) => {
                        scope.record.outcome = Some(outcome);
                        own.filter(|_| none == NoInstance::Exhausted)
                    }
                    None => None,
                };
                return Err(Stop::Reply(failure.unwrap_or_else(|| match none {
                    NoInstance::Exhausted => failure::unreachable(tried.len(), true),
                    none => failure::no_instance(none),
                })));
            }
        };
        if tried.is_empty() {
            scope.record.added = plan.spent + began.elapsed();
            plan.endpoint.metrics.decision(scope.record.added);
            if let Some(key) = plan.key {
                plan.variant.prefixes.note(key.0);
            }
        }
        scope.record.chosen(&choice);
        if tried.is_empty() {
            shadow::copy(scope, request, &plan);
        }
        let instance = choice.ticket.instance().clone();
        match attempt::attempt(scope, request, &mut plan, choice, blame).await {
            Ok(Begun { choice, relay, response, head }) => {
                // Nothing is sent again from here on: what the request holds in memory can go.
                request.release();
                let read_ahead = std::mem::take(&mut plan.body).len() as u64;
                return Ok(Forwarded { plan, choice, relay, response, head, read_ahead, blame });
            }
            Err(Failed::Stop(stop)) => return Err(stop),
            Err(Failed::Unreachable(outcome, own)) => {
                if outcome != Outcome::InstanceDown {
                    instance.note_failure(FailureKind::Connect, blame);
                }
                tried.push(instance.id);
                // Others would say that there is no such response.
                if tried.len() >= MAX_TRIES || keeper.is_some() {
                    scope.record.outcome = Some(outcome);
                    let left = |i: &Arc<Instance>| {
                        !tried.contains(&i.id) && !i.is_draining() && i.admitted(plan.serves())
                    };
                    let all = keeper.is_some() || !plan.variant.instances.iter().any(left);
                    let failure = own.unwrap_or_else(|| failure::unreachable(tried.len(), all));
                    return Err(Stop::Reply(failure));
                }
                scope.record.unreachable = Some((outcome, own));
                match outcome {
                    Outcome::InstanceDown => instance.metrics.pool.retried_down.inc(),
                    _ => instance.metrics.pool.retried_connect.inc(),
                }
            }
        }
    }
}
