//! What a request asks for: its prompt as tokens, and how the answer is to look.

use serde_json::Value;

use super::tokens::tokenize;

/// The inference APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions.
    Completions,
    /// OpenAI responses.
    Responses,
    /// OpenAI embeddings.
    Embeddings,
    /// Anthropic messages.
    Messages,
    /// SGLang's own API.
    Generate,
    /// SageMaker's container contract: any bytes.
    Invocations,
}

impl Api {
    /// The API behind a path.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/messages" => Self::Messages,
            "/generate" => Self::Generate,
            "/invocations" => Self::Invocations,
            _ => return None,
        })
    }

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            Self::Generate => "generate",
            Self::Invocations => "invocations",
        }
    }
}

/// A request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The API whose shape the answer takes. A chat body sent to `/invocations` is a chat.
    pub api: Api,
    /// The model asked for; empty for the served one.
    pub model: String,
    /// Separates tenants in the cache (`cache_salt`).
    pub salt: String,
    /// The rendered prompt; never empty.
    pub tokens: Vec<u32>,
    /// Tokens to generate, if limited.
    pub max_tokens: Option<u32>,
    /// Whether the answer is a stream of events.
    pub stream: bool,
    /// Whether a chat or completion stream ends with its usage.
    pub include_usage: bool,
}

/// Why a request is refused; the text is for the client.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

fn invalid<T>(text: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid(text.into()))
}

/// Understands `body` as a request to `api`.
///
/// # Errors
/// When it is no JSON object or lacks the prompt; never for `/invocations`, which takes any bytes.
pub fn parse(api: Api, body: &[u8]) -> Result<Prompt, Invalid> {
    let value = match serde_json::from_slice::<Value>(body) {
        Ok(value) if value.is_object() => value,
        _ if api == Api::Invocations => return Ok(raw(body)),
        Ok(_) => return invalid("the body must be a JSON object"),
        Err(error) => return invalid(format!("the body is not JSON: {error}")),
    };
    let api = match api {
        Api::Invocations if value.get("messages").is_some() => Api::Chat,
        Api::Invocations if value.get("prompt").is_some() => Api::Completions,
        api => api,
    };
    let mut tokens = Vec::new();
    match api {
        Api::Chat => chat(&value, &mut tokens)?,
        Api::Completions => one_or_many(&value, "prompt", &mut tokens)?,
        Api::Embeddings => one_or_many(&value, "input", &mut tokens)?,
        Api::Responses => responses(&value, &mut tokens)?,
        Api::Messages => {
            if let Some(system) = value.get("system") {
                message("system", system, &mut tokens);
            }
            chat(&value, &mut tokens)?;
        }
        Api::Generate => {
            let field = if value.get("text").is_some() { "text" } else { "input_ids" };
            one_or_many(&value, field, &mut tokens)?;
        }
        Api::Invocations => return Ok(raw(body)),
    }
    if tokens.is_empty() {
        // A real engine starts with a token of its own.
        tokens.push(0);
    }
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let flag = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
    Ok(Prompt {
        api,
        model: text("model"),
        salt: text("cache_salt"),
        max_tokens: max_tokens(api, &value)?,
        stream: flag(value.get("stream")) && api != Api::Embeddings,
        include_usage: flag(value.pointer("/stream_options/include_usage")),
        tokens,
    })
}

fn raw(body: &[u8]) -> Prompt {
    let mut tokens = Vec::new();
    tokenize(&String::from_utf8_lossy(body), &mut tokens);
    if tokens.is_empty() {
        tokens.push(0);
    }
    Prompt {
        api: Api::Invocations,
        model: String::new(),
        salt: String::new(),
        tokens,
        max_tokens: None,
        stream: false,
        include_usage: false,
    }
}

fn max_tokens(api: Api, value: &Value) -> Result<Option<u32>, Invalid> {
    let names: &[&str] = match api {
        Api::Chat => &["/max_completion_tokens", "/max_tokens"],
        Api::Completions | Api::Messages => &["/max_tokens"],
        Api::Responses => &["/max_output_tokens"],
        Api::Generate => &["/sampling_params/max_new_tokens"],
        Api::Embeddings | Api::Invocations => &[],
    };
    for name in names {
        match value.pointer(name) {
            None | Some(Value::Null) => {}
            Some(number) => match number.as_u64().and_then(|n| u32::try_from(n).ok()) {
                Some(n) if n > 0 => return Ok(Some(n)),
                _ => return invalid(format!("{} must be a positive integer", &name[1..])),
            },
        }
    }
    if api == Api::Messages {
        return invalid("max_tokens: Field required");
    }
    Ok(None)
}

fn chat(value: &Value, tokens: &mut Vec<u32>) -> Result<(), Invalid> {
    if let Some(tools) = value.get("tools").filter(|tools| !tools.is_null()) {
        message("tools", &Value::String(tools.to_string()), tokens);
    }
    let Some(messages) = value.get("messages").and_then(Value::as_array) else {
        return invalid("messages: a list is required");
    };
    for entry in messages {
        let role = entry.get("role").and_then(Value::as_str).unwrap_or("user");
        message(role, entry.get("content").unwrap_or(&Value::Null), tokens);
    }
    open("assistant", tokens);
    Ok(())
}

fn responses(value: &Value, tokens: &mut Vec<u32>) -> Result<(), Invalid> {
    if let Some(instructions) = value.get("instructions") {
        message("system", instructions, tokens);
    }
    match value.get("input") {
        Some(Value::String(text)) => message("user", &Value::String(text.clone()), tokens),
        Some(Value::Array(items)) => {
            for item in items {
                let role = item.get("role").and_then(Value::as_str).unwrap_or("user");
                message(role, item.get("content").unwrap_or(&Value::Null), tokens);
            }
        }
        _ => return invalid("input: a string or a list is required"),
    }
    open("assistant", tokens);
    Ok(())
}

/// A message as the chat template renders it. Role marks and content are tokenized apart, so that
/// content has the same tokens wherever it stands.
fn message(role: &str, content: &Value, tokens: &mut Vec<u32>) {
    open(role, tokens);
    match content {
        Value::String(text) => tokenize(text, tokens),
        Value::Array(parts) => {
            for text in parts.iter().filter_map(|part| part.get("text")?.as_str()) {
                tokenize(text, tokens);
            }
        }
        _ => {}
    }
}

/// The mark in front of a message, as the chat template renders it.
pub fn open(role: &str, tokens: &mut Vec<u32>) {
    tokenize("<", tokens);
    tokenize(role, tokens);
    tokenize(">", tokens);
}

/// A text, a list of texts, token ids, or a list of lists of token ids. Several prompts become one:
/// a real engine would answer each, which no router can tell apart.
fn one_or_many(value: &Value, field: &str, tokens: &mut Vec<u32>) -> Result<(), Invalid> {
    match value.get(field) {
        Some(Value::String(text)) => tokenize(text, tokens),
        Some(Value::Array(items)) => {
            for item in items {
                match item {
                    Value::String(text) => tokenize(text, tokens),
                    Value::Number(id) => tokens.push(id.as_u64().unwrap_or(0) as u32),
                    Value::Array(ids) => {
                        tokens.extend(ids.iter().map(|id| id.as_u64().unwrap_or(0) as u32));
                    }
                    _ => return invalid(format!("{field}: texts or token ids are required")),
                }
            }
        }
        _ => return invalid(format!("{field}: a text or a list is required")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(api: Api, value: Value) -> Prompt {
        parse(api, value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn content_parts_equal_their_text() {
        let text = json!({"messages": [{"role": "user", "content": "four and more"}]});
        let parts = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "four and more"}, {"type": "image_url", "image_url": {}}
        ]}]});
        assert_eq!(prompt(Api::Chat, text).tokens, prompt(Api::Chat, parts).tokens);
    }

    #[test]
    fn a_following_turn_extends_the_tokens() {
        let first = prompt(
            Api::Chat,
            json!({"messages": [{"role": "system", "content": "be brief"},
                                {"role": "user", "content": "hello you"}]}),
        );
        let second = prompt(
            Api::Chat,
            json!({"messages": [{"role": "system", "content": "be brief"},
                                {"role": "user", "content": "hello you"},
                                {"role": "assistant", "content": "the sun "},
                                {"role": "user", "content": "and then?"}]}),
        );
        assert_eq!(first.tokens[..], second.tokens[..first.tokens.len()]);
        let mut answer = Vec::new();
        tokenize("the sun ", &mut answer);
        assert_eq!(second.tokens[first.tokens.len()..][..2], answer);
    }

    #[test]
    fn each_api_has_its_limit() {
        let chat = json!({"messages": [], "max_tokens": 5, "max_completion_tokens": 3,
                          "stream": true, "stream_options": {"include_usage": true}});
        let chat = prompt(Api::Chat, chat);
        assert_eq!((chat.max_tokens, chat.stream, chat.include_usage), (Some(3), true, true));
        let generate = json!({"text": "x", "sampling_params": {"max_new_tokens": 9}});
        assert_eq!(prompt(Api::Generate, generate).max_tokens, Some(9));
        assert!(parse(Api::Messages, br#"{"messages": []}"#).is_err());
        assert!(parse(Api::Chat, br#"{"messages": [], "max_tokens": 0}"#).is_err());
    }

    #[test]
    fn token_ids_are_taken_as_they_are() {
        assert_eq!(
            prompt(Api::Completions, json!({"prompt": [[1, 2], [3]]})).tokens,
            prompt(Api::Completions, json!({"prompt": [1, 2, 3]})).tokens
        );
        assert_eq!(prompt(Api::Generate, json!({"input_ids": [7]})).tokens, [7]);
    }

    #[test]
    fn invocations_take_anything() {
        let chat = parse(Api::Invocations, br#"{"messages": []}"#).unwrap();
        assert_eq!(chat.api, Api::Chat);
        let bytes = parse(Api::Invocations, b"\xff\x00 not json").unwrap();
        assert_eq!(bytes.api, Api::Invocations);
        assert_eq!(parse(Api::Invocations, b"").unwrap().tokens, [0]);
        assert!(parse(Api::Chat, b"[]").is_err());
        assert!(parse(Api::Chat, b"{").is_err());
    }
}
