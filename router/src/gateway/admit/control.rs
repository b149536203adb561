//! Calls of the control API among the requests of clients.

use crate::{config::Config, gateway::read::Request, http::Method};

/// The field that names the operation of a call.
pub(in crate::gateway) const TARGET: &str = "x-amz-target";

/// Whether a request is a call of the control API, where the configuration lets clients call it.
pub(super) fn is_call(config: &Config, request: &Request) -> bool {
    config.control.on_client_listener
        && request.head.method == Method::Post
        && request.path() == "/"
        && request.header(TARGET).is_some()
}
