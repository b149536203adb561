//! Which endpoint and which of its variants a request is for.

use crate::gateway::read::Request;
use crate::{
    fleet::{Endpoint, Fleet, NoVariant, Variant},
    http::Failure,
    prefix::Target,
};

/// The header that asks for a variant by name (InvokeEndpoint reference).
pub(super) const TARGET_VARIANT: &str = "x-amzn-sagemaker-target-variant";

/// The endpoint and variant that a request asks for.
///
/// # Errors
/// There is none of that name.
pub(super) fn find<'f>(
    fleet: &'f Fleet,
    target: &Target<'_>,
    request: &Request,
    rng: &mut fastrand::Rng,
) -> Result<(&'f Endpoint, &'f Variant), Failure> {
    let endpoint = match target.endpoint {
        None => fleet.default_endpoint(),
        Some(name) => fleet.endpoint(name),
    };
    let Some(endpoint) = endpoint else {
        let message = match target.endpoint.filter(|_| target.call.is_some()) {
            // In the service's words, for programs that look at them.
            Some(name) => {
                let account = &fleet.config().control.account;
                format!("Endpoint {name} of account {account} not found.").into()
            }
            None => "No endpoint of that name is configured on this gateway.".into(),
        };
        return Err(Failure {
            status: 404,
            reason: "unknown_endpoint",
            message,
            retry_after: None,
        });
    };
    let asked = request.header(TARGET_VARIANT);
    if let Some(component) = component(endpoint, target, asked)? {
        return Ok((endpoint, component));
    }
    let variant = endpoint.pick_variant(asked, rng).map_err(|error| {
        let (status, reason) = match error {
            NoVariant::Unknown => (400, "unknown_variant"),
            NoVariant::NoShare => (503, "no_variant"),
        };
        let message = error.to_string().into();
        Failure { status, reason, message, retry_after: None }
    })?;
    Ok((endpoint, variant))
}

/// The inference component that a request is for; `None` where the endpoint has no part in that, and the instances
/// make of the name what they will.
///
/// The texts are those of the service, for programs that look at them.
fn component<'f>(
    endpoint: &'f Endpoint,
    target: &Target<'_>,
    asked: Option<&[u8]>,
) -> Result<Option<&'f Variant>, Failure> {
    if endpoint.components.is_empty() && !endpoint.needs_component {
        return Ok(None);
    }
    let failure = |reason, message: String| {
        let message = message.into();
        Err(Failure { status: 400, reason, message, retry_after: None })
    };
    let Some(name) = target.component else {
        if !endpoint.needs_component {
            return Ok(None);
        }
        let message = "Inference Component Name header is required for endpoints to which you plan to deploy \
                       inference components. Please include Inference Component Name header or consider using \
                       SageMaker models.";
        return failure("component_needed", message.to_owned());
    };
    match endpoint.components.get(name) {
        None => {
            let endpoint = &endpoint.name;
            let message = format!("Inference Component {name} of endpoint {endpoint} not found.");
            failure("unknown_component", message)
        }
        Some(component) if asked.is_some_and(|asked| asked != component.name.as_bytes()) => {
            let hosts = &component.name;
            let message = format!(
                "Inference Component {name} is on variant {hosts}, not on the target variant."
            );
            failure("unknown_variant", message)
        }
        Some(component) if component.instances.is_empty() => {
            let message = "Inference Component has no capacity to process this request. \
                           ApplicationAutoScaling may be in-progress (if configured) or try to increase the \
                           capacity by invoking UpdateInferenceComponentRuntimeConfig API.";
            failure("no_capacity", message.to_owned())
        }
        Some(component) => Ok(Some(component)),
    }
}
