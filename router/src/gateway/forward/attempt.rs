//! One instance is sent the request.

use std::time::Instant;

use bytes::Bytes;

use super::connect::{self, Failed};
use crate::gateway::{
    decide::Plan,
    failure::{self, Broken},
    read::{Identity, Request},
    relay::{Relay, Sending},
    scope::Scope,
};
use crate::{
    engine::{Copier, Expect, Policy},
    http::{self, Method, ResponseHead, Version, rewrite},
    metrics::Direction,
    net::Conn,
    routing::Choice,
};

/// An instance's response has begun.
pub(super) struct Begun<'f> {
    pub(super) choice: Choice,
    pub(super) relay: Relay<'f>,
    pub(super) response: ResponseHead,
    /// The bytes of its head.
    pub(super) head: Bytes,
}

/// Sends the request to the chosen instance, and waits for its response to begin.
pub(super) async fn attempt<'f>(
    scope: &mut Scope<'f>,
    request: &Request,
    plan: &mut Plan<'f>,
    choice: Choice,
) -> Result<Begun<'f>, Failed> {
    let config = scope.config();
    let instance = choice.ticket.instance().clone();
    let head_out = request_head(request, plan, &instance.authority);
    let mut fresh = false;
    loop {
        let (mut upstream, pooled) = connect::connect(scope, &instance, fresh).await?;
        expect_hand_over(scope, plan, &mut upstream);
        let mut copier = Copier::new(plan.framing, false);
        copier.push(head_out.clone());
        copier.push(plan.body.clone());
        let sent = Instant::now();
        let sending = Sending::new(copier);
        let mut relay = Relay::new(scope.worker, config, upstream, sending, plan.body.len());
        match final_head(&mut relay, scope.client, request, &config.head_limits()).await {
            Ok((response, head)) => {
                instance.metrics.responded(response.status, sent.elapsed());
                scope.record.responded(&response);
                failure::note_status(&instance, response.status);
                return Ok(Begun { choice, relay, response, head });
            }
            Err(Broken::Upstream(error))
                if pooled
                    && relay.upstream.input.is_empty()
                    && relay.sending.copier.bytes() + relay.steered_request == 0 =>
            {
                // The instance closed a connection that had been at rest; nothing of this
                // request can have been answered, and all of it is still here.
                tracing::debug!(instance = %instance.url, %error, "a pooled connection was stale");
                instance.metrics.pool.retried_stale.inc();
                fresh = true;
            }
            Err(broken) => {
                let carried = relay.sending.copier.bytes();
                scope.worker.metrics.userspace.carried(Direction::Request, carried);
                scope.record.request_bytes =
                    carried + relay.steered_request + plan.body.len() as u64;
                // With the whole request read, the client's connection is in order.
                scope.body_read |= relay.sending.copier.source_done();
                let (outcome, stop) = failure::before_response(&instance, broken, config);
                scope.record.outcome = Some(outcome);
                return Err(Failed::Stop(stop));
            }
        }
    }
}

/// The head that the instance gets.
fn request_head(request: &Request, plan: &Plan<'_>, authority: &str) -> Bytes {
    let mut out = Vec::with_capacity(request.raw().len() + 256);
    let target = plan.target.as_deref();
    let Identity { origin, ids, .. } = &request.identity;
    let upstream = rewrite::Upstream { authority, target, origin: *origin, ids };
    rewrite::request(&mut out, request.raw(), &request.head, &upstream);
    out.into()
}

/// Tells the kernel's programs of both connections, where a hand-over is to be expected.
fn expect_hand_over(scope: &mut Scope<'_>, plan: &Plan<'_>, upstream: &mut Conn) {
    let Some(carrier) = &scope.worker.carrier else { return };
    let answers = plan.variant.answers.of(plan.api as usize);
    match Policy::expect(scope.config(), plan.framing, answers) {
        Expect::HandOver => {
            carrier.register(scope.client, false);
            carrier.register(upstream, true);
        }
        Expect::Little => {}
        Expect::Nothing => {
            carrier.forget(scope.client);
            carrier.forget(upstream);
        }
    }
}

/// Waits for the final response, passing interim ones on.
async fn final_head(
    relay: &mut Relay<'_>,
    client: &mut Conn,
    request: &Request,
    limits: &http::Limits,
) -> Result<(ResponseHead, Bytes), Broken> {
    let (method, version): (Method, Version) = (request.head.method, request.head.version);
    loop {
        let response = relay.response_head(client, method, limits).await?;
        let head = relay.take_head(&response);
        if !response.is_interim() {
            return Ok((response, head));
        }
        // The gateway has answered `Expect` itself; HTTP/1.0 knows no interim responses.
        if response.status != 100 && version == Version::Http11 {
            let mut out = Vec::with_capacity(head.len() + 64);
            let down = rewrite::Downstream { version, keep_alive: true, ..Default::default() };
            rewrite::response(&mut out, &head, &response, &down);
            relay.write_client(client, &out).await?;
        }
    }
}
