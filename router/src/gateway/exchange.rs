//! One request and its response, phase by phase.
//!
//! read → admit → decide → forward → answer → record. Each phase takes what the one before it made.

use super::{
    admit,
    answer::{self, Next},
    context::WorkerContext,
    decide::{self, Decision},
    failure::Stop,
    forward,
    read::Request,
    record::Record,
    scope::Scope,
};
use crate::{
    engine::Conn,
    http::{Cors, upgrade::asks_for_websocket},
    metrics::Outcome,
};

/// Serves a request that has been read.
pub(super) async fn run(worker: &WorkerContext, client: &mut Conn, mut request: Request) -> Next {
    let fleet = worker.fleet();
    let head = request.head;
    let body_read = head.framing.is_done();
    let (target, error_form) = admit::target(fleet.config(), &request);
    let mut record = Record::new(worker, &request, fleet.config().access_log);
    record.api = target.api;
    let cors = Cors::of(&fleet.config().cors.origins, request.fields());
    let handshake = asks_for_websocket(&head, request.raw());
    let mut scope = Scope { worker, fleet: &fleet, client, record, error_form, cors, body_read };
    let next = match phases(&mut scope, &mut request).await {
        Ok(next) => next,
        Err(Stop::Reply(failure)) => answer::failure(&mut scope, &head, failure.into()).await,
        Err(Stop::Refuse(refusal)) => answer::failure(&mut scope, &head, refusal).await,
        Err(Stop::ClientGone) => {
            scope.record.outcome = Some(Outcome::ClientGone);
            Next::Drop
        }
    };
    scope.record.finish();
    match next {
        // What was sent ahead of the answer was for a WebSocket, and there is none: it is no request.
        Next::KeepAlive if handshake && !scope.client.input.is_empty() => Next::Close,
        next => next,
    }
}

/// From admission to the end of the answer.
async fn phases(scope: &mut Scope<'_>, request: &mut Request) -> Result<Next, Stop> {
    let head = request.head;
    let admitted = admit::admit(scope.config(), request).map_err(Stop::Refuse)?;
    match decide::decide(scope, request, &admitted).await? {
        Decision::Forward(plan) => {
            let forwarded = forward::forward(scope, request, plan).await?;
            Ok(match forwarded.response.status {
                101 => answer::tunnel(scope, &head, forwarded).await,
                _ => answer::relay(scope, &head, forwarded).await,
            })
        }
        Decision::Models(endpoint) => {
            let listing = answer::models(scope, request, endpoint).await.map_err(Stop::Reply)?;
            Ok(answer::json_of(scope, &head, listing.status, &listing.body).await)
        }
        Decision::Control => answer::control(scope, request).await,
        Decision::Health => answer::health(scope, &head).await.map_err(Stop::Reply),
        Decision::Preflight => answer::preflight(scope, request).await.map_err(Stop::Reply),
        Decision::Options => Ok(answer::json(scope, &head, b"{}").await),
    }
}
