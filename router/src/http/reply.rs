//! Answers that the gateway makes itself.

use std::{borrow::Cow, io::Write, time::SystemTime};

use super::{
    cors::Cors,
    head::{Reject, Version},
    rewrite,
};

/// The interim response that makes a client send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The form of an error, by the API the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// `{"error":{"message","type","param","code"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
    /// REST-JSON: `x-amzn-ErrorType` and `{"Message"}`
    SageMaker,
    /// The same, with the errors and statuses of SageMaker's runtime API alone, which its clients know.
    SageMakerRuntime,
}

/// An error that the gateway itself answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status, 400 to 599.
    pub status: u16,
    /// The reason as a short fixed word, sent as `x-atalho-error`.
    pub reason: &'static str,
    /// The reason as a sentence a person can act on.
    pub message: Cow<'static, str>,
    /// `Retry-After`, seconds.
    pub retry_after: Option<u32>,
}

impl Failure {
    /// With the status that clients of this form expect.
    #[must_use]
    pub fn in_form(mut self, form: ErrorForm) -> Self {
        if form == ErrorForm::SageMakerRuntime {
            self.status = match self.status {
                404 | 501 => 400,
                // The model's fault, as far as the service's clients are told: it did not answer.
                502 | 504 => 424,
                status => status,
            };
        }
        self
    }
}

/// An instance's error response, as SageMaker's runtime API passes it on.
#[derive(Clone, Copy, Debug)]
pub struct ModelError<'a> {
    /// Its status; 0 if there was no response.
    pub status: u16,
    /// The start of its body, or why there is none.
    pub message: &'a str,
}

/// Longest text of an error of SageMaker's, in characters.
pub const MODEL_MESSAGE: usize = 2048;

impl ModelError<'_> {
    /// The error's members.
    ///
    /// The sentence is the service's own, since programs take it apart. `LogStreamArn` stays empty: there
    /// is no log stream here.
    fn members(&self) -> serde_json::Value {
        let Self { status, message } = self;
        let whose = if (400..500).contains(status) { "client" } else { "server" };
        let shown: String = message.chars().take(MODEL_MESSAGE).collect();
        let text =
            format!("Received {whose} error ({status}) from primary with message \"{shown}\".");
        serde_json::json!({
            "Message": text.chars().take(MODEL_MESSAGE).collect::<String>(),
            "OriginalStatusCode": status,
            "OriginalMessage": shown,
            "LogStreamArn": "",
        })
    }
}

/// Writes an instance's error response in the form of SageMaker's runtime API.
pub fn model_error(out: &mut Vec<u8>, error: &ModelError<'_>, reply: &Reply<'_>) {
    start(out, MODEL_ERROR, reply);
    out.extend_from_slice(b"x-amzn-ErrorType: ModelError\r\n");
    finish(out, error.members().to_string().as_bytes(), reply);
}

/// The status of a [`ModelError`].
pub const MODEL_ERROR: u16 = 424;

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Self {
        let Reject { status, reason, message } = reject;
        Self { status, reason, message, retry_after: None }
    }
}

/// How an answer goes to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply<'a> {
    /// Leaves the body out (answers to HEAD).
    pub head_only: bool,
    /// Whether the connection stays open. This is about HTTP/1.1; `false` for a client of HTTP/1.0.
    pub keep_alive: bool,
    /// Fields to add.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// Who may read it.
    pub cors: Cors<'a>,
}

/// Writes an error response.
pub fn failure(out: &mut Vec<u8>, form: ErrorForm, failure: &Failure, reply: &Reply<'_>) {
    let body = match form {
        ErrorForm::OpenAi => serde_json::json!({
            "error": {
                "message": failure.message,
                "type": openai_type(failure.status),
                "param": null,
                "code": failure.reason,
            }
        }),
        ErrorForm::Anthropic => serde_json::json!({
            "type": "error",
            "error": { "type": anthropic_type(failure.status), "message": failure.message },
        }),
        ErrorForm::SageMakerRuntime if failure.status == MODEL_ERROR => {
            ModelError { status: 0, message: &failure.message }.members()
        }
        ErrorForm::SageMaker | ErrorForm::SageMakerRuntime => {
            serde_json::json!({ "Message": failure.message })
        }
    };
    start(out, failure.status, reply);
    let _ = write!(out, "x-atalho-error: {}\r\n", failure.reason);
    let aws_type = match form {
        ErrorForm::SageMaker => Some(sagemaker_type(failure.status)),
        ErrorForm::SageMakerRuntime => Some(runtime_type(failure.status)),
        ErrorForm::OpenAi | ErrorForm::Anthropic => None,
    };
    if let Some(name) = aws_type {
        let _ = write!(out, "x-amzn-ErrorType: {name}\r\n");
    }
    if let Some(seconds) = failure.retry_after {
        let _ = write!(out, "Retry-After: {seconds}\r\n");
    }
    finish(out, body.to_string().as_bytes(), reply);
}

/// Writes a JSON response.
pub fn json(out: &mut Vec<u8>, status: u16, body: &[u8], reply: &Reply<'_>) {
    start(out, status, reply);
    finish(out, body, reply);
}

/// Writes a response without content (204).
pub fn no_content(out: &mut Vec<u8>, reply: &Reply<'_>) {
    start(out, 204, reply);
    out.extend_from_slice(b"\r\n");
}

fn start(out: &mut Vec<u8>, status: u16, reply: &Reply<'_>) {
    let _ = write!(out, "HTTP/1.1 {status} {}\r\nDate: ", phrase(status));
    let _ = write!(out, "{}\r\n", date());
    rewrite::connection(out, Version::Http11, reply.keep_alive);
    for (name, value) in reply.fields {
        rewrite::field(out, name.as_bytes(), value);
    }
    reply.cors.each(|name, value| rewrite::field(out, name.as_bytes(), value));
}

fn finish(out: &mut Vec<u8>, body: &[u8], reply: &Reply<'_>) {
    let length = body.len();
    let _ = write!(out, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    if !reply.head_only {
        out.extend_from_slice(body);
    }
}

/// `error.type` as OpenAI's API has it.
fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// `error.type` as Anthropic's API has it.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Errors that InvokeEndpoint has in the service's model, by their statuses.
fn runtime_type(status: u16) -> &'static str {
    match status {
        MODEL_ERROR => "ModelError",
        429 => "ModelNotReadyException",
        503 => "ServiceUnavailable",
        500.. => "InternalFailure",
        _ => "ValidationError",
    }
}

/// Error shapes of SageMaker's APIs.
fn sagemaker_type(status: u16) -> &'static str {
    match status {
        429 => "ThrottlingException",
        501 => "ValidationError",
        502 | 504 => "InternalDependencyException",
        503 => "ServiceUnavailable",
        500.. => "InternalFailure",
        _ => "ValidationError",
    }
}

/// The reason phrases of RFC 9110 section 15.
fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        424 => "Failed Dependency",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

/// The time of day, as HTTP writes it (RFC 9110 section 5.6.7).
fn date() -> httpdate::HttpDate {
    // A clock that is wrong by half a century is no reason to fail.
    SystemTime::now().max(SystemTime::UNIX_EPOCH).into()
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
