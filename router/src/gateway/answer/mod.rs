//! The answer phase: from the head of a response to the end of its body.

mod control;
mod fields;
mod model_error;
mod models;
mod next;
mod own;
mod session;
mod stream;
mod tunnel;

use std::time::Instant;

pub(super) use self::{
    control::control,
    models::models,
    next::Next,
    own::{failure, health, json, json_of, preflight},
    tunnel::tunnel,
};
use self::{fields::Fields, model_error::model_error};
use super::{
    failure::{Broken, after_response},
    forward::Forwarded,
    relay::Relay,
    scope::Scope,
};
use crate::{
    api::{Api, Call},
    aws::event_stream,
    engine::{Copier, Events, Output},
    fleet::{Instance, Verdict},
    http::{
        RequestHead, ResponseHead, Version,
        rewrite::{self, Downstream},
    },
    metrics::{Direction, Outcome},
    routing::Ticket,
};

/// Relays an instance's answer to its end, and says what becomes of both connections.
pub(super) async fn relay(
    scope: &mut Scope<'_>,
    request: &RequestHead,
    forwarded: Forwarded<'_>,
) -> Next {
    let Forwarded { plan, response, head, choice, .. } = &forwarded;
    session::note(scope, plan, response, head, choice.ticket.instance().id);
    if response.status == 404 && plan.api.has_prefix() && plan.variant.instances.len() > 1 {
        // It may no longer have the model, or another one may have it by now.
        scope.fleet.rounds().want();
    }
    match plan.call {
        Some(_) if !(200..300).contains(&response.status) => {
            model_error(scope, request, forwarded).await
        }
        _ => pass_on(scope, request, forwarded).await,
    }
}

/// How the body of a response goes to the client.
fn body_form(request: &RequestHead, response: &ResponseHead, call: Option<Call>) -> rewrite::Body {
    let framing = response.framing;
    let chunked = !framing.is_length() && !framing.is_until_close() && !framing.is_done();
    match call {
        Some(Call::Stream) => rewrite::Body::Events,
        _ if chunked && request.version == Version::Http10 => rewrite::Body::Payload,
        _ => rewrite::Body::Verbatim,
    }
}

async fn pass_on(scope: &mut Scope<'_>, request: &RequestHead, forwarded: Forwarded<'_>) -> Next {
    let Forwarded { plan, choice, mut relay, response, head, read_ahead, blame } = forwarded;
    let (worker, config) = (scope.worker, scope.config());
    let arrived = Instant::now();
    let body = body_form(request, &response, plan.call);
    let http11 = request.version == Version::Http11;
    let (output, delimited) = match body {
        rewrite::Body::Verbatim => (Output::Verbatim, !response.framing.is_until_close()),
        rewrite::Body::Payload => (Output::Payload, false),
        rewrite::Body::Events => (Output::Events(Events::new(http11)), http11),
    };
    let keep_alive =
        request.keep_alive && delimited && relay.sending.is_complete() && !worker.is_draining();
    let instance = choice.ticket.instance().clone();
    let ids = scope.record.identity.ids;
    let mut extra = Fields::new(ids.request.as_bytes());
    extra.routed(config, &instance, &choice, &plan);
    if body == rewrite::Body::Events {
        extra.push("Content-Type", event_stream::MEDIA_TYPE.as_bytes());
        if let Some(kind) = response.header(&head, "content-type") {
            extra.push("X-Amzn-SageMaker-Content-Type", kind);
        }
    }
    let mut out = Vec::with_capacity(head.len() + 256);
    let down = Downstream {
        version: request.version,
        keep_alive,
        body,
        extra: extra.as_slice(),
        cors: scope.cors,
    };
    rewrite::response(&mut out, &head, &response, &down);
    drop(head);
    let mut copier = Copier::new(response.framing, output);
    copier.push(out.into());
    plan.endpoint.metrics.added(scope.record.added + arrived.elapsed());
    if plan.api == Api::Responses && response.status < 300 {
        relay.learn_id(&mut copier, instance.id);
    }
    let mut ticket: Option<Ticket> = Some(choice.ticket);
    let lengths = plan.variant.answers.of(plan.api as usize);
    let streamed = !response.framing.is_length();
    let began = |waited| {
        instance.metrics.body_began(streamed, waited);
        scope.record.body_began();
    };
    let result = relay
        .response_body(scope.client, &instance, &mut copier, &mut ticket, lengths, began)
        .await;
    if copier.output().is_verbatim() {
        lengths.note_due(relay.response_due);
        if !response.framing.is_length() {
            lengths.note(copier.reads_with(relay.kernel_response_bytes));
        }
    }
    drop(ticket);
    note_bytes(scope, &relay, &copier, read_ahead);
    match result {
        Ok(()) => {
            scope.record.outcome = Some(Outcome::Ok);
            if Verdict::of_status(response.status) == Verdict::Well {
                instance.note_success(blame.client);
            }
            keep(scope, &instance, relay, &response);
            if keep_alive { Next::KeepAlive } else { Next::Close }
        }
        Err(failed) => {
            if matches!(failed, Broken::ClientGone | Broken::FirstByteTimeout) && !relay.answering {
                instance.note_unanswered(relay.sending.elapsed(), blame);
            }
            let exception = stream::exception(&failed);
            let outcome = after_response(&instance, failed, blame);
            scope.record.outcome = Some(outcome);
            match exception {
                Some(exception) if body == rewrite::Body::Events => {
                    let told = stream::end(scope, &mut copier, &exception).await;
                    match () {
                        () if !told => Next::Drop,
                        () if keep_alive => Next::KeepAlive,
                        () => Next::Close,
                    }
                }
                _ if outcome == Outcome::ClientGone || delimited => Next::Drop,
                _ => Next::Reset,
            }
        }
    }
}

/// Notes what was carried of both bodies.
fn note_bytes(scope: &mut Scope<'_>, relay: &Relay<'_>, copier: &Copier, read_ahead: u64) {
    let metrics = &scope.worker.metrics;
    let sent_on = relay.sending.copier.bytes() + read_ahead;
    metrics.userspace.carried(Direction::Request, sent_on);
    metrics.userspace.carried(Direction::Response, copier.bytes());
    let record = &mut scope.record;
    record.request_bytes = sent_on + relay.kernel_request_bytes;
    record.response_bytes = copier.bytes() + relay.kernel_response_bytes;
    record.kernel_engine =
        (relay.kernel_response_bytes > copier.bytes()).then(|| metrics.kernel.name());
}

/// Keeps the instance's connection, behind a response that was read to its end.
fn keep(scope: &Scope<'_>, instance: &Instance, relay: Relay<'_>, response: &ResponseHead) {
    let reusable = response.keep_alive
        && relay.sending.is_complete()
        && !response.framing.is_until_close()
        && relay.upstream.input.is_empty();
    scope.worker.keep(instance, relay.upstream, reusable, scope.config());
}
