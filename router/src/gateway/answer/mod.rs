//! The answer phase: from the head of a response to the end of its body.

mod models;
mod next;
mod own;
mod tunnel;

use std::time::Instant;

pub(super) use self::{
    models::models,
    next::Next,
    own::{failure, health, json, json_of, preflight},
    tunnel::tunnel,
};
use super::{
    failure::{Broken, after_response},
    forward::Forwarded,
    scope::Scope,
};
use crate::{
    engine::Copier,
    fleet::Verdict,
    http::{self, RequestHead, Version, ids::REQUEST_ID, rewrite::Downstream},
    metrics::{Direction, Outcome},
    prefix::Api,
    routing::Ticket,
};

/// Relays an instance's answer to its end, and says what becomes of both connections.
pub(super) async fn relay(
    scope: &mut Scope<'_>,
    request: &RequestHead,
    forwarded: Forwarded<'_>,
) -> Next {
    let Forwarded { plan, choice, mut relay, response, head, read_ahead, blame } = forwarded;
    let (worker, config) = (scope.worker, scope.config());
    let arrived = Instant::now();
    let chunked = !response.framing.is_length()
        && !response.framing.is_until_close()
        && !response.framing.is_done();
    let dechunk = chunked && request.version == Version::Http10;
    let delimited = !response.framing.is_until_close() && !dechunk;
    let keep_alive =
        request.keep_alive && delimited && relay.sending.is_complete() && !worker.is_draining();
    let instance = choice.ticket.instance().clone();
    let mut extra: [(&str, &[u8]); 4] = [("", &[]); 4];
    let ids = scope.record.identity.ids;
    extra[0] = (REQUEST_ID, ids.request.as_bytes());
    let mut count = 1;
    if config.response_headers {
        extra[1] = ("x-atalho-instance", instance.authority.as_bytes());
        extra[2] = ("x-atalho-reason", choice.reason.as_str().as_bytes());
        count = 3;
    }
    if plan.api == Api::Invocations {
        extra[count] = ("x-amzn-invoked-production-variant", plan.variant.name.as_bytes());
        count += 1;
    }
    let mut out = Vec::with_capacity(head.len() + 256);
    let down = Downstream {
        version: request.version,
        keep_alive,
        dechunk,
        extra: &extra[..count],
        cors: scope.cors,
    };
    http::rewrite::response(&mut out, &head, &response, &down);
    drop(head);
    let mut copier = Copier::new(response.framing, dechunk);
    copier.push(out.into());
    plan.endpoint.metrics.added(scope.record.added + arrived.elapsed());
    if plan.api == Api::Responses && response.status < 300 {
        relay.learn_id(&mut copier, instance.id);
    }
    if response.status == 404 && plan.api.has_prefix() && plan.variant.instances.len() > 1 {
        // It may no longer have the model, or another one may have it by now.
        scope.fleet.rounds().want();
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
    lengths.note_due(relay.response_due);
    if !response.framing.is_length() && !dechunk {
        lengths.note(copier.reads_with(relay.kernel_response_bytes));
    }
    drop(ticket);
    let userspace = &worker.metrics.userspace;
    let sent_on = relay.sending.copier.bytes() + read_ahead;
    userspace.carried(Direction::Request, sent_on);
    userspace.carried(Direction::Response, copier.bytes());
    let record = &mut scope.record;
    record.request_bytes = sent_on + relay.kernel_request_bytes;
    record.response_bytes = copier.bytes() + relay.kernel_response_bytes;
    record.kernel_engine =
        (relay.kernel_response_bytes > copier.bytes()).then(|| worker.metrics.kernel.name());
    let complete = relay.sending.is_complete();
    match result {
        Ok(()) => {
            record.outcome = Some(Outcome::Ok);
            if Verdict::of_status(response.status) == Verdict::Well {
                instance.note_success(blame.client);
            }
            let reusable = response.keep_alive
                && complete
                && !response.framing.is_until_close()
                && relay.upstream.input.is_empty();
            worker.keep(&instance, relay.upstream, reusable, config);
            if keep_alive { Next::KeepAlive } else { Next::Close }
        }
        Err(failed) => {
            if matches!(failed, Broken::ClientGone | Broken::FirstByteTimeout) && !relay.answering {
                instance.note_unanswered(relay.sending.elapsed(), blame);
            }
            let outcome = after_response(&instance, failed, blame);
            record.outcome = Some(outcome);
            if outcome == Outcome::ClientGone || delimited { Next::Drop } else { Next::Reset }
        }
    }
}
