//! The answer that makes a connection a WebSocket, and what follows it.

use super::next::Next;
use crate::gateway::{failure::after_response, forward::Forwarded, relay::Tunnel, scope::Scope};
use crate::{
    http::{RequestHead, ids::REQUEST_ID, rewrite},
    metrics::{Direction, Outcome},
};

/// Tells the client that its connection is a WebSocket now, and carries its bytes until both sides have
/// closed. The request is in flight for as long.
pub(in crate::gateway) async fn tunnel(
    scope: &mut Scope<'_>,
    request: &RequestHead,
    forwarded: Forwarded<'_>,
) -> Next {
    let Forwarded { plan, choice, mut relay, response, head, blame, .. } = forwarded;
    let worker = scope.worker;
    let instance = choice.ticket.instance().clone();
    let ids = scope.record.identity.ids;
    let extra = [
        (REQUEST_ID, ids.request.as_bytes()),
        ("x-atalho-instance", instance.name().as_bytes()),
        ("x-atalho-reason", choice.reason.as_str().as_bytes()),
    ];
    let extra = &extra[..if scope.config().response_headers { 3 } else { 1 }];
    let mut out = Vec::with_capacity(head.len() + 256);
    let version = request.version;
    let body = rewrite::Body::Verbatim;
    let down = rewrite::Downstream { version, keep_alive: true, body, extra, cors: scope.cors };
    rewrite::response(&mut out, &head, &response, &down);
    drop(head);
    plan.endpoint.metrics.added(scope.record.added);
    instance.note_answering();
    let mut tunnel = Tunnel::new(out.into());
    // At once, for a tunnel may be cut at the end of the drain time.
    let moved = |tunnel: &Tunnel| {
        scope.record.request_bytes = tunnel.request.bytes();
        scope.record.response_bytes = tunnel.response.bytes();
    };
    let result = relay.tunnel(scope.client, &instance, &mut tunnel, moved).await;
    drop(choice);
    worker.metrics.userspace.carried(Direction::Request, tunnel.request.bytes());
    worker.metrics.userspace.carried(Direction::Response, tunnel.response.bytes());
    match result {
        Ok(()) => {
            scope.record.outcome = Some(Outcome::Ok);
            instance.note_success(blame.client);
            Next::Close
        }
        Err(broken) => {
            let outcome = after_response(&instance, broken, blame);
            scope.record.outcome = Some(outcome);
            // The peers of both sides have not closed, so it must not look as if they had.
            relay.upstream.stream.abort_on_close();
            Next::Reset
        }
    }
}
