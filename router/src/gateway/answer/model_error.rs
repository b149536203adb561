//! An instance's error, as SageMaker's runtime API passes it on.

use super::{Next, fields::Fields, keep, note_bytes};
use crate::gateway::{
    failure::{Broken, after_response},
    forward::Forwarded,
    scope::Scope,
};
use crate::{
    engine::{Copier, Held, Output},
    fleet::Verdict,
    http::{
        ModelError, Reply, RequestHead, Version,
        reply::{self, MODEL_ERROR, MODEL_MESSAGE},
    },
    metrics::Outcome,
    routing::Ticket,
};

/// Bytes of an error's body that are waited for. Behind them the connection is of no further use.
const MOST_BYTES: u64 = 64 * 1024;
/// Bytes that so many characters may take.
const KEPT: usize = 4 * MODEL_MESSAGE;

/// Answers with what the instance's response says: its status, and the start of its body.
pub(super) async fn model_error(
    scope: &mut Scope<'_>,
    request: &RequestHead,
    forwarded: Forwarded<'_>,
) -> Next {
    let Forwarded { plan, choice, mut relay, response, blame, read_ahead, .. } = forwarded;
    let instance = choice.ticket.instance().clone();
    let ids = scope.record.identity.ids;
    let mut fields = Fields::new(ids.request.as_bytes());
    fields.routed(scope.config(), &instance, &choice, &plan);
    let mut copier = Copier::new(response.framing, Output::Held(Held::new(KEPT)));
    copier.limit(MOST_BYTES);
    plan.endpoint.metrics.added(scope.record.added);
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
    drop(ticket);
    note_bytes(scope, &relay, &copier, read_ahead);
    let complete = relay.sending.is_complete();
    scope.record.outcome = Some(match result {
        Ok(()) => {
            if Verdict::of_status(response.status) == Verdict::Well {
                instance.note_success(blame.client);
            }
            keep(scope, &instance, relay, &response);
            Outcome::Ok
        }
        // Enough of it has come.
        Err(Broken::BadResponse(_)) if copier.bytes() > MOST_BYTES => Outcome::Ok,
        Err(broken) => after_response(&instance, broken, blame),
    });
    if scope.record.outcome == Some(Outcome::ClientGone) {
        return Next::Drop;
    }
    let message = match copier.output() {
        Output::Held(held) => String::from_utf8_lossy(held.bytes()),
        _ => "".into(),
    };
    let keep_alive = request.keep_alive
        && request.version == Version::Http11
        && complete
        && !scope.worker.is_draining();
    let reply = Reply { head_only: false, keep_alive, fields: fields.as_slice(), cors: scope.cors };
    let mut out = Vec::with_capacity(message.len() + 512);
    let error = ModelError { status: response.status, message: &message };
    reply::model_error(&mut out, &error, &reply);
    scope.record.status = MODEL_ERROR;
    match scope.write_client(&out).await {
        true if keep_alive => Next::KeepAlive,
        true => Next::Close,
        false => Next::Drop,
    }
}
