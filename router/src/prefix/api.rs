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
    /// The form of the errors that this API's clients expect.
    pub fn error_form(self) -> ErrorForm {
        match self {
            Self::Messages => ErrorForm::Anthropic,
            Self::Invocations => ErrorForm::SageMaker,
            _ => ErrorForm::OpenAi,
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

/// Reads a path (without query).
pub fn target(method: Method, path: &str) -> Target<'_> {
    let _ = method;
    Target {
        api: if path.is_empty() { Api::Other } else { Api::Other },
        endpoint: None,
        component: None,
        path: None,
    }
}
