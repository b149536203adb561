//! From an instance's response head to the end of its body.

use std::time::Instant;

use bytes::Bytes;

use super::{
    decide::Plan,
    failure::{self, Failed},
    record::Record,
    relay::Relay,
    worker::Worker,
};
use crate::{
    config::Config,
    engine::Copier,
    fleet::FailureKind,
    http::{self, RequestHead, ResponseHead, Version, rewrite::Downstream},
    metrics::{Direction, Outcome},
    prefix::Api,
    routing::{Choice, Ticket},
};

/// What happens to the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It reads its next request.
    KeepAlive,
    /// It is closed, after the client has had time to read the answer.
    Close,
    /// It is closed at once: the client left, or must see that its answer is incomplete.
    Drop,
    /// It is reset: a mere close would look like a complete answer.
    Reset,
}

/// An instance's answer has begun.
pub(super) struct Answer<'a> {
    pub(super) relay: Relay<'a>,
    pub(super) response: ResponseHead,
    pub(super) head: Bytes,
    pub(super) choice: Choice,
    /// Bytes of the request's body that were read for the decision.
    pub(super) read_ahead: u64,
}

/// Waits for the final response, passing interim ones on.
pub(super) async fn final_head(
    relay: &mut Relay<'_>,
    request: &RequestHead,
    limits: &http::Limits,
) -> Result<(ResponseHead, Bytes), Failed> {
    loop {
        let response = relay.response_head(request.method, limits).await?;
        let head = relay.take_head(&response);
        if !response.is_interim() {
            return Ok((response, head));
        }
        // The gateway has answered `Expect` itself; HTTP/1.0 knows no interim responses.
        if response.status != 100 && request.version == Version::Http11 {
            let mut out = Vec::with_capacity(head.len() + 64);
            let down = Downstream {
                version: request.version,
                keep_alive: true,
                dechunk: false,
                extra: &[],
            };
            http::rewrite::response(&mut out, &head, &response, &down);
            relay.write_client(&out).await?;
        }
    }
}

/// Relays an instance's answer to its end, and says what becomes of both connections.
pub(super) async fn finish(
    worker: &Worker,
    config: &Config,
    request: &RequestHead,
    api: Api,
    plan: &Plan<'_>,
    answer: Answer<'_>,
    record: &mut Record<'_>,
) -> Next {
    let Answer { mut relay, response, head, choice, read_ahead } = answer;
    let arrived = Instant::now();
    let chunked = !response.framing.is_length()
        && !response.framing.is_until_close()
        && !response.framing.is_done();
    let dechunk = chunked && request.version == Version::Http10;
    let delimited = !response.framing.is_until_close() && !dechunk;
    let keep_alive =
        request.keep_alive && delimited && relay.sending.is_complete() && !worker.is_draining();
    let instance = choice.ticket.instance().clone();
    let mut extra: [(&str, &[u8]); 3] = [("", &[]); 3];
    let mut count = 0;
    if config.response_headers {
        extra[0] = ("x-atalho-instance", instance.authority.as_bytes());
        extra[1] = ("x-atalho-reason", choice.reason.as_str().as_bytes());
        count = 2;
    }
    if api == Api::Invocations {
        extra[count] = ("x-amzn-invoked-production-variant", plan.variant.name.as_bytes());
        count += 1;
    }
    let mut out = Vec::with_capacity(head.len() + 256);
    let down = Downstream { version: request.version, keep_alive, dechunk, extra: &extra[..count] };
    http::rewrite::response(&mut out, &head, &response, &down);
    drop(head);
    let mut copier = Copier::new(response.framing, dechunk);
    copier.push(out.into());
    plan.endpoint.metrics.added(record.added + arrived.elapsed());
    let mut ticket: Option<Ticket> = Some(choice.ticket);
    let lengths = plan.variant.answers.of(api as usize);
    let result = relay.response_body(&mut copier, &mut ticket, lengths).await;
    lengths.note_due(relay.response_due);
    if !response.framing.is_length() && !dechunk {
        lengths.note(copier.reads_with(relay.steered_response));
    }
    drop(ticket);
    let userspace = &worker.metrics.userspace;
    let sent_on = relay.sending.copier.bytes() + read_ahead;
    userspace.carried(Direction::Request, sent_on);
    userspace.carried(Direction::Response, copier.bytes());
    record.request_bytes = sent_on + relay.steered_request;
    record.response_bytes = copier.bytes() + relay.steered_response;
    record.steered =
        (relay.steered_response > copier.bytes()).then(|| worker.metrics.kernel.name());
    let complete = relay.sending.is_complete();
    match result {
        Ok(()) => {
            record.outcome = Some(Outcome::Ok);
            if FailureKind::of_status(response.status).is_none() {
                instance.note_success();
            }
            let reusable = response.keep_alive
                && complete
                && !response.framing.is_until_close()
                && relay.upstream.input.is_empty();
            worker.keep(&instance, relay.upstream, reusable, config);
            if keep_alive { Next::KeepAlive } else { Next::Close }
        }
        Err(failed) => {
            let outcome = failure::after_response(&instance, failed);
            record.outcome = Some(outcome);
            if outcome == Outcome::ClientGone || delimited { Next::Drop } else { Next::Reset }
        }
    }
}
