//! Which paths can be reached.
//!
//! An inference server has controls beside its APIs: metrics, caches to be flushed, weights and adapters
//! to be loaded. They have no authentication of their own, and new versions bring new ones. So what is
//! reachable is named, and everything else is not: the paths of the [table of APIs](crate::api::TABLE) that
//! are public, and those of the configuration.
//!
//! The decision is made on the bytes that are sent on. A path that an instance could read otherwise than
//! this gateway speaks no API, see [`Paths::target`](crate::api::Paths::target).

use std::borrow::Cow;

use crate::{
    api::{Api, Target},
    config::Config,
    gateway::failure::Refusal,
    http::{
        ErrorForm, Failure,
        Method::{self, Delete, Get, Head, Options, Patch, Post, Put},
    },
};

/// Who answers a request that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Asked<'r> {
    /// An instance, or the gateway on behalf of all of them.
    Instances(Target<'r>),
    /// The gateway: whether it can serve.
    Health,
    /// The gateway: what a web page may send.
    Preflight,
    /// The gateway: what it takes (`OPTIONS *`).
    Options,
    /// The control plane: a call of its API.
    Control,
}

/// Finds out who is asked.
///
/// # Errors
/// The answer, if the path is not reachable, or not by this method.
pub(in crate::gateway) fn asked<'r>(
    config: &Config,
    method: Method,
    path: &'r str,
) -> Result<Asked<'r>, Refusal> {
    if path == "*" {
        return Ok(Asked::Options);
    }
    let target = config.paths.target(method, path);
    if is_reachable(config, &target) {
        return Ok(Asked::Instances(target));
    }
    if takes_health(method, path) {
        return Ok(Asked::Health);
    }
    match methods(config, path).next() {
        // Preflights above all: the instance knows which origins it allows.
        Some(other) if method == Options && !takes_health(other, path) => {
            let target = config.paths.target(other, path);
            Ok(Asked::Instances(Target { api: Api::Other, call: None, ..target }))
        }
        Some(_) if method == Options => Ok(Asked::Options),
        Some(_) => Err(wrong_method(config, path)),
        None => Err(unreachable(config, &target, path).into()),
    }
}

/// The form of errors about a path that asks for `target`. `aws` is for requests of AWS's JSON
/// protocol, which name their operation in a header.
pub(in crate::gateway) fn error_form(target: &Target<'_>, path: &str, aws: bool) -> ErrorForm {
    match target.api {
        _ if target.call.is_some() => ErrorForm::SageMakerRuntime,
        Api::Other if is_sagemaker(path) => ErrorForm::SageMakerRuntime,
        Api::Other if aws => ErrorForm::SageMaker,
        api => api.error_form(),
    }
}

fn is_reachable(config: &Config, target: &Target<'_>) -> bool {
    let base = |base| config.base_paths.iter().any(|known| known.is(base));
    (target.own || target.api.info().public) && target.base.is_none_or(base)
}

/// The pages by which load balancers find out whether a server is alive: those of inference servers, and
/// of SageMaker's containers.
fn takes_health(method: Method, path: &str) -> bool {
    match method {
        Get | Head => matches!(path, "/health" | "/ping"),
        Post => path == "/ping",
        _ => false,
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Whether it is a path of SageMaker's own, not one of OpenAI's behind an endpoint.
fn is_sagemaker(path: &str) -> bool {
    let mut segments = segments(path);
    segments.next() == Some("endpoints") && !segments.any(|part| part == "openai")
}

/// The methods by which a path can be reached, besides OPTIONS.
fn methods(config: &Config, path: &str) -> impl Iterator<Item = Method> {
    let all = [Get, Head, Post, Put, Patch, Delete].into_iter();
    all.filter(move |method| {
        let target = config.paths.target(*method, path);
        is_reachable(config, &target) || takes_health(*method, path)
    })
}

/// The methods by which a path can be reached, as a list; empty if it cannot.
pub(in crate::gateway) fn method_names(config: &Config, path: &str) -> String {
    let mut names: Vec<_> = methods(config, path).map(Method::as_str).collect();
    if !names.is_empty() {
        names.push(Options.as_str());
    }
    names.join(", ")
}

fn wrong_method(config: &Config, path: &str) -> Refusal {
    let names = method_names(config, path);
    let failure = Failure {
        status: 405,
        reason: "method_not_allowed",
        message: format!("This path takes other methods: {names}.").into(),
        retry_after: None,
    };
    Refusal { failure, fields: vec![("Allow", Cow::Owned(names))] }
}

/// Calls of SageMaker's runtime API that are not served.
const NOT_SERVED: [(&str, &str); 2] = [
    ("async-invocations", "InvokeEndpointAsync is not offered: no endpoint here is asynchronous."),
    (
        "invocations-bidirectional-stream",
        "InvokeEndpointWithBidirectionalStream is not offered; `invocations-response-stream` streams \
         answers.",
    ),
];

/// Why a path is not reachable.
fn unreachable(config: &Config, target: &Target<'_>, path: &str) -> Failure {
    let last = segments(path).last().unwrap_or_default();
    let not_served = NOT_SERVED.iter().find(|(name, _)| is_sagemaker(path) && *name == last);
    let (status, reason, message) = if let Some((_, message)) = not_served {
        (400, "not_served", (*message).into())
    } else if target.base.is_some() && (target.own || target.api.info().public) {
        let known: Vec<_> = config.base_paths.iter().map(|base| format!("`{base}`")).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let message = format!(
            "What stands in front of the API's own path is no base path of this gateway. There are: \
             {known} (`base_paths`)."
        );
        (404, "unknown_base_path", message.into())
    } else {
        let message = "This path is none of an API that the gateway knows, so it is not reachable; a \
                       `[[path]]` of the gateway's configuration makes it so.";
        (404, "unknown_path", message.into())
    };
    Failure { status, reason, message, retry_after: None }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
