//! How answers look, per API.

mod anthropic;
mod openai;
mod responses;
mod sglang;

use serde_json::{Value, json};

use super::prompt::Api;

/// Token counts of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of those, found in the cache.
    pub cached: u32,
    /// Tokens generated.
    pub generated: u32,
}

/// The answer to one request, without its text.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Whose shape it takes.
    pub api: Api,
    /// Unique on this host.
    pub id: String,
    /// The model's name as the client gave it.
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Whether a stream ends with its usage (OpenAI only; the other APIs always say it).
    pub include_usage: bool,
    /// Whether the answer ends because the client limited it.
    pub limited: bool,
}

impl Reply {
    /// Events before the first token.
    pub fn opening(&self, usage: Usage) -> String {
        match self.api {
            Api::Chat => openai::chat_opening(self),
            Api::Responses => responses::opening(self),
            Api::Messages => anthropic::opening(self, usage),
            _ => String::new(),
        }
    }

    /// The event for one token: `word`, with which the text so far is `text`.
    pub fn token(&self, word: &str, text: &str, usage: Usage) -> String {
        match self.api {
            Api::Chat => openai::chat_token(self, word),
            Api::Completions => openai::completion_token(self, word),
            Api::Responses => responses::token(self, word),
            Api::Messages => anthropic::token(word),
            Api::Generate => data(&sglang::whole(self, text, usage)),
            Api::Embeddings | Api::Invocations => String::new(),
        }
    }

    /// Events after the last token.
    pub fn closing(&self, text: &str, usage: Usage) -> String {
        match self.api {
            Api::Chat => openai::chat_closing(self, usage),
            Api::Completions => openai::completion_closing(self, usage),
            Api::Responses => responses::closing(self, text, usage),
            Api::Messages => anthropic::closing(self, usage),
            Api::Generate => DONE.into(),
            Api::Embeddings | Api::Invocations => String::new(),
        }
    }

    /// The whole answer in one piece.
    pub fn whole(&self, text: &str, usage: Usage) -> Value {
        match self.api {
            Api::Chat => openai::chat(self, text, usage),
            Api::Completions => openai::completion(self, text, usage),
            Api::Embeddings => openai::embedding(self, usage),
            Api::Responses => responses::whole(self, "completed", text, Some(usage)),
            Api::Messages => anthropic::whole(self, text, usage),
            Api::Generate => sglang::whole(self, text, usage),
            Api::Invocations => json!({"generated_text": text, "usage": openai::usage(usage)}),
        }
    }

    /// `length` if the client's limit ended it, else `stop`.
    fn finish_reason(&self) -> &'static str {
        if self.limited { "length" } else { "stop" }
    }
}

/// An error in the form that clients of `api` expect.
pub fn error(api: Option<Api>, status: u16, message: &str) -> Value {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    match api {
        Some(Api::Messages) => {
            let kind = if status < 500 { kind } else { "api_error" };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        _ => json!({"error": {"message": message, "type": kind, "param": null, "code": status}}),
    }
}

const DONE: &str = "data: [DONE]\n\n";

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or("message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage { prompt: 40, cached: 32, generated: 2 };

    fn reply(api: Api) -> Reply {
        Reply {
            api,
            id: "7-1".into(),
            model: "m".into(),
            created: 1,
            include_usage: true,
            limited: true,
        }
    }

    fn stream(api: Api) -> String {
        let reply = reply(api);
        reply.opening(USAGE)
            + &reply.token("the ", "the ", USAGE)
            + &reply.token("sun ", "the sun ", USAGE)
            + &reply.closing("the sun ", USAGE)
    }

    fn events(text: &str) -> Vec<Value> {
        text.split("\n\n")
            .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    #[test]
    fn every_stream_is_whole_events() {
        for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Generate] {
            let text = stream(api);
            assert!(text.ends_with("\n\n"), "{api:?}");
            assert!(events(&text).len() >= 2, "{api:?}");
            assert_eq!(text.ends_with(DONE), !matches!(api, Api::Responses | Api::Messages));
        }
    }

    #[test]
    fn a_chat_stream_adds_up() {
        let events = events(&stream(Api::Chat));
        let text: String =
            events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "the sun ");
        let last = events.last().unwrap();
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
        assert_eq!(last["choices"], json!([]));
        assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "length");
    }

    #[test]
    fn an_anthropic_stream_has_its_events_in_order() {
        let kinds: Vec<_> = events(&stream(Api::Messages))
            .iter()
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            kinds,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
    }

    #[test]
    fn usage_is_in_every_plain_answer() {
        for (api, path) in [
            (Api::Chat, "/usage/prompt_tokens_details/cached_tokens"),
            (Api::Completions, "/usage/prompt_tokens_details/cached_tokens"),
            (Api::Responses, "/usage/input_tokens_details/cached_tokens"),
            (Api::Messages, "/usage/cache_read_input_tokens"),
            (Api::Generate, "/meta_info/cached_tokens"),
            (Api::Invocations, "/usage/prompt_tokens_details/cached_tokens"),
        ] {
            let answer = reply(api).whole("the sun ", USAGE);
            assert_eq!(answer.pointer(path), Some(&json!(32)), "{api:?}");
        }
    }
}
