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
    prefix::{self, Api, Decider, Findings, FormScanner, KeyParts, Known, Shortfall, Target},
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
    let (limit, prefix) = (config.limits.decision_bytes, &config.prefix);
    let known = Known::new(target, tenant, plan.variant.routing.prefix_length, limit, prefix);
    let mut decider = Decider::new(known, request.head.headers(request.raw()));
    feed(scope, request, &mut |payload| decider.feed(payload), plan).await?;
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

/// What looks for nothing but the model in a body.
enum ModelScanner {
    Json(Box<Decider>),
    Form(FormScanner),
}

impl ModelScanner {
    fn new(
        scope: &Scope<'_>,
        request: &Request,
        target: &Target<'_>,
        tenant: Option<&str>,
    ) -> Self {
        let config = scope.config();
        let (limit, prefix) = (config.limits.decision_bytes, &config.prefix);
        let form = request.header("content-type").and_then(|kind| FormScanner::new(kind, limit));
        if let Some(form) = form {
            return Self::Form(form);
        }
        // Where there is no prompt, the model is named as it is beside one.
        let api = if target.api.has_prefix() { target.api } else { Api::ChatCompletions };
        let known = Known { api, ..Known::new(target, tenant, 1, limit, prefix) };
        Self::Json(Box::new(Decider::new(known, request.fields())))
    }

    fn feed(&mut self, payload: &[u8]) -> bool {
        match self {
            Self::Json(decider) => decider.feed(payload),
            Self::Form(form) => form.feed(payload),
        }
    }

    fn finish(self) -> Asked {
        match self {
            Self::Json(decider) => {
                let Findings { prefix, shortfall, .. } = decider.finish();
                Asked { model: prefix.model, cache_key: prefix.cache_key, shortfall }
            }
            Self::Form(form) => {
                let model = form.model().map(<[u8]>::to_vec);
                Asked { model, cache_key: None, shortfall: None }
            }
        }
    }
}

/// What a body asks for, its prompt left out.
struct Asked {
    model: Option<Vec<u8>>,
    cache_key: Option<Vec<u8>>,
    /// Why that may be less than all.
    shortfall: Option<Shortfall>,
}

/// Reads the body as it arrives until its model is known.
pub(super) async fn find_model(
    scope: &mut Scope<'_>,
    request: &Request,
    plan: &mut Plan<'_>,
    target: &Target<'_>,
    tenant: Option<&str>,
) -> Result<(), Stop> {
    // The tenant makes no difference: it is not waited for.
    let mut scanner = ModelScanner::new(scope, request, target, tenant.or(Some("")));
    feed(scope, request, &mut |payload| scanner.feed(payload), plan).await?;
    let found = scanner.finish();
    plan.shortfall = found.shortfall;
    plan.model = found.model.unwrap_or_default();
    scope.record.asks_for(Some(&plan.model), tenant.map(str::as_bytes));
    Ok(())
}

/// Notes for the access line, if there will be one, what is asked for: as far as the body is at hand. Nothing
/// waits for the rest of it.
pub(super) fn note_asked(
    scope: &mut Scope<'_>,
    request: &Request,
    plan: &Plan<'_>,
    target: &Target<'_>,
    tenant: Option<&str>,
) {
    let named = target.named_model().map(str::as_bytes);
    let tenant_bytes = tenant.map(str::as_bytes);
    if !scope.record.is_logged() || named.is_some() || !target.api.names_model() {
        return scope.record.asks_for(named, tenant_bytes);
    }
    let mut scanner = ModelScanner::new(scope, request, target, tenant);
    let mut framing = request.head.framing;
    // It has been followed before without an error.
    let _ = advance_payload(&mut framing, &plan.body, |payload| {
        scanner.feed(payload);
    });
    let found = scanner.finish();
    scope.record.asks_for(found.model.as_deref(), tenant_bytes.or(found.cache_key.as_deref()));
}

async fn feed(
    scope: &mut Scope<'_>,
    request: &Request,
    take: &mut impl FnMut(&[u8]) -> bool,
    plan: &mut Plan<'_>,
) -> Result<(), Stop> {
    let config = scope.config();
    let client = &mut *scope.client;
    let read = std::mem::take(&mut plan.body);
    let mut enough = false;
    if !read.is_empty() {
        let mut framing = request.head.framing;
        advance_payload(&mut framing, &read, |payload| enough |= take(payload))
            .map_err(malformed)?;
    }
    let mut body = read.try_into_mut().unwrap_or_else(|read| BytesMut::from(&*read));
    loop {
        let began = Instant::now();
        let used = advance_payload(&mut plan.framing, &client.input, |payload| {
            enough |= take(payload);
        })
        .map_err(malformed)?;
        plan.spent += began.elapsed();
        body.unsplit(client.input.split_to(used));
        if body.len() as u64 > config.body_limit(plan.call) {
            return Err(Stop::Reply(too_large(config, plan.call)));
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
