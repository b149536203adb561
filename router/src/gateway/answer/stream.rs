//! How an event stream ends that cannot go on.

use std::future::poll_fn;

use crate::engine::{Copier, Output};
use crate::gateway::{failure::Broken, scope::Scope};

/// An exception of SageMaker's runtime API: the last event of a stream.
pub(super) struct Exception {
    name: &'static str,
    code: Option<&'static str>,
    message: &'static str,
}

/// What the client is told of a failure; nothing if it is gone.
pub(super) fn exception(failure: &Broken) -> Option<Exception> {
    let model = |code, message| Exception { name: "ModelStreamError", code: Some(code), message };
    Some(match failure {
        Broken::ClientGone => return None,
        Broken::FirstByteTimeout | Broken::StreamTimeout => model(
            "ModelInvocationTimeExceeded",
            "The inference server sent nothing more in time (`timeouts.stream_idle`).",
        ),
        Broken::Upstream(_) | Broken::InstanceDown | Broken::InstanceClosed => {
            model("StreamBroken", "The inference server broke off inside its response.")
        }
        Broken::BadResponse(_)
        | Broken::BadRequest(_)
        | Broken::TooLarge
        | Broken::ClientStalled => Exception {
            name: "InternalStreamFailure",
            code: None,
            message: "The stream cannot be passed on to its end. The gateway's log says why.",
        },
    })
}

/// Sends the exception behind what is still to be sent, and the end of the stream. `false` if the client does
/// not take them.
pub(super) async fn end(scope: &mut Scope<'_>, copier: &mut Copier, exception: &Exception) -> bool {
    let Exception { name, code, message } = exception;
    let members = match code {
        Some(code) => serde_json::json!({ "Message": message, "ErrorCode": code }),
        None => serde_json::json!({ "Message": message }),
    };
    let Output::Events(events) = copier.output_mut() else { return false };
    let bytes = events.exception(name, members.to_string().as_bytes());
    copier.push(bytes.into());
    let limit = scope.config().timeouts.body_idle;
    let flushed = poll_fn(|cx| copier.poll_flush(cx, &mut scope.client.stream));
    matches!(tokio::time::timeout(limit, flushed).await, Ok(Ok(())))
}
