//! What is known of each API.

use super::Api;
use crate::http::{
    ErrorForm,
    Method::{self, Delete, Get, Head, Post, Put},
};

/// An API, as the gateway knows it.
#[derive(Debug)]
pub struct ApiInfo {
    /// Which one.
    pub api: Api,
    /// Its name in logs, metrics and the configuration.
    pub name: &'static str,
    /// Methods that its paths take.
    pub methods: &'static [Method],
    /// Its paths, in the form that [`Pattern`](super::Pattern) reads. How else clients may spell
    /// them is up to [`Paths::target`](super::Paths::target).
    pub paths: &'static [&'static str],
    /// Where its prompt is.
    pub prompt: Prompt,
    /// The form of the errors that its clients expect.
    pub error_form: ErrorForm,
    /// Whether it is inference, or what clients need for it: reachable by default.
    pub public: bool,
}

/// Where a body has its prompt.
#[derive(Debug)]
pub enum Prompt {
    /// Nowhere: the request has no prefix.
    None,
    /// Everywhere: the prefix is the first bytes of the body.
    Bytes,
    /// In these members of a JSON object.
    Json(Keys),
}

/// The members of a body's JSON object that matter. Each key has at most 20 bytes.
#[derive(Debug)]
pub struct Keys {
    /// The part of the prompt that the server puts first, wherever it stands in the body. These are
    /// names of one thing: the first that comes is the one that counts.
    pub lead: &'static [&'static str],
    /// The rest of the prompt, in the order of the document. At most six.
    pub main: &'static [&'static str],
    /// Pictures, sound and the like besides the prompt: they lead as well. At most four.
    pub media: &'static [&'static str],
    /// Whether numbers in a list are token ids.
    pub ids: bool,
    /// Whether it is a list of messages, each with the `role` of who says it.
    pub roles: bool,
    /// The model or the adapter.
    pub model: &'static str,
    /// The id of a stored response that this request follows.
    pub previous: Option<&'static str>,
}

const CHAT: Keys = Keys {
    lead: &[],
    main: &["messages"],
    media: &[],
    ids: false,
    roles: true,
    model: "model",
    previous: None,
};

/// Anthropic's.
const MESSAGES: Keys = Keys { lead: &["system"], ..CHAT };

/// A method that carries a prompt.
const POST: &[Method] = &[Post];

/// One of each API, in the order of [`Api::ALL`].
pub const TABLE: [ApiInfo; Api::ALL.len()] = [
    ApiInfo {
        api: Api::ChatCompletions,
        name: "chat_completions",
        methods: POST,
        paths: &[
            "/v1/chat/completions",
            "/v1/chat/completions/batch",
            "/openai/deployments/{model}/chat/completions",
        ],
        prompt: Prompt::Json(CHAT),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Completions,
        name: "completions",
        methods: POST,
        paths: &["/v1/completions", "/openai/deployments/{model}/completions"],
        prompt: Prompt::Json(Keys { main: &["prompt"], ids: true, roles: false, ..CHAT }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Responses,
        name: "responses",
        methods: POST,
        paths: &["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"],
        prompt: Prompt::Json(Keys {
            lead: &["instructions"],
            main: &["input"],
            previous: Some("previous_response_id"),
            ..CHAT
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::StoredResponse,
        name: "stored_response",
        methods: &[Get, Head, Delete, Post],
        paths: &[
            "/v1/responses/{id}",
            "/v1/responses/{id}/cancel",
            "/v1/responses/{id}/input_items",
        ],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Embeddings,
        name: "embeddings",
        methods: POST,
        paths: &["/v1/embeddings", "/v2/embed", "/openai/deployments/{model}/embeddings"],
        prompt: Prompt::Json(Keys {
            main: &["input", "messages", "texts", "inputs"],
            roles: false,
            media: &["images"],
            ids: true,
            ..CHAT
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Pooling,
        name: "pooling",
        methods: &[Post, Put],
        paths: &["/pooling", "/v1/classify", "/encode"],
        prompt: Prompt::Json(Keys {
            main: &["input", "messages", "text", "input_ids"],
            roles: false,
            media: &["image_data", "video_data", "audio_data"],
            ids: true,
            ..CHAT
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Messages,
        name: "messages",
        methods: POST,
        paths: &["/v1/messages"],
        prompt: Prompt::Json(MESSAGES),
        error_form: ErrorForm::Anthropic,
        public: true,
    },
    ApiInfo {
        api: Api::CountTokens,
        name: "count_tokens",
        methods: POST,
        paths: &["/v1/messages/count_tokens"],
        prompt: Prompt::Json(MESSAGES),
        error_form: ErrorForm::Anthropic,
        public: true,
    },
    ApiInfo {
        api: Api::Generate,
        name: "generate",
        methods: &[Post, Put],
        paths: &[
            "/generate",
            "/generate_stream",
            "/inference/v1/generate",
            "/v2/models/{model}/generate",
            "/v2/models/{model}/generate_stream",
        ],
        prompt: Prompt::Json(Keys {
            lead: &[],
            // SGLang, text-generation-inference, Triton, vLLM; then SGLang and vLLM with ids.
            main: &["text", "inputs", "text_input", "prompt", "input_ids", "token_ids"],
            roles: false,
            media: &["image_data", "video_data", "audio_data"],
            ids: true,
            model: "lora_path",
            previous: None,
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Invocations,
        name: "invocations",
        methods: POST,
        paths: &["/invocations"],
        prompt: Prompt::Bytes,
        error_form: ErrorForm::SageMaker,
        public: true,
    },
    ApiInfo {
        api: Api::Rerank,
        name: "rerank",
        methods: &[Post, Put],
        paths: &["/v1/rerank", "/v2/rerank"],
        prompt: Prompt::Json(Keys { lead: &["query"], main: &["documents"], roles: false, ..CHAT }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Score,
        name: "score",
        methods: POST,
        paths: &["/v1/score", "/generative_scoring"],
        prompt: Prompt::Json(Keys {
            lead: &["query", "queries", "text_1", "data_1"],
            main: &["items", "documents", "text_2", "data_2"],
            roles: false,
            ..CHAT
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Tokenize,
        name: "tokenize",
        methods: POST,
        paths: &[
            "/v1/tokenize",
            "/v1/detokenize",
            "/v1/chat/completions/render",
            "/v1/completions/render",
        ],
        prompt: Prompt::Json(Keys { main: &["prompt", "messages", "tokens"], ids: true, ..CHAT }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Transcriptions,
        name: "transcriptions",
        methods: POST,
        paths: &[
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/openai/deployments/{model}/audio/transcriptions",
            "/openai/deployments/{model}/audio/translations",
        ],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Speech,
        name: "speech",
        methods: POST,
        paths: &["/v1/audio/speech", "/openai/deployments/{model}/audio/speech"],
        prompt: Prompt::Json(Keys {
            lead: &["instructions"],
            main: &["input"],
            roles: false,
            ..CHAT
        }),
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Images,
        name: "images",
        methods: POST,
        paths: &["/v1/images/generations", "/v1/images/edits", "/v1/images/variations"],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Realtime,
        name: "realtime",
        methods: &[Get],
        paths: &["/v1/realtime"],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Models,
        name: "models",
        methods: &[Get, Head],
        paths: &["/v1/models"],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Model,
        name: "model",
        methods: &[Get, Head],
        // Names such as `org/model` have slashes of their own.
        paths: &["/v1/models/{model...}"],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: true,
    },
    ApiInfo {
        api: Api::Other,
        name: "other",
        methods: &[],
        paths: &[],
        prompt: Prompt::None,
        error_form: ErrorForm::OpenAi,
        public: false,
    },
];
