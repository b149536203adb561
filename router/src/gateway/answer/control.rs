//! Calls of the control API on a client's connection.

use std::{future::poll_fn, sync::Arc};

use bytes::Buf as _;

use super::{next::Next, own};
use crate::{
    control::server::{self, Answer, MAX_INPUT},
    engine::userspace::advance_payload,
    gateway::{
        admit::CONTROL_TARGET,
        failure::{Stop, stalled},
        read::Request,
        scope::Scope,
    },
    http::{self, Failure},
    net::READ_BUFFER_BYTES,
};

/// Reads a call's input, and answers it.
///
/// # Errors
/// When the input does not come, or is too long.
pub(in crate::gateway) async fn control(
    scope: &mut Scope<'_>,
    request: &Request,
) -> Result<Next, Stop> {
    // Where the configuration lets clients call it, there is one.
    let Some(control) = scope.worker.control.as_ref().map(Arc::clone) else {
        return Err(Stop::Reply(refused(503, "no_control", "There is no control plane here.")));
    };
    let input = input(scope, request).await?;
    let target = request.header(CONTROL_TARGET);
    let Answer { status, body, error, id } = server::answer(control, target, &input).await;
    let mut fields = vec![("x-amzn-requestid", id.as_bytes())];
    if let Some(name) = error {
        fields.push(("x-amzn-errortype", name.as_bytes()));
    }
    Ok(own::json_with(scope, &request.head, status, &body, &fields).await)
}

async fn input(scope: &mut Scope<'_>, request: &Request) -> Result<Vec<u8>, Stop> {
    let mut framing = request.head.framing;
    if request.head.expect_continue
        && scope.client.input.is_empty()
        && !framing.is_done()
        && !scope.write_client(http::reply::CONTINUE).await
    {
        return Err(Stop::ClientGone);
    }
    let limit = scope.config().timeouts.body_idle;
    let mut body = Vec::new();
    loop {
        let client = &mut *scope.client;
        let used =
            advance_payload(&mut framing, &client.input, |part| body.extend_from_slice(part));
        let used = used.map_err(|error| {
            let message = format!("The request's chunked body is malformed: {error}.");
            Stop::Reply(Failure { message: message.into(), ..refused(400, "malformed_body", "") })
        })?;
        client.input.advance(used);
        if body.len() > MAX_INPUT {
            let why = "The input of a call of the control API is longer than 4 MiB.";
            return Err(Stop::Reply(refused(413, "input_too_long", why)));
        }
        if framing.is_done() {
            scope.body_read = true;
            return Ok(body);
        }
        let fill = poll_fn(|cx| client.poll_fill(cx, READ_BUFFER_BYTES));
        match tokio::time::timeout(limit, fill).await {
            Ok(Ok(0) | Err(_)) => return Err(Stop::ClientGone),
            Ok(Ok(_)) => {}
            Err(_) => return Err(Stop::Reply(stalled())),
        }
    }
}

fn refused(status: u16, reason: &'static str, message: &'static str) -> Failure {
    Failure { status, reason, message: message.into(), retry_after: None }
}
