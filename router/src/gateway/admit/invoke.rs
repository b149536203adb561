//! What a call of SageMaker's runtime API says in its head.

use std::borrow::Cow;

use crate::{
    api::Target,
    aws::runtime,
    config::Config,
    gateway::{
        failure::{Refusal, too_large},
        read::Request,
    },
    http::Failure,
};

/// Checks a call's parameters, and the length of its body if that is announced. Below an endpoint's name
/// a header may name the inference component, where the path does not.
///
/// # Errors
/// The service's answer to a call that may not pass.
pub(super) fn check<'r>(
    config: &Config,
    request: &'r Request,
    target: &mut Target<'r>,
) -> Result<(), Refusal> {
    let Some(endpoint) = target.endpoint else { return Ok(()) };
    let fields = request.fields();
    let named = target.component.map(str::as_bytes);
    let value = |name| match name {
        runtime::COMPONENT => named.or_else(|| fields.clone().find(name)),
        name => fields.clone().find(name),
    };
    runtime::check(endpoint.as_bytes(), target.call, value).map_err(|message| {
        let (status, reason, message) = (400, "validation", Cow::Owned(message));
        Failure { status, reason, message, retry_after: None }
    })?;
    target.component = value(runtime::COMPONENT).and_then(|name| std::str::from_utf8(name).ok());
    let Some(call) = target.call else { return Ok(()) };
    let framing = request.head.framing;
    if framing.is_length() && framing.remaining > config.body_limit(Some(call)) {
        return Err(too_large(config, Some(call)).into());
    }
    Ok(())
}
