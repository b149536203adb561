//! What the requests of SageMaker's runtime API may say in their heads.
//!
//! Names, lengths and patterns are those of the service's own model (`sagemaker-runtime`, 2017-05-13). A
//! test compares them with the model that botocore brings.

use std::{fmt::Write as _, time::SystemTime};

use crate::api::Call;

/// Characters of a refused value that an error repeats.
const SHOWN: usize = 100;

/// A parameter that a request has in a header.
#[derive(Debug)]
pub struct Parameter {
    /// Its name in messages.
    pub name: &'static str,
    /// The header.
    pub header: &'static str,
    /// Fewest characters.
    pub min: usize,
    /// Most characters.
    pub max: usize,
    /// What it may consist of.
    pub pattern: Pattern,
    /// Whether errors may repeat it.
    sensitive: bool,
    /// Which calls have it.
    calls: Calls,
}

/// Which calls have a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Both,
    Only(Call),
}

/// What a value may consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Letters, digits, and hyphens between them.
    Name,
    /// The same, or `NEW_SESSION`.
    NameOrNewSession,
    /// Printable ASCII, the first no space.
    Printable,
    /// ASCII.
    Ascii,
    /// Anything that a header can hold.
    Any,
}

/// Asks for a new session in place of the id of one.
pub const NEW_SESSION: &str = "NEW_SESSION";

impl Pattern {
    fn matches(self, value: &[u8]) -> bool {
        match self {
            Self::Name => is_name(value),
            Self::NameOrNewSession => value == NEW_SESSION.as_bytes() || is_name(value),
            Self::Printable => {
                value.first().is_some_and(u8::is_ascii_graphic)
                    && value.iter().all(|b| matches!(b, b' '..=b'~'))
            }
            Self::Ascii => value.is_ascii(),
            Self::Any => true,
        }
    }

    /// As the service's model has it.
    fn text(self) -> &'static str {
        match self {
            Self::Name => "^[a-zA-Z0-9](-*[a-zA-Z0-9])*$",
            Self::NameOrNewSession => "^(NEW_SESSION)$|^[a-zA-Z0-9](-*[a-zA-Z0-9])*$",
            Self::Printable => r"\A\S[\p{Print}]*\z",
            Self::Ascii => r"\p{ASCII}*",
            Self::Any => ".*",
        }
    }
}

fn is_name(value: &[u8]) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(value.first())
        && edge(value.last())
        && value.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

const fn parameter(name: &'static str, header: &'static str, pattern: Pattern) -> Parameter {
    Parameter { name, header, min: 0, max: 63, pattern, sensitive: false, calls: Calls::Both }
}

/// The header that names an inference component.
pub const COMPONENT: &str = "x-amzn-sagemaker-inference-component";
/// The header by which a server knows the adapter that a request is for.
pub const ADAPTER: &str = "x-amzn-sagemaker-adapter-identifier";
/// The header that names a session, or asks for a new one.
pub const SESSION: &str = "x-amzn-sagemaker-session-id";
/// The header of an answer that opens a session.
pub const NEW_SESSION_ID: &str = "x-amzn-sagemaker-new-session-id";
/// The header of an answer that closes a session.
pub const CLOSED_SESSION_ID: &str = "x-amzn-sagemaker-closed-session-id";
/// The header by which a streaming call says which types it accepts.
pub const STREAM_ACCEPT: &str = "x-amzn-sagemaker-accept";

/// All of them.
pub const PARAMETERS: &[Parameter] = &[
    Parameter { max: 1024, ..parameter("contentType", "content-type", Pattern::Ascii) },
    Parameter {
        max: 1024,
        calls: Calls::Only(Call::Invoke),
        ..parameter("accept", "accept", Pattern::Ascii)
    },
    Parameter {
        max: 1024,
        calls: Calls::Only(Call::Stream),
        ..parameter("accept", STREAM_ACCEPT, Pattern::Ascii)
    },
    Parameter {
        max: 1024,
        sensitive: true,
        ..parameter("customAttributes", "x-amzn-sagemaker-custom-attributes", Pattern::Ascii)
    },
    Parameter {
        min: 1,
        max: 1024,
        calls: Calls::Only(Call::Invoke),
        ..parameter("targetModel", "x-amzn-sagemaker-target-model", Pattern::Printable)
    },
    parameter("targetVariant", "x-amzn-sagemaker-target-variant", Pattern::Name),
    parameter(
        "targetContainerHostname",
        "x-amzn-sagemaker-target-container-hostname",
        Pattern::Name,
    ),
    Parameter {
        min: 1,
        max: 64,
        ..parameter("inferenceId", "x-amzn-sagemaker-inference-id", Pattern::Printable)
    },
    Parameter {
        min: 1,
        max: 64,
        calls: Calls::Only(Call::Invoke),
        ..parameter("enableExplanations", "x-amzn-sagemaker-enable-explanations", Pattern::Any)
    },
    parameter("inferenceComponentName", COMPONENT, Pattern::Name),
    Parameter {
        max: 256,
        calls: Calls::Only(Call::Invoke),
        ..parameter("sessionId", SESSION, Pattern::NameOrNewSession)
    },
    Parameter {
        max: 256,
        calls: Calls::Only(Call::Stream),
        ..parameter("sessionId", SESSION, Pattern::Name)
    },
    Parameter {
        min: 1,
        max: 64,
        ..parameter("prefixAwareId", "x-amzn-sagemaker-prefix-aware-id", Pattern::Printable)
    },
];

/// The id of a session that an answer opens, and when it ends: `id; Expires=2026-01-31T12:00:00Z`.
pub fn new_session(value: &[u8]) -> Option<(&str, SystemTime)> {
    let (id, rest) = std::str::from_utf8(value).ok()?.split_once(';')?;
    let time = rest.trim_start().strip_prefix("Expires=")?;
    let end = humantime::parse_rfc3339(time).ok()?;
    (is_name(id.as_bytes()) && value.len() <= 256).then_some((id, end))
}

/// The parameter that a request has in its path.
const ENDPOINT: Parameter = parameter("endpointName", "", Pattern::Name);

/// Checks what the head of a request to an endpoint says; `value` gives the value of a header. Without a
/// `call` it is of another API, and has the component's name alone.
///
/// # Errors
/// What is wrong with it, as the service words it.
pub fn check<'a>(
    endpoint: &[u8],
    call: Option<Call>,
    value: impl Fn(&'static str) -> Option<&'a [u8]>,
) -> Result<(), String> {
    let mut count = 0;
    let mut faults = String::new();
    let applies = |parameter: &&Parameter| match (call, parameter.calls) {
        (None, _) => parameter.header == COMPONENT,
        (Some(_), Calls::Both) => true,
        (Some(call), Calls::Only(only)) => only == call,
    };
    let parameters = PARAMETERS.iter().filter(applies);
    let given = parameters.filter_map(|parameter| Some((parameter, value(parameter.header)?)));
    let of_path = call.map(|_| (&ENDPOINT, endpoint));
    for (parameter, value) in of_path.into_iter().chain(given) {
        if let Some(fault) = fault(parameter, value) {
            let between = if count == 0 { "" } else { "; " };
            let _ = write!(faults, "{between}{fault}");
            count += 1;
        }
    }
    let s = if count == 1 { "" } else { "s" };
    match count {
        0 => Ok(()),
        count => Err(format!("{count} validation error{s} detected: {faults}")),
    }
}

fn fault(parameter: &Parameter, value: &[u8]) -> Option<String> {
    let Parameter { name, min, max, pattern, sensitive, .. } = *parameter;
    // Header values are bytes: each stands for one character.
    let constraint = if value.len() < min {
        format!("Member must have length greater than or equal to {min}")
    } else if value.len() > max {
        format!("Member must have length less than or equal to {max}")
    } else if !pattern.matches(value) {
        format!("Member must satisfy regular expression pattern: {}", pattern.text())
    } else {
        return None;
    };
    let shown: String = match sensitive {
        true => "***".into(),
        false => String::from_utf8_lossy(value).chars().take(SHOWN).collect(),
    };
    Some(format!("Value '{shown}' at '{name}' failed to satisfy constraint: {constraint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: Call, header: &str, value: &[u8]) -> Result<(), String> {
        check(b"e", Some(call), |name| (name == header).then_some(value))
    }

    #[test]
    fn values_at_their_edges() {
        for parameter in PARAMETERS {
            let call = match parameter.calls {
                Calls::Both => Call::Invoke,
                Calls::Only(call) => call,
            };
            let said = |value: &[u8]| said(call, parameter.header, value).is_ok();
            let name = parameter.name;
            assert!(said(&vec![b'x'; parameter.max]), "{name}");
            assert!(!said(&vec![b'x'; parameter.max + 1]), "{name}");
            let takes_nothing = parameter.min == 0 && parameter.pattern == Pattern::Ascii;
            assert_eq!(said(b""), takes_nothing, "{name}");
            assert!(said(b"a-1"), "{name}");
            let is_name = matches!(parameter.pattern, Pattern::Name | Pattern::NameOrNewSession);
            for (value, fits) in [
                (&b"a b"[..], !is_name),
                (b"-a", !is_name),
                (b"a-", !is_name),
                (b"caf\xe9", parameter.pattern == Pattern::Any),
                (b"a\tb", matches!(parameter.pattern, Pattern::Ascii | Pattern::Any)),
            ] {
                assert_eq!(said(value), fits, "{name} {value:?}");
            }
        }
    }

    #[test]
    fn endpoints_have_names_and_other_apis_components() {
        let check = |endpoint: &[u8], call, value| check(endpoint, call, |_| value);
        assert_eq!(check(&[b'e'; 63], Some(Call::Stream), None), Ok(()));
        assert!(check(&[b'e'; 64], Some(Call::Stream), None).is_err());
        assert!(check(b"a_b", Some(Call::Invoke), None).is_err_and(|m| m.contains("endpointName")));
        assert_eq!(check(b"a_b", None, Some(b"component-1")), Ok(()));
        assert!(check(b"e", None, Some(b"a.b")).is_err_and(|m| m.starts_with("1 validation")));
    }

    #[test]
    fn sessions_begin_with_plain_calls() {
        assert_eq!(said(Call::Invoke, SESSION, b"NEW_SESSION"), Ok(()));
        let refused = said(Call::Stream, SESSION, b"NEW_SESSION").expect_err("a constant");
        assert!(refused.contains("'NEW_SESSION' at 'sessionId' failed"), "{refused}");
    }

    #[test]
    fn new_sessions() {
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400);
        assert_eq!(new_session(b"s-1; Expires=1970-01-02T00:00:00Z"), Some(("s-1", end)));
        for bad in [
            &b"s-1"[..],
            b"s-1; Expires=tomorrow",
            b"s_1; Expires=1970-01-02T00:00:00Z",
            b"; Expires=1970-01-02T00:00:00Z",
            b"\xff; Expires=1970-01-02T00:00:00Z",
        ] {
            assert_eq!(new_session(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_fault_is_named() {
        let all = check(b"e", Some(Call::Invoke), |name| match name {
            "x-amzn-sagemaker-target-variant" => Some(b"-"),
            "x-amzn-sagemaker-custom-attributes" => Some(&[b'x'; 1025]),
            _ => None,
        });
        assert_eq!(
            all.expect_err("two faults"),
            "2 validation errors detected: Value '***' at 'customAttributes' failed to satisfy \
             constraint: Member must have length less than or equal to 1024; Value '-' at \
             'targetVariant' failed to satisfy constraint: Member must satisfy regular expression \
             pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"
        );
        assert!(
            said(Call::Invoke, "x-amzn-sagemaker-inference-id", &[b'x'; 999])
                .is_err_and(|text| text.len() < 300)
        );
    }
}
