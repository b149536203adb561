//! One instance is sent the request.

use bytes::Bytes;

use super::{
    connect::{self, Failed},
    resend::{Evidence, Resend, is_idempotent},
};
use crate::gateway::{
    decide::{Plan, with_query},
    failure::{self, Broken},
    read::{Identity, Request},
    relay::{Relay, Sending},
    scope::Scope,
};
use crate::{
    api::{Api, Call},
    aws::runtime,
    engine::{Conn, Copier, Expect, Output, Policy},
    fleet::{Blame, Instance},
    http::{self, Failure, Method, ResponseHead, Version, rewrite},
    metrics::{Direction, Outcome},
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
    blame: Blame,
) -> Result<Begun<'f>, Failed> {
    let config = scope.config();
    let instance = choice.ticket.instance().clone();
    let prefixed = instance.path_prefix.as_deref().map(|prefix| {
        let own = plan.target.clone().unwrap_or_else(|| with_query(request.path(), request));
        [prefix.as_bytes(), &own].concat()
    });
    let target = prefixed.as_deref().or(plan.target.as_deref());
    let head_out = request_head(request, plan, target, &instance.authority);
    let mut fresh = false;
    loop {
        let (mut upstream, pooled) = connect::connect(scope, &instance, fresh).await?;
        expect_hand_over(scope, plan, &mut upstream);
        let mut copier = Copier::new(plan.framing, Output::Verbatim);
        if pooled {
            copier.keep(usize::MAX);
        }
        copier.push(head_out.clone());
        copier.push(plan.body.clone());
        let sending = Sending::new(copier);
        let body_limit = config.body_limit(plan.call).saturating_sub(plan.body.len() as u64);
        let mut relay = Relay::new(scope.worker, config, &instance, upstream, sending, body_limit);
        relay.upgrade = plan.api == Api::Realtime;
        match final_head(&mut relay, scope.client, &instance, request, &config.head_limits()).await
        {
            Ok((response, head)) => {
                instance.metrics.responded(response.status, relay.sending.elapsed());
                scope.record.responded(&response);
                relay.sending.copier.forget();
                failure::note_response(&instance, &response, &head, blame);
                return Ok(Begun { choice, relay, response, head });
            }
            Err(Broken::Upstream(error)) => {
                let evidence = Evidence::of(request, &relay, pooled);
                tracing::debug!(instance = %instance.url, %error, ?evidence, "no response");
                match evidence.resend() {
                    Resend::Anew => {
                        instance.metrics.pool.retried_stale.inc();
                        take_back(plan, &relay.sending.copier);
                        fresh = true;
                    }
                    Resend::Elsewhere => {
                        take_back(plan, &relay.sending.copier);
                        tracing::warn!(instance = %instance.url, %error, "closed without reading");
                        return Err(Failed::Unreachable(Outcome::ConnectError, Some(untouched())));
                    }
                    Resend::Never => {
                        return Err(stop(
                            scope,
                            plan,
                            &relay,
                            &instance,
                            Broken::Upstream(error),
                            blame,
                        ));
                    }
                }
            }
            Err(Broken::InstanceDown)
                if (config.health.resend || is_idempotent(request))
                    && !relay.is_answered()
                    && relay.holds_request() =>
            {
                take_back(plan, &relay.sending.copier);
                return Err(Failed::Unreachable(
                    Outcome::InstanceDown,
                    Some(failure::instance_down()),
                ));
            }
            Err(broken) => {
                if matches!(broken, Broken::ClientGone | Broken::FirstByteTimeout)
                    && relay.sending.is_complete()
                {
                    instance.note_unanswered(relay.sending.elapsed(), blame);
                }
                return Err(stop(scope, plan, &relay, &instance, broken, blame));
            }
        }
    }
}

/// Makes what was read of the body a part of what will be sent.
fn take_back(plan: &mut Plan<'_>, sent: &Copier) {
    plan.framing = sent.framing();
    if let Some(kept) = sent.kept().filter(|kept| !kept.is_empty()) {
        plan.body = [&plan.body, kept].concat().into();
    }
}

/// The end of the exchange: notes what was sent, and says what the client is told.
fn stop(
    scope: &mut Scope<'_>,
    plan: &Plan<'_>,
    relay: &Relay<'_>,
    instance: &Instance,
    broken: Broken,
    blame: Blame,
) -> Failed {
    let sent = &relay.sending.copier;
    scope.worker.metrics.userspace.carried(Direction::Request, sent.bytes());
    scope.record.request_bytes = sent.bytes() + relay.kernel_request_bytes + plan.body.len() as u64;
    // With the whole request read, the client's connection is in order.
    scope.body_read |= sent.source_done();
    let (outcome, stop) =
        failure::before_response(instance, broken, blame, scope.config(), plan.call);
    scope.record.outcome = Some(outcome);
    Failed::Stop(stop)
}

/// The answer when the last instance tried closed its connections without reading from them.
fn untouched() -> Failure {
    Failure {
        status: 502,
        reason: "upstream_closed",
        message: "The inference server chosen for this request closed the connection without \
                  reading it. The gateway's log names it."
            .into(),
        retry_after: None,
    }
}

/// The head that the instance gets.
pub(super) fn request_head(
    request: &Request,
    plan: &Plan<'_>,
    target: Option<&[u8]>,
    authority: &str,
) -> Bytes {
    let mut out = Vec::with_capacity(request.raw().len() + 256);
    let Identity { origin, ids, .. } = &request.identity;
    let upgrade = plan.api == Api::Realtime;
    let mut instead = Vec::new();
    if let Some(component) = &plan.component {
        instead.push((runtime::COMPONENT, Some(component.as_bytes())));
        if plan.variant.is_adapter {
            instead.push((runtime::ADAPTER, Some(component.as_bytes())));
        }
    }
    if plan.call == Some(Call::Stream) {
        // What it accepts is an event stream, which the gateway makes. The parts of one are in no coding.
        instead.push(("accept", request.header(runtime::STREAM_ACCEPT)));
        instead.push(("accept-encoding", None));
    }
    let instead = &instead;
    let upstream = rewrite::Upstream { authority, target, origin: *origin, instead, upgrade, ids };
    rewrite::request(&mut out, request.raw(), &request.head, &upstream);
    out.into()
}

/// Tells the kernel's programs of both connections, where a hand-over is to be expected.
fn expect_hand_over(scope: &mut Scope<'_>, plan: &Plan<'_>, upstream: &mut Conn) {
    let Some(engine) = &scope.worker.engine else { return };
    // WebSockets are relayed in user space.
    if plan.api == Api::Realtime {
        engine.forget(scope.client);
        engine.forget(upstream);
        return;
    }
    // An event stream is made in user space.
    if plan.call == Some(Call::Stream) && plan.framing.is_done() {
        return;
    }
    let answers = plan.variant.answers.of(plan.api as usize);
    match Policy::expect(scope.config(), plan.framing, answers) {
        Expect::HandOver => {
            engine.register(scope.client, false);
            engine.register(upstream, true);
        }
        Expect::Little => {}
        Expect::Nothing => {
            engine.forget(scope.client);
            engine.forget(upstream);
        }
    }
}

/// Waits for the final response, passing interim ones on.
async fn final_head(
    relay: &mut Relay<'_>,
    client: &mut Conn,
    instance: &Instance,
    request: &Request,
    limits: &http::Limits,
) -> Result<(ResponseHead, Bytes), Broken> {
    let (method, version): (Method, Version) = (request.head.method, request.head.version);
    loop {
        let response = relay.response_head(client, instance, method, limits).await?;
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
