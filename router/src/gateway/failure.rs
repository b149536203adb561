//! What can go wrong with an exchange, and what the client is told.

use std::{borrow::Cow, io, time::SystemTime};

use crate::{
    api::Call,
    config::Config,
    engine::CopyError,
    fleet::{Blame, FailureKind, Instance, Verdict, health::retry_after},
    http::{Failure, Reject, ResponseHead},
    metrics::Outcome,
    routing::NoInstance,
};

/// Why an exchange ends without a response from an instance.
#[derive(Debug)]
pub(super) enum Stop {
    /// The gateway answers.
    Reply(Failure),
    /// The gateway says no to what was asked.
    Refuse(Refusal),
    /// Nobody is there to be answered.
    ClientGone,
}

/// The answer to a request that may not pass.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    /// Fields that HTTP wants in such an answer.
    pub(super) fields: Vec<(&'static str, Cow<'static, str>)>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, fields: Vec::new() }
    }
}

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Self {
        Failure::from(reject).into()
    }
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reply(reject.into())
    }
}

/// How an exchange failed once its request was on the way.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client left.
    ClientGone,
    /// The client's body is no HTTP/1.1 body.
    BadRequest(CopyError),
    /// The client's body is larger than the limit.
    TooLarge,
    /// The client stopped sending its body.
    ClientStalled,
    /// The instance closed or reset the connection.
    Upstream(io::Error),
    /// The instance's response cannot be passed on.
    BadResponse(String),
    /// The instance did not answer in time.
    FirstByteTimeout,
    /// The response stood still for too long.
    StreamTimeout,
    /// Health checks found the instance down before a byte of the response's body came.
    InstanceDown,
    /// The response stood still while the instance's port was closed.
    InstanceClosed,
}

/// What a failure before the response's head was, and what it means for the client.
pub(super) fn before_response(
    instance: &Instance,
    broken: Broken,
    blame: Blame,
    config: &Config,
    call: Option<Call>,
) -> (Outcome, Stop) {
    let reply = |status, reason, message: String| {
        Stop::Reply(Failure { status, reason, message: message.into(), retry_after: None })
    };
    match broken {
        Broken::ClientGone => (Outcome::ClientGone, Stop::ClientGone),
        Broken::BadRequest(error) => (
            Outcome::BadRequest,
            reply(
                400,
                "malformed_body",
                format!("The request's body cannot be passed on: {error}."),
            ),
        ),
        Broken::TooLarge => (Outcome::BadRequest, Stop::Reply(too_large(config, call))),
        Broken::ClientStalled => (Outcome::TimeoutIdle, Stop::Reply(stalled())),
        Broken::Upstream(error) => {
            instance.note_failure(FailureKind::Reset, blame);
            tracing::warn!(instance = %instance.url, %error, "closed before answering");
            (
                Outcome::UpstreamClosed,
                reply(
                    502,
                    "upstream_closed",
                    "The inference server closed the connection before it answered. The request \
                     may have been started, so it was not sent again."
                        .into(),
                ),
            )
        }
        Broken::BadResponse(why) => {
            instance.note_failure(FailureKind::Protocol, blame);
            tracing::warn!(instance = %instance.url, %why, "bad response");
            (
                Outcome::BadResponse,
                reply(
                    502,
                    "bad_response",
                    format!("The inference server's response cannot be passed on: {why}."),
                ),
            )
        }
        Broken::InstanceDown | Broken::InstanceClosed => {
            tracing::warn!(instance = %instance.url, "down: a request that waited there is given up");
            (Outcome::InstanceDown, Stop::Reply(instance_down()))
        }
        Broken::FirstByteTimeout | Broken::StreamTimeout => {
            instance.note_failure(FailureKind::Timeout, blame);
            tracing::warn!(instance = %instance.url, "no response in time");
            (
                Outcome::TimeoutFirstByte,
                reply(
                    504,
                    "first_byte_timeout",
                    format!(
                        "The inference server sent no response within {:?} \
                         (`timeouts.first_byte`).",
                        config.timeouts.first_byte
                    ),
                ),
            )
        }
    }
}

/// What a failure after the response's head was.
pub(super) fn after_response(instance: &Instance, broken: Broken, blame: Blame) -> Outcome {
    match broken {
        Broken::ClientGone => Outcome::ClientGone,
        Broken::BadRequest(_) | Broken::TooLarge => Outcome::BadRequest,
        Broken::FirstByteTimeout => {
            instance.note_failure(FailureKind::Timeout, blame);
            tracing::warn!(instance = %instance.url, "nothing followed a response's head in time");
            Outcome::TimeoutFirstByte
        }
        Broken::ClientStalled | Broken::StreamTimeout => {
            tracing::warn!(instance = %instance.url, "a response stood still for too long");
            Outcome::TimeoutIdle
        }
        Broken::InstanceDown => {
            tracing::warn!(instance = %instance.url, "down: a response that had no body yet is cut");
            Outcome::InstanceDown
        }
        Broken::InstanceClosed => {
            tracing::warn!(
                instance = %instance.url,
                "its port is closed, and a response stood still: it is cut"
            );
            Outcome::InstanceClosed
        }
        Broken::Upstream(error) => {
            instance.note_failure(FailureKind::Reset, blame);
            tracing::warn!(instance = %instance.url, %error, "broke off inside its response");
            Outcome::UpstreamAborted
        }
        Broken::BadResponse(why) => {
            instance.note_failure(FailureKind::Protocol, blame);
            tracing::warn!(instance = %instance.url, %why, "bad response");
            Outcome::BadResponse
        }
    }
}

/// Passive health: only the instance's own errors count, never the client's. A good status is no
/// success yet: the response may still break off.
pub(super) fn note_response(
    instance: &Instance,
    response: &ResponseHead,
    head: &[u8],
    blame: Blame,
) {
    match Verdict::of_status(response.status) {
        // Servers say so of a model that they do not have.
        Verdict::Well | Verdict::Neither if response.status == 404 => instance.note_unknown(),
        Verdict::Well | Verdict::Neither => {}
        Verdict::Failed => instance.note_failure(FailureKind::Status, blame),
        Verdict::Overloaded => {
            let asked = response.header(head, "retry-after");
            let asked = asked.and_then(|value| retry_after(value, SystemTime::now()));
            instance.note_overload(asked);
        }
    }
}

/// When a client may try again that met no instance, in seconds: about as long as health checks take
/// to find one that is back.
const RETRY_AFTER: u32 = 5;

/// The answer to a request whose instance was found down while it waited.
pub(super) fn instance_down() -> Failure {
    Failure {
        status: 503,
        reason: "instance_down",
        message: "The inference server that this request waited for no longer answers its health                   checks. The request may have been started there, so it was not sent again                   (`health.resend`)."
            .into(),
        retry_after: Some(RETRY_AFTER),
    }
}

/// The answer when none of the instances that were tried could be reached; `all` says that there was
/// no other.
pub(super) fn unreachable(tried: usize, all: bool) -> Failure {
    let message = match (all, tried) {
        (true, 1) => {
            "The only inference server that this request could go to cannot be reached.".into()
        }
        (true, _) => format!(
            "None of the inference servers can be reached: all {tried} that this request could go \
             to were tried."
        ),
        (false, _) => format!("{tried} inference servers were tried, and none can be reached."),
    };
    let reason = NoInstance::Exhausted.as_str();
    Failure { status: 503, reason, message: message.into(), retry_after: Some(RETRY_AFTER) }
}

/// The answer when no instance can be chosen.
pub(super) fn no_instance(none: NoInstance) -> Failure {
    let (message, retry_after) = match none {
        NoInstance::None => (
            "No inference server is able to serve at the moment: none is configured, or all are \
             draining or unresolved.",
            Some(RETRY_AFTER),
        ),
        NoInstance::Exhausted => {
            ("Every inference server that could serve failed to answer.", Some(RETRY_AFTER))
        }
        NoInstance::AtLimit => (
            "Every inference server has as many requests as it may take (`max_in_flight`); try \
             again shortly.",
            Some(1),
        ),
    };
    Failure { status: none.status(), reason: none.as_str(), message: message.into(), retry_after }
}

/// The answer to a web page that may not call the gateway.
pub(super) fn origin_refused() -> Failure {
    Failure {
        status: 403,
        reason: "cors_origin",
        message: "Web pages of this origin may not call this gateway (`cors.origins`).".into(),
        retry_after: None,
    }
}

/// The answer to a body of unknown length that turned out too large.
pub(super) fn too_large(config: &Config, call: Option<Call>) -> Failure {
    let limit = config.body_limit(call);
    let setting = match limit == config.limits.body_bytes {
        true => "limits.body_bytes",
        false => "limits.invoke_body_bytes",
    };
    Failure {
        status: 413,
        reason: "body_too_large",
        message: format!(
            "The request's body exceeds this gateway's limit of {limit} bytes (`{setting}`)."
        )
        .into(),
        retry_after: None,
    }
}

/// The answer to a client that stopped sending its body.
pub(super) fn stalled() -> Failure {
    Failure {
        status: 408,
        reason: "request_timeout",
        message: "The rest of the request's body did not arrive in time (`timeouts.body_idle`)."
            .into(),
        retry_after: None,
    }
}
