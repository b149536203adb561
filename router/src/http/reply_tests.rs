use super::*;
use crate::http::{Framing, Limits, Method, parse_response};

const FORMS: [ErrorForm; 4] =
    [ErrorForm::OpenAi, ErrorForm::Anthropic, ErrorForm::SageMaker, ErrorForm::SageMakerRuntime];

const OPEN: Reply<'static> = Reply {
    head_only: false,
    keep_alive: true,
    fields: &[("x-request-id", b"req-1")],
    cors: Cors::Off,
};

fn sample(status: u16) -> Failure {
    Failure {
        status,
        reason: "busy",
        message: Cow::Borrowed("Every \"instance\" is busy;\ntry again."),
        retry_after: Some(3),
    }
}

fn parsed(out: &[u8]) -> (crate::http::ResponseHead, serde_json::Value) {
    let head = parse_response(out, Method::Post, &Limits::default()).unwrap().unwrap();
    let body = &out[head.len..];
    assert_eq!(head.framing, Framing::length(body.len() as u64));
    (head, serde_json::from_slice(body).unwrap())
}

#[test]
fn every_form_is_what_its_clients_parse() {
    let message = &sample(429).message;
    for form in FORMS {
        let mut out = Vec::new();
        failure(&mut out, form, &sample(429), &OPEN);
        let (head, body) = parsed(&out);
        assert_eq!((head.status, head.keep_alive), (429, true));
        assert_eq!(head.header(&out, "x-request-id"), Some(&b"req-1"[..]));
        assert_eq!(head.header(&out, "retry-after"), Some(&b"3"[..]));
        assert_eq!(head.header(&out, "x-atalho-error"), Some(&b"busy"[..]));
        assert_eq!(head.header(&out, "content-type"), Some(&b"application/json"[..]));
        match form {
            ErrorForm::OpenAi => {
                assert_eq!(body["error"]["message"], **message);
                assert_eq!(body["error"]["type"], "rate_limit_error");
                assert_eq!(body["error"]["code"], "busy");
                assert!(body["error"].as_object().unwrap().contains_key("param"));
            }
            ErrorForm::Anthropic => {
                assert_eq!(body["type"], "error");
                assert_eq!(body["error"]["type"], "rate_limit_error");
                assert_eq!(body["error"]["message"], **message);
            }
            ErrorForm::SageMaker | ErrorForm::SageMakerRuntime => {
                assert_eq!(body["Message"], **message);
                let expected: &[u8] = match form {
                    ErrorForm::SageMaker => b"ThrottlingException",
                    _ => b"ModelNotReadyException",
                };
                assert_eq!(head.header(&out, "X-Amzn-ErrorType"), Some(expected));
            }
        }
    }
}

#[test]
fn clients_of_the_runtime_api_meet_its_errors_only() {
    for (status, expected, name) in [
        (400, 400, "ValidationError"),
        (404, 400, "ValidationError"),
        (413, 413, "ValidationError"),
        (429, 429, "ModelNotReadyException"),
        (500, 500, "InternalFailure"),
        (501, 400, "ValidationError"),
        (502, 424, "ModelError"),
        (503, 503, "ServiceUnavailable"),
        (504, 424, "ModelError"),
    ] {
        let form = ErrorForm::SageMakerRuntime;
        let told = sample(status).in_form(form);
        let mut out = Vec::new();
        failure(&mut out, form, &told, &OPEN);
        let (head, body) = parsed(&out);
        assert_eq!((head.status, told.status), (expected, expected));
        assert_eq!(head.header(&out, "x-amzn-errortype"), Some(name.as_bytes()));
        assert_eq!(body.get("OriginalStatusCode").is_some(), name == "ModelError");
        assert_eq!(sample(status).in_form(ErrorForm::SageMaker).status, status);
    }
}

#[test]
fn an_instances_error_is_the_models() {
    let long = "\u{e9}".repeat(3000);
    for (status, message, whose) in [(404, "no \"such\" thing", "client"), (500, &long, "server")] {
        let mut out = Vec::new();
        model_error(&mut out, &ModelError { status, message }, &OPEN);
        let (head, body) = parsed(&out);
        assert_eq!((head.status, head.keep_alive), (424, true));
        assert_eq!(head.header(&out, "x-amzn-errortype"), Some(&b"ModelError"[..]));
        assert_eq!(body["OriginalStatusCode"], status);
        let original = body["OriginalMessage"].as_str().expect("text");
        assert!(message.starts_with(original) && original.chars().count() <= MODEL_MESSAGE);
        let text = body["Message"].as_str().expect("text");
        assert!(text.starts_with(&format!("Received {whose} error ({status}) from primary with")));
        assert!(text.chars().count() <= MODEL_MESSAGE);
    }
}

#[test]
fn every_status_has_a_phrase_and_a_type() {
    for status in [400, 404, 408, 413, 417, 429, 431, 500, 501, 502, 503, 504, 505] {
        assert_ne!(phrase(status), "Error", "{status}");
        for form in FORMS {
            let mut out = Vec::new();
            failure(&mut out, form, &sample(status), &Reply::default());
            let (head, _) = parsed(&out);
            assert_eq!((head.status, head.keep_alive), (status, false));
        }
    }
}

#[test]
fn an_answer_to_head_announces_the_body_it_leaves_out() {
    let (mut whole, mut head) = (Vec::new(), Vec::new());
    json(&mut whole, 200, b"{\"a\":1}", &OPEN);
    json(&mut head, 200, b"{\"a\":1}", &Reply { head_only: true, ..OPEN });
    assert!(whole.ends_with(b"\r\n\r\n{\"a\":1}"));
    assert!(head.ends_with(b"Content-Length: 7\r\n\r\n"));
}
