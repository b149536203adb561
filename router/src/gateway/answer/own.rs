//! Answers that the gateway makes itself.

use super::next::Next;
use crate::gateway::{
    admit,
    failure::{Refusal, origin_refused},
    read::Request,
    scope::Scope,
};
use crate::{
    admin,
    http::{self, Cors, Failure, Method, Reply, RequestHead, Version, cors, ids::REQUEST_ID},
};

/// Sends JSON.
pub(in crate::gateway) async fn json(
    scope: &mut Scope<'_>,
    head: &RequestHead,
    body: &[u8],
) -> Next {
    json_of(scope, head, 200, body).await
}

/// Sends JSON with a status.
pub(in crate::gateway) async fn json_of(
    scope: &mut Scope<'_>,
    head: &RequestHead,
    status: u16,
    body: &[u8],
) -> Next {
    json_with(scope, head, status, body, &[]).await
}

/// Sends JSON with a status and further fields.
pub(super) async fn json_with(
    scope: &mut Scope<'_>,
    head: &RequestHead,
    status: u16,
    body: &[u8],
    further: &[(&'static str, &[u8])],
) -> Next {
    let keep_alive = keeps_open(scope, head);
    let mut out = Vec::with_capacity(body.len() + 256);
    let id = scope.record.identity.ids.request;
    let mut fields = vec![(REQUEST_ID, id.as_bytes())];
    fields.extend_from_slice(further);
    let reply = Reply {
        head_only: head.method == Method::Head,
        keep_alive,
        fields: &fields,
        cors: scope.cors,
    };
    http::reply::json(&mut out, status, body, &reply);
    scope.record.status = status;
    send(scope, &out, keep_alive).await
}

/// Sends an error, in the form of the client's API.
pub(in crate::gateway) async fn failure(
    scope: &mut Scope<'_>,
    head: &RequestHead,
    refusal: Refusal,
) -> Next {
    let keep_alive = keeps_open(scope, head);
    let Refusal { failure, fields: own } = refusal;
    let failure = failure.in_form(scope.error_form);
    let mut out = Vec::with_capacity(512);
    let id = scope.record.identity.ids.request;
    let mut fields = vec![(REQUEST_ID, id.as_bytes())];
    fields.extend(own.iter().map(|(name, value)| (*name, value.as_bytes())));
    let head_only = head.method == Method::Head;
    let reply = Reply { head_only, keep_alive, fields: &fields, cors: scope.cors };
    http::reply::failure(&mut out, scope.error_form, &failure, &reply);
    scope.record.replied(&failure);
    send(scope, &out, keep_alive).await
}

/// Answers whether this gateway can serve.
///
/// # Errors
/// The answer, if it cannot.
pub(in crate::gateway) async fn health(
    scope: &mut Scope<'_>,
    head: &RequestHead,
) -> Result<Next, Failure> {
    match admin::ready(&scope.worker.shared) {
        Ok(()) => Ok(json(scope, head, b"{}").await),
        Err(why) => Err(Failure {
            status: 503,
            reason: "not_ready",
            message: format!("The gateway cannot serve: {why}.").into(),
            retry_after: Some(5),
        }),
    }
}

/// Answers a browser that asks what a web page may send.
///
/// # Errors
/// The answer, if pages of its origin may not.
pub(in crate::gateway) async fn preflight(
    scope: &mut Scope<'_>,
    request: &Request,
) -> Result<Next, Failure> {
    if matches!(scope.cors, Cors::On { allowed: None, .. }) {
        return Err(origin_refused());
    }
    let methods = admit::methods(scope.config(), request.path());
    let asked = request.fields().only("access-control-request-headers");
    let id = scope.record.identity.ids.request;
    let mut fields = cors::preflight(&methods, asked);
    fields.push((REQUEST_ID, id.as_bytes()));
    let keep_alive = keeps_open(scope, &request.head);
    let reply = Reply { keep_alive, fields: &fields, cors: scope.cors, head_only: false };
    let mut out = Vec::with_capacity(512);
    http::reply::no_content(&mut out, &reply);
    scope.record.status = 204;
    Ok(send(scope, &out, keep_alive).await)
}

/// Whether the connection can carry another request after an answer of the gateway's own: not when
/// the rest of this request's body is still to come, and not with HTTP/1.0, to which such answers do
/// not speak.
fn keeps_open(scope: &Scope<'_>, head: &RequestHead) -> bool {
    head.keep_alive
        && head.version == Version::Http11
        && scope.body_read
        && !scope.worker.is_draining()
}

async fn send(scope: &mut Scope<'_>, out: &[u8], keep_alive: bool) -> Next {
    match scope.write_client(out).await {
        true if keep_alive => Next::KeepAlive,
        true => Next::Close,
        false => Next::Drop,
    }
}
