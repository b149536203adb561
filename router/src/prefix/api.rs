//! Which API a request speaks, by its method and path.

use crate::http::{ErrorForm, Method};

/// An API that clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI `/v1/chat/completions`
    ChatCompletions,
    /// OpenAI `/v1/completions`
    Completions,
    /// OpenAI `/v1/responses`
    Responses,
    /// OpenAI `/v1/embeddings`
    Embeddings,
    /// Anthropic `/v1/messages`
    Messages,
    /// SGLang `/generate`
    Generate,
    /// SageMaker InvokeEndpoint: the prefix is bytes of the body, whatever they are.
    Invocations,
    /// `GET /v1/models`, answered from the fleet.
    Models,
    /// Anything else; forwarded without a prefix.
    Other,
}

impl Api {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Embeddings,
        Self::Messages,
        Self::Generate,
        Self::Invocations,
        Self::Models,
        Self::Other,
    ];

    /// The form of the errors that this API's clients expect.
    pub fn error_form(self) -> ErrorForm {
        match self {
            Self::Messages => ErrorForm::Anthropic,
            Self::Invocations => ErrorForm::SageMaker,
            _ => ErrorForm::OpenAi,
        }
    }

    /// The name used in logs; never the client's own text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            Self::Generate => "generate",
            Self::Invocations => "invocations",
            Self::Models => "models",
            Self::Other => "other",
        }
    }

    /// Whether requests of this API have a prefix to route by.
    pub fn has_prefix(self) -> bool {
        !matches!(self, Self::Models | Self::Other)
    }
}

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The API.
    pub api: Api,
    /// The endpoint that the path names.
    pub endpoint: Option<&'a str>,
    /// The inference component (model copy or adapter) that the path names.
    pub component: Option<&'a str>,
    /// The path to send on, when it is not the client's.
    pub path: Option<&'a str>,
}

/// Reads a path (without query), byte for byte: nothing is decoded or normalised, so an unusual
/// spelling is [`Api::Other`] and goes on as it is.
///
/// Besides the plain paths there are those of SageMaker's runtime API, which name an endpoint:
/// `/endpoints/{name}/invocations` and `/endpoints/{name}/openai/v1/...`, both optionally with
/// `/inference-components/{component}` behind the endpoint. Instances get the part they know:
/// `/invocations` or `/v1/...`.
pub fn target(method: Method, path: &str) -> Target<'_> {
    let plain = Target { api: api(method, path), endpoint: None, component: None, path: None };
    named(method, path).unwrap_or(plain)
}

fn named(method: Method, path: &str) -> Option<Target<'_>> {
    let (endpoint, rest) = segment(path.strip_prefix("/endpoints/")?)?;
    let (component, rest) = match rest.strip_prefix("/inference-components/") {
        Some(rest) => segment(rest).map(|(component, rest)| (Some(component), rest))?,
        None => (None, rest),
    };
    let path = match rest.strip_prefix("/openai") {
        Some(path) if path.starts_with("/v1/") => path,
        None if rest == "/invocations" => rest,
        _ => return None,
    };
    Some(Target { api: api(method, path), endpoint: Some(endpoint), component, path: Some(path) })
}

/// Splits `name/rest` into a non-empty name and `/rest`.
fn segment(path: &str) -> Option<(&str, &str)> {
    let at = path.find('/').filter(|&at| at > 0)?;
    Some(path.split_at(at))
}

fn api(method: Method, path: &str) -> Api {
    match (method, path) {
        (Method::Get | Method::Head, "/v1/models") => Api::Models,
        (Method::Post, "/v1/chat/completions") => Api::ChatCompletions,
        (Method::Post, "/v1/completions") => Api::Completions,
        (Method::Post, "/v1/responses") => Api::Responses,
        (Method::Post, "/v1/embeddings") => Api::Embeddings,
        (Method::Post, "/v1/messages") => Api::Messages,
        (Method::Post, "/generate") => Api::Generate,
        (Method::Post, "/invocations") => Api::Invocations,
        _ => Api::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_apis_are_in_order() {
        assert!(Api::ALL.iter().enumerate().all(|(at, api)| *api as usize == at));
        assert!(Api::ALL.len() <= crate::engine::KINDS && Api::ALL.ends_with(&[Api::Other]));
    }

    #[test]
    fn plain_paths() {
        for (path, expected) in [
            ("/v1/chat/completions", Api::ChatCompletions),
            ("/v1/completions", Api::Completions),
            ("/v1/responses", Api::Responses),
            ("/v1/embeddings", Api::Embeddings),
            ("/v1/messages", Api::Messages),
            ("/generate", Api::Generate),
            ("/invocations", Api::Invocations),
            ("/v1/models", Api::Other),
            ("/v1/chat/completions/", Api::Other),
            ("/V1/chat/completions", Api::Other),
            ("/v1/messages/count_tokens", Api::Other),
            ("", Api::Other),
            ("*", Api::Other),
        ] {
            let expected = Target { api: expected, endpoint: None, component: None, path: None };
            assert_eq!(target(Method::Post, path), expected, "{path}");
        }
        assert_eq!(target(Method::Get, "/v1/models").api, Api::Models);
        assert_eq!(target(Method::Get, "/v1/chat/completions").api, Api::Other);
    }

    #[test]
    fn paths_that_name_an_endpoint() {
        let case = |path| {
            let t = target(Method::Post, path);
            (t.api, t.endpoint, t.component, t.path)
        };
        assert_eq!(
            case("/endpoints/chat/invocations"),
            (Api::Invocations, Some("chat"), None, Some("/invocations"))
        );
        assert_eq!(
            case("/endpoints/chat/openai/v1/chat/completions"),
            (Api::ChatCompletions, Some("chat"), None, Some("/v1/chat/completions"))
        );
        assert_eq!(
            case("/endpoints/chat/inference-components/lora-1/openai/v1/responses"),
            (Api::Responses, Some("chat"), Some("lora-1"), Some("/v1/responses"))
        );
        assert_eq!(
            case("/endpoints/chat/openai/v1/unheard-of"),
            (Api::Other, Some("chat"), None, Some("/v1/unheard-of"))
        );
        for path in [
            "/endpoints/chat",
            "/endpoints/",
            "/endpoints//invocations",
            "/endpoints/chat/",
            "/endpoints/chat/openai",
            "/endpoints/chat/openai/v2/x",
            "/endpoints/chat/openaiv1/x",
            "/endpoints/chat/invocations/x",
            "/endpoints/chat/inference-components//invocations",
        ] {
            assert_eq!(case(path), (Api::Other, None, None, None), "{path}");
        }
    }

    #[test]
    fn error_forms() {
        assert_eq!(Api::Messages.error_form(), ErrorForm::Anthropic);
        assert_eq!(Api::Invocations.error_form(), ErrorForm::SageMaker);
        assert_eq!(Api::Generate.error_form(), ErrorForm::OpenAi);
        assert_eq!(Api::Other.error_form(), ErrorForm::OpenAi);
    }
}
