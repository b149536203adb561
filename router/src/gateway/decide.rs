//! Which fleet a request is for, and the key of its prefix.

use std::{
    future::poll_fn,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use router_ebpf::framing::{Framing, FramingError};

use super::failure::{Stop, stalled, too_large};
use crate::{
    config::{Config, Strategy},
    engine::userspace::advance_payload,
    fleet::{Endpoint, Fleet, Variant},
    http::{self, Failure, RequestHead},
    net::{Conn, SCRATCH},
    prefix::{self, KeyParts, PrefixKey, Scanner, Target, tenant},
};

/// The header that asks for a variant by name.
const TARGET_VARIANT: &str = "x-amzn-sagemaker-target-variant";

/// What is decided about a request before an instance is chosen.
pub(super) struct Plan<'f> {
    pub(super) endpoint: &'f Endpoint,
    pub(super) variant: &'f Variant,
    /// `None` where no prefix decides: another strategy, no choice to make, no prompt.
    pub(super) key: Option<PrefixKey>,
    /// The target to send instead of the client's.
    pub(super) target: Option<Vec<u8>>,
    /// The body as far as it was read, framing included.
    pub(super) body: Bytes,
    /// Where the body stands behind that.
    pub(super) framing: Framing,
    /// Time spent on deciding, without waiting for the client.
    pub(super) spent: Duration,
}

/// The endpoint and variant that a request asks for.
pub(super) fn fleet_for<'f>(
    fleet: &'f Fleet,
    target: &Target<'_>,
    head: &RequestHead,
    raw: &[u8],
    rng: &mut fastrand::Rng,
) -> Result<(&'f Endpoint, &'f Variant), Failure> {
    let endpoint = match target.endpoint {
        None => fleet.default_endpoint(),
        Some(name) => fleet.endpoint(name),
    };
    let Some(endpoint) = endpoint else {
        return Err(Failure {
            status: 404,
            reason: "unknown_endpoint",
            message: "No endpoint of that name is configured on this gateway.".into(),
            retry_after: None,
        });
    };
    let asked = head.header(raw, TARGET_VARIANT);
    let variant = endpoint.pick_variant(asked, rng).map_err(|error| Failure {
        status: 400,
        reason: "unknown_variant",
        message: error.to_string().into(),
        retry_after: None,
    })?;
    Ok((endpoint, variant))
}

/// Reads as much of the body as the choice needs, and decides.
pub(super) async fn decide<'f>(
    config: &Config,
    client: &mut Conn,
    head: &RequestHead,
    raw: &[u8],
    target: &Target<'_>,
    (endpoint, variant): (&'f Endpoint, &'f Variant),
) -> Result<Plan<'f>, Stop> {
    let header_tenant = match head.header(raw, tenant::HEADER) {
        Some(value) => Some(tenant::validate(value)?),
        None => None,
    };
    let mut plan = Plan {
        endpoint,
        variant,
        key: None,
        target: rewritten_target(target, head, raw),
        body: Bytes::new(),
        framing: head.framing,
        spent: Duration::ZERO,
    };
    let routing = &plan.variant.routing;
    let by_prefix = routing.strategy == Strategy::PrefixAware
        && target.api.has_prefix()
        && plan.variant.instances.len() > 1;
    if head.expect_continue && client.input.is_empty() && !plan.framing.is_done() {
        write_continue(config, client).await?;
    }
    if !by_prefix {
        take_at_hand(client, &mut plan)?;
        return Ok(plan);
    }
    let mut scanner = Scanner::new(target.api, routing.prefix_length);
    scanner.ignore(target.component.is_some(), header_tenant.is_some());
    scan(config, client, &mut scanner, &mut plan).await?;
    let began = Instant::now();
    let prefix = scanner.finish();
    plan.key = Some(prefix::key(&KeyParts::of(
        &plan.endpoint.name,
        &plan.variant.name,
        header_tenant.map(str::as_bytes),
        target.component,
        &prefix,
    )));
    plan.spent += began.elapsed();
    Ok(plan)
}

/// Feeds the body to the scanner as it arrives, until that has seen enough.
async fn scan(
    config: &Config,
    client: &mut Conn,
    scanner: &mut Scanner,
    plan: &mut Plan<'_>,
) -> Result<(), Stop> {
    let mut body = BytesMut::new();
    let limit = config.limits.decision_bytes;
    loop {
        let began = Instant::now();
        let mut enough = false;
        let used = advance_payload(&mut plan.framing, &client.input, |payload| {
            enough |= scanner.feed(payload);
        })
        .map_err(malformed)?;
        plan.spent += began.elapsed();
        body.unsplit(client.input.split_to(used));
        if body.len() as u64 > config.limits.body_bytes {
            return Err(Stop::Reply(too_large(config)));
        }
        if enough || plan.framing.is_done() || body.len() >= limit {
            plan.body = body.freeze();
            return Ok(());
        }
        let fill = poll_fn(|cx| client.poll_fill(cx, SCRATCH));
        match tokio::time::timeout(config.timeouts.body_idle, fill).await {
            Ok(Ok(0) | Err(_)) => return Err(Stop::ClientGone),
            Ok(Ok(_)) => {}
            Err(_) => return Err(Stop::Reply(stalled())),
        }
    }
}

/// Takes what has arrived of the body with the head. Most bodies are whole then, and a request that
/// is all here can be sent again when its pooled connection turns out to be dead.
fn take_at_hand(client: &mut Conn, plan: &mut Plan<'_>) -> Result<(), Stop> {
    let used = plan.framing.advance(&client.input).map_err(malformed)?;
    plan.body = client.input.split_to(used).freeze();
    client.release_input();
    Ok(())
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

async fn write_continue(config: &Config, client: &mut Conn) -> Result<(), Stop> {
    let write = client.stream.write_all(http::reply::CONTINUE);
    match tokio::time::timeout(config.timeouts.body_idle, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Stop::ClientGone),
    }
}

/// The target to send on when the API's path at the instance is another; the query stays.
fn rewritten_target(target: &Target<'_>, head: &RequestHead, raw: &[u8]) -> Option<Vec<u8>> {
    let mut rewritten = target.path?.as_bytes().to_vec();
    if let Some(query) = head.query(raw) {
        rewritten.push(b'?');
        rewritten.extend_from_slice(query);
    }
    Some(rewritten)
}
