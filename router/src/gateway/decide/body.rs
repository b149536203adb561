//! As much of a request's body as the decision needs.

use std::{future::poll_fn, time::Instant};

use bytes::BytesMut;
use router_ebpf::framing::FramingError;

use super::plan::Plan;
use crate::gateway::{
    failure::{Stop, stalled, too_large},
    read::Request,
    scope::Scope,
};
use crate::{
    engine::Conn,
    engine::userspace::advance_payload,
    http::{self, Failure},
    net::READ_BUFFER_BYTES,
    prefix::{self, Decider, KeyParts, Known, Target},
};

/// What is wanted of a body besides the response that it follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The key of its prefix.
    pub(super) key: bool,
    /// Its model.
    pub(super) model: bool,
}

/// Reads the body as it arrives until enough is known, and notes in the plan what is wanted of it. What
/// was read of it before is looked at again.
pub(super) async fn scan(
    scope: &mut Scope<'_>,
    request: &Request,
    plan: &mut Plan<'_>,
    target: &Target<'_>,
    tenant: Option<&str>,
    wanted: Wanted,
) -> Result<(), Stop> {
    let config = scope.config();
    let (limit, skip) = (config.limits.decision_bytes, &config.prefix.skip_lines);
    let known = Known::new(target, tenant, plan.variant.routing.prefix_length, limit, skip);
    let mut decider = Decider::new(known, request.head.headers(request.raw()));
    feed(scope, request, &mut decider, plan).await?;
    let began = Instant::now();
    let found = decider.finish();
    plan.shortfall = found.shortfall;
    let parts = KeyParts::of(
        &plan.endpoint.name,
        &plan.variant.name,
        tenant.map(str::as_bytes),
        target.named_model(),
        &found.prefix,
    );
    scope.record.asks_for(parts.model, parts.tenant);
    if wanted.model {
        plan.model = parts.model.unwrap_or_default().to_vec();
    }
    if wanted.key {
        plan.undecodable = !found.has_prefix;
        plan.key = found.has_prefix.then(|| prefix::key(&parts));
    }
    plan.stored = found.prefix.previous.and_then(|id| String::from_utf8(id).ok());
    plan.spent += began.elapsed();
    Ok(())
}

/// Reads the body as it arrives until its model is known.
pub(super) async fn find_model(
    scope: &mut Scope<'_>,
    request: &Request,
    plan: &mut Plan<'_>,
    target: &Target<'_>,
) -> Result<(), Stop> {
    let config = scope.config();
    let (decision_bytes, skip) = (config.limits.decision_bytes, &config.prefix.skip_lines);
    // Nothing else matters.
    let known = Known { tenant: true, ..Known::new(target, None, 1, decision_bytes, skip) };
    let mut decider = Decider::new(known, request.head.headers(request.raw()));
    feed(scope, request, &mut decider, plan).await?;
    let found = decider.finish();
    plan.shortfall = found.shortfall;
    plan.model = found.prefix.model.unwrap_or_default();
    Ok(())
}

async fn feed(
    scope: &mut Scope<'_>,
    request: &Request,
    decider: &mut Decider,
    plan: &mut Plan<'_>,
) -> Result<(), Stop> {
    let config = scope.config();
    let client = &mut *scope.client;
    let read = std::mem::take(&mut plan.body);
    let mut enough = false;
    if !read.is_empty() {
        let mut framing = request.head.framing;
        advance_payload(&mut framing, &read, |payload| enough |= decider.feed(payload))
            .map_err(malformed)?;
    }
    let mut body = read.try_into_mut().unwrap_or_else(|read| BytesMut::from(&*read));
    loop {
        let began = Instant::now();
        let used = advance_payload(&mut plan.framing, &client.input, |payload| {
            enough |= decider.feed(payload);
        })
        .map_err(malformed)?;
        plan.spent += began.elapsed();
        body.unsplit(client.input.split_to(used));
        if body.len() as u64 > config.limits.body_bytes {
            return Err(Stop::Reply(too_large(config)));
        }
        if enough || plan.framing.is_done() {
            plan.body = body.freeze();
            return Ok(());
        }
        let fill = poll_fn(|cx| client.poll_fill(cx, READ_BUFFER_BYTES));
        match tokio::time::timeout(config.timeouts.body_idle, fill).await {
            Ok(Ok(0) | Err(_)) => return Err(Stop::ClientGone),
            Ok(Ok(_)) => {}
            Err(_) => return Err(Stop::Reply(stalled())),
        }
    }
}

/// Takes what has arrived of the body with the head. Most bodies are whole then, and a request that
/// is all here can be sent again when its pooled connection turns out to be dead.
pub(super) fn take_at_hand(client: &mut Conn, plan: &mut Plan<'_>) -> Result<(), Stop> {
    let used = plan.framing.advance(&client.input).map_err(malformed)?;
    plan.body = client.input.split_to(used).freeze();
    client.release_input();
    Ok(())
}

/// Tells a client that waits for it to send its body (RFC 9110 section 10.1.1).
pub(super) async fn ask_for_it(scope: &mut Scope<'_>) -> Result<(), Stop> {
    match scope.write_client(http::reply::CONTINUE).await {
        true => Ok(()),
        false => Err(Stop::ClientGone),
    }
}

/// The answer to bytes that are no chunked body.
fn malformed(error: FramingError) -> Stop {
    Stop::Reply(Failure {
        status: 400,
        reason: "malformed_body",
        message: format!("The request's chunked body is malformed: {error}.").into(),
        retry_after: None,
    })
}
