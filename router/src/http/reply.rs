//! Answers that the gateway makes itself.

use std::borrow::Cow;

use super::head::Reject;

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
}

/// An error that the gateway itself answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub status: u16,
    /// The reason as a short fixed word, sent as `x-atalho-error`.
    pub reason: &'static str,
    /// The reason as a sentence a person can act on.
    pub message: Cow<'static, str>,
    /// `Retry-After`, seconds.
    pub retry_after: Option<u32>,
}

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Self {
        Self {
            status: reject.status,
            reason: reject.reason,
            message: reject.message,
            retry_after: None,
        }
    }
}

/// Writes an error response. `head_only` leaves the body out (answers to HEAD).
pub fn failure(
    out: &mut Vec<u8>,
    form: ErrorForm,
    failure: &Failure,
    head_only: bool,
    keep_alive: bool,
) {
    let _ = (out, form, failure, head_only, keep_alive);
}

/// Writes a JSON response. `head_only` leaves the body out (answers to HEAD).
pub fn json(out: &mut Vec<u8>, status: u16, body: &[u8], head_only: bool, keep_alive: bool) {
    let _ = (out, status, body, head_only, keep_alive);
}
