//! AWS JSON 1.1: how calls of the control API travel.
//!
//! A call is a `POST /` with the operation in `X-Amz-Target` and its input as the body. What it answers is
//! JSON, too; an error has its code in `__type`, where the SDKs look for it:
//! <https://smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html>.

use serde_json::{Value, json};

use super::{
    AwsError,
    service::{self, Operation},
};

/// Of requests and responses.
pub const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// The operation that a call's `X-Amz-Target` names, as in `SageMaker.CreateEndpoint`.
///
/// # Errors
/// `UnknownOperationException` when there is none, or it is not offered.
pub fn operation(target: Option<&[u8]>) -> Result<&'static Operation, AwsError> {
    let prefix = service::target_prefix();
    let Some(target) = target else {
        return Err(AwsError::unknown_operation(format!(
            "The request has no X-Amz-Target, such as {prefix}.CreateEndpoint."
        )));
    };
    let text = str::from_utf8(target).unwrap_or_default();
    let name = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
    name.and_then(service::operation).ok_or_else(|| {
        let names: Vec<&str> = service::operations().iter().map(Operation::name).collect();
        let shown: String = String::from_utf8_lossy(target).chars().take(128).collect();
        AwsError::unknown_operation(format!(
            "The operation {shown:?} is not offered. {prefix}'s operations here are {}.",
            names.join(", ")
        ))
    })
}

/// The input that a call's body holds.
///
/// # Errors
/// `SerializationException` when it is no JSON object.
pub fn input(body: &[u8]) -> Result<Value, AwsError> {
    // Calls without any input may have no body.
    if body.trim_ascii().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_slice(body) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err(AwsError::serialization("The request's body is not a JSON object.")),
        Err(error) => {
            Err(AwsError::serialization(format!("The request's body is not JSON: {error}.")))
        }
    }
}

/// The body of a response that says what an operation did. One that answers nothing has an empty body.
#[must_use]
pub fn output_body(output: &Value) -> Vec<u8> {
    match output {
        Value::Null => Vec::new(),
        Value::Object(members) if members.is_empty() => Vec::new(),
        output => output.to_string().into_bytes(),
    }
}

/// The body of a response that says why it did not.
#[must_use]
pub fn error_body(error: &AwsError) -> Vec<u8> {
    json!({ "__type": error.name, "message": error.message }).to_string().into_bytes()
}

/// A time as outputs have it: in seconds since 1970, with milliseconds as its fraction.
#[must_use]
pub fn seconds(millis: u64) -> Value {
    json!(millis as f64 / 1000.0)
}

/// A time as inputs have it, in milliseconds since 1970, rounded down; `None` if there is none.
#[must_use]
pub fn millis(seconds: &Value) -> Option<i64> {
    // Casts of numbers that are too large end at the largest.
    seconds.as_f64().map(|seconds| (seconds * 1000.0).floor() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_an_operation() {
        let found = operation(Some(b"SageMaker.CreateEndpoint")).expect("it is offered");
        assert_eq!(found.name(), "CreateEndpoint");
        for target in [
            &b""[..],
            b"SageMaker",
            b"SageMaker.",
            b"SageMaker.CreateTrainingJob",
            b"SageMaker.createEndpoint",
            b"SageMakerCreateEndpoint",
            b"CreateEndpoint",
            b"DynamoDB_20120810.CreateEndpoint",
            b"SageMaker.CreateEndpoint ",
            b"\xff\xfe",
        ] {
            let error = operation(Some(target)).unwrap_err();
            assert_eq!((error.name, error.status), ("UnknownOperationException", 400));
            assert!(error.message.contains("DescribeEndpoint"), "{}", error.message);
        }
        assert_eq!(operation(None).unwrap_err().name, "UnknownOperationException");
    }

    #[test]
    fn an_input_is_an_object() {
        assert_eq!(input(b"").unwrap(), json!({}));
        assert_eq!(input(b" \r\n").unwrap(), json!({}));
        assert_eq!(input(b"{\"a\": 1}").unwrap(), json!({ "a": 1 }));
        let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
        for body in [&b"[]"[..], b"1", b"null", b"{", b"{} {}", b"{\"a\": NaN}", b"\xff", &deep] {
            assert_eq!(input(body).unwrap_err().name, "SerializationException");
        }
    }

    #[test]
    fn an_error_has_its_code_in_the_body() {
        let body = error_body(&AwsError::validation("no \"such\" thing"));
        let read: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            read,
            json!({ "__type": "ValidationException", "message": "no \"such\" thing" })
        );
    }

    #[test]
    fn what_answers_nothing_has_an_empty_body() {
        assert!(output_body(&json!({})).is_empty());
        assert!(output_body(&Value::Null).is_empty());
        assert_eq!(output_body(&json!({ "ModelArn": "x" })), b"{\"ModelArn\":\"x\"}");
    }

    #[test]
    fn times_are_seconds_with_a_fraction() {
        assert_eq!(seconds(1_529_870_369_986).to_string(), "1529870369.986");
        assert_eq!(seconds(0).to_string(), "0.0");
        for moment in [0, 1, 999, 1_000, 1_529_870_369_986, 4_102_444_800_001] {
            assert_eq!(millis(&seconds(moment)), Some(moment as i64));
        }
        assert_eq!(millis(&json!(-0.5)), Some(-500));
        assert_eq!(millis(&json!(1e300)), Some(i64::MAX));
        assert_eq!(millis(&json!("1970-01-01")), None);
    }
}
