//! The admit phase: may this request pass, and what does it ask for? No byte of its body is needed
//! for that.
//!
//! A check is a file of its own here, called from [`admit`] in the order in which an attacker should
//! meet them: the cheapest and most telling first.

use super::read::Request;
use crate::{api::Target, config::Config, http::Failure, prefix::tenant};

/// What the admit phase makes: a request that may pass.
pub(super) struct Admitted<'r> {
    /// What its path asks for.
    pub(super) target: Target<'r>,
    /// The tenant id of its head, if it has one.
    pub(super) tenant: Option<&'r str>,
}

/// Checks a request by its head alone.
///
/// # Errors
/// The answer to a request that may not pass.
pub(super) fn admit<'r>(request: &'r Request, target: Target<'r>) -> Result<Admitted<'r>, Failure> {
    let tenant = match request.header(tenant::HEADER) {
        Some(value) => Some(tenant::validate(value)?),
        None => None,
    };
    Ok(Admitted { target, tenant })
}

/// What the request's path asks for; whether that may pass is not asked yet. Errors are worded in the
/// form of its API.
pub(super) fn target<'r>(config: &Config, request: &'r Request) -> Target<'r> {
    config.paths.target(request.head.method, request.path())
}
