//! The admit phase: may this request pass, and what does it ask for? No byte of its body is needed
//! for that.
//!
//! A check is a file of its own here, called from [`admit`] in the order in which an attacker should
//! meet them: the cheapest and most telling first.

mod control;
mod invoke;
mod paths;
mod websocket;

pub(super) use self::{
    control::TARGET as CONTROL_TARGET,
    paths::{Asked, method_names as methods},
};
use super::{failure::Refusal, read::Request};
use crate::{
    api::Target,
    config::Config,
    http::{ErrorForm, Failure, Method},
    prefix::tenant,
};

/// What the admit phase makes: a request that may pass.
pub(super) struct Admitted<'r> {
    /// Who is asked.
    pub(super) asked: Asked<'r>,
    /// The tenant id of its head, if it has one.
    pub(super) tenant: Option<&'r str>,
}

/// Checks a request by its head alone.
///
/// # Errors
/// The answer to a request that may not pass.
pub(super) fn admit<'r>(config: &Config, request: &'r Request) -> Result<Admitted<'r>, Refusal> {
    // An OPTIONS or TRACE that may go no further asks for nothing else.
    let asked = match request.head.is_for_gateway(request.raw()) {
        true => Asked::Options,
        false if control::is_call(config, request) => Asked::Control,
        false => paths::asked(config, request.head.method, request.path())?,
    };
    let mut asked = if is_preflight(config, request) { Asked::Preflight } else { asked };
    if let Asked::Instances(target) = &mut asked {
        websocket::check(config, request, target)?;
        invoke::check(config, request, target)?;
    }
    let tenant = match request.header(tenant::HEADER) {
        Some(value) => Some(tenant::validate(value)?),
        None => None,
    };
    Ok(Admitted { asked, tenant })
}

/// Whether a browser asks what a web page may send, and the gateway is to answer it (Fetch standard,
/// CORS-preflight request).
fn is_preflight(config: &Config, request: &Request) -> bool {
    !config.cors.origins.is_empty()
        && request.head.method == Method::Options
        && request.header("origin").is_some()
        && request.header("access-control-request-method").is_some()
}

/// What the request's path asks for, whether or not that may pass, and the form of errors about it.
pub(super) fn target<'r>(config: &Config, request: &'r Request) -> (Target<'r>, ErrorForm) {
    let target = config.paths.target(request.head.method, request.path());
    let aws = request.header("x-amz-target").is_some();
    (target, paths::error_form(&target, request.path(), aws))
}

/// What a path asks the instances for; `None` where the gateway answers by itself.
///
/// # Errors
/// The gateway's answer, if the path is not reachable, or not by this method.
pub(crate) fn reachable<'p>(
    config: &Config,
    method: Method,
    path: &'p str,
) -> Result<Option<Target<'p>>, Failure> {
    match paths::asked(config, method, path) {
        Ok(Asked::Instances(target)) => Ok(Some(target)),
        Ok(Asked::Health | Asked::Options | Asked::Preflight | Asked::Control) => Ok(None),
        Err(refusal) => Err(refusal.failure),
    }
}

/// The form of errors about a request that was refused before its head was understood.
pub(super) fn error_form(config: &Config, path: &str) -> ErrorForm {
    let target = config.paths.target(Method::Post, path);
    paths::error_form(&target, path, false)
}
