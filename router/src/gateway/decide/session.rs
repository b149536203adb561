//! Which instance keeps the session that a call names.

use std::{sync::Arc, time::SystemTime};

use crate::{
    aws::runtime::{NEW_SESSION, SESSION},
    fleet::{Endpoint, Instance, Variant},
    gateway::{read::Request, scope::Scope},
    http::Failure,
    prefix::Target,
};

/// What a call says of sessions.
pub(super) enum Session<'f> {
    /// Nothing.
    None,
    /// It asks for a new one.
    New,
    /// It is of this one.
    At(&'f Variant, Arc<Instance>),
}

/// Finds the session that a call names. A keeper that is draining still serves what it keeps.
///
/// # Errors
/// There is no such session, or none any more.
pub(super) fn find<'f>(
    scope: &Scope<'_>,
    request: &Request,
    target: &Target<'_>,
    endpoint: &'f Endpoint,
) -> Result<Session<'f>, Failure> {
    let id = target.call.and_then(|_| request.header(SESSION));
    let id = match id {
        None => return Ok(Session::None),
        Some(id) if id == NEW_SESSION.as_bytes() => return Ok(Session::New),
        Some(id) => id,
    };
    let kept = scope.worker.shared.sessions.find(&endpoint.name, id, SystemTime::now());
    let keeper = |(_, instance): &(&'f Variant, &Arc<Instance>)| kept == Some(instance.id);
    match endpoint.all_instances().find(keeper) {
        Some((variant, instance)) => Ok(Session::At(variant, Arc::clone(instance))),
        None => Err(Failure {
            status: 400,
            reason: "unknown_session",
            message: format!(
                "Session {} of endpoint {} not found: it was never opened, has expired or was closed, or \
                 its instance is gone.",
                String::from_utf8_lossy(id),
                endpoint.name
            )
            .into(),
            retry_after: None,
        }),
    }
}
