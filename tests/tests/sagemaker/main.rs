//! SageMaker's runtime API: what its clients get for what instances answer.

mod adapters;
mod clients;
mod components;
mod control;
mod invoke;
mod rollouts;
mod sessions;
mod shadow;
mod stream;

use tests::{Head, Message, message::request_with};

/// A call of the endpoint that there is.
fn call(operation: &str, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    request_with("POST", &format!("/endpoints/default/{operation}"), fields, body)
}

/// The type of an error, checked for what every error has.
#[track_caller]
fn error_type(answer: &Message) -> &str {
    let message = answer.json();
    let message = message["Message"].as_str().expect("a text");
    assert!((1..=2048).contains(&message.chars().count()), "{message}");
    answer.get("x-amzn-errortype").expect("a type")
}

/// The variant that an answer names.
fn variant(head: &Head) -> Option<&str> {
    head.get("x-amzn-invoked-production-variant")
}
