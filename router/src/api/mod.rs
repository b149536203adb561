//! The APIs that clients speak: one table of their paths, methods, prompts and error forms.
//!
//! What a path speaks ([`Paths::target`]), where a body has its prompt, what an error looks like, and
//! what is public are all read from [`TABLE`]; `docs/prefix.md` is generated from it.

mod base;
#[cfg(test)]
mod docs;
mod path;
mod segment;
pub mod stored;
mod table;

pub use base::{BasePath, BasePathError};
pub use path::{OwnPath, Paths, Pattern, PatternError, Target, target};
pub use table::{ApiInfo, Keys, Prompt, TABLE};

use crate::http::ErrorForm;

/// The names of all APIs.
pub const NAMES: [&str; Api::ALL.len()] = {
    let mut names = [""; Api::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TABLE[at].name;
        at += 1;
    }
    names
};

/// A call of SageMaker's runtime API. What it answers is in that service's form, whatever the instance
/// said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// InvokeEndpoint.
    Invoke,
    /// InvokeEndpointWithResponseStream: the answer is an event stream.
    Stream,
}

/// An API that clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions.
    ChatCompletions,
    /// OpenAI's completions.
    Completions,
    /// OpenAI's responses, when they are created.
    Responses,
    /// A response that an instance has stored: to be read, cancelled or deleted there.
    StoredResponse,
    /// Embeddings, as OpenAI and Cohere have them.
    Embeddings,
    /// vLLM's pooling and classification, SGLang's encoding.
    Pooling,
    /// Anthropic's messages.
    Messages,
    /// Anthropic's count of a message's tokens.
    CountTokens,
    /// The engines' own generation: SGLang, text-generation-inference, Triton, vLLM.
    Generate,
    /// SageMaker's InvokeEndpoint: the prefix is bytes of the body, whatever they are.
    Invocations,
    /// Documents in the order of their relevance, as Cohere and Jina have it.
    Rerank,
    /// vLLM's and SGLang's scores of pairs.
    Score,
    /// Text to tokens and back.
    Tokenize,
    /// Text of speech.
    Transcriptions,
    /// Speech of text.
    Speech,
    /// Pictures of text.
    Images,
    /// OpenAI's realtime API, over WebSocket.
    Realtime,
    /// The list of models, answered from the fleet.
    Models,
    /// One model's description.
    Model,
    /// Anything else; forwarded without a prefix.
    #[default]
    Other,
}

impl Api {
    /// All of them, in order.
    pub const ALL: [Self; 20] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::StoredResponse,
        Self::Embeddings,
        Self::Pooling,
        Self::Messages,
        Self::CountTokens,
        Self::Generate,
        Self::Invocations,
        Self::Rerank,
        Self::Score,
        Self::Tokenize,
        Self::Transcriptions,
        Self::Speech,
        Self::Images,
        Self::Realtime,
        Self::Models,
        Self::Model,
        Self::Other,
    ];

    /// What the table says of it.
    pub const fn info(self) -> &'static ApiInfo {
        &TABLE[self as usize]
    }

    /// The form of the errors that this API's clients expect.
    pub const fn error_form(self) -> ErrorForm {
        self.info().error_form
    }

    /// The name used in logs, metrics and the configuration; never the client's own text.
    pub const fn as_str(self) -> &'static str {
        self.info().name
    }

    /// The API of this [name](Self::as_str).
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.as_str() == name)
    }

    /// Whether requests of this API have a prefix to route by.
    pub const fn has_prefix(self) -> bool {
        !matches!(self.info().prompt, Prompt::None)
    }

    /// Whether the body of a request of this API may name its model: in JSON, or in a form.
    pub const fn names_model(self) -> bool {
        matches!(self.info().prompt, Prompt::Json(_))
            || matches!(self, Self::Transcriptions | Self::Images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_apis_in_order() {
        assert_eq!(TABLE.len(), Api::ALL.len());
        for (at, (api, info)) in Api::ALL.iter().zip(TABLE).enumerate() {
            assert_eq!((*api as usize, info.api), (at, *api));
            assert_eq!(info.paths.is_empty(), *api == Api::Other);
            assert_eq!(info.methods.is_empty(), *api == Api::Other);
        }
        assert!(Api::ALL.ends_with(&[Api::Other]));
        let names: std::collections::HashSet<_> = TABLE.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn no_path_stands_for_two_apis() {
        let mut seen = std::collections::HashSet::new();
        for info in &TABLE {
            for path in info.paths {
                assert!(path.parse::<Pattern>().is_ok(), "{path}");
                for method in info.methods {
                    assert!(seen.insert((method.as_str(), *path)), "{path}");
                }
            }
        }
    }

    #[test]
    fn error_forms() {
        assert_eq!(Api::Messages.error_form(), ErrorForm::Anthropic);
        assert_eq!(Api::CountTokens.error_form(), ErrorForm::Anthropic);
        assert_eq!(Api::Invocations.error_form(), ErrorForm::SageMaker);
        assert_eq!(Api::Generate.error_form(), ErrorForm::OpenAi);
        assert_eq!(Api::Other.error_form(), ErrorForm::OpenAi);
    }
}
