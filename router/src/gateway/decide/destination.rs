//! Which endpoint and which of its variants a request is for.

use crate::gateway::read::Request;
use crate::{
    fleet::{Endpoint, Fleet, Variant},
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
        return Err(Failure {
            status: 404,
            reason: "unknown_endpoint",
            message: "No endpoint of that name is configured on this gateway.".into(),
            retry_after: None,
        });
    };
    let asked = request.header(TARGET_VARIANT);
    let variant = endpoint.pick_variant(asked, rng).map_err(|error| Failure {
        status: 400,
        reason: "unknown_variant",
        message: error.to_string().into(),
        retry_after: None,
    })?;
    Ok((endpoint, variant))
}
