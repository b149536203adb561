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
