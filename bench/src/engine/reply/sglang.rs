//! SGLang's own API. Each event of its streams holds the whole text so far.

use serde_json::{Value, json};

use super::{Reply, Usage};

pub(super) fn whole(reply: &Reply, text: &str, usage: Usage) -> Value {
    json!({
        "text": text,
        "meta_info": {
            "id": reply.id,
            "finish_reason": {"type": reply.finish_reason(), "length": usage.generated},
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.generated,
            "cached_tokens": usage.cached,
        },
    })
}
