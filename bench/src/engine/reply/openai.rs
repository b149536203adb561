//! Chat completions, completions and embeddings.

use serde_json::{Value, json};

use super::{DONE, Reply, Usage, data};

pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

fn chat_chunk(reply: &Reply, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", reply.id),
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
    })
}

fn delta(reply: &Reply, delta: Value, finish_reason: Option<&str>) -> String {
    let choice = json!({
        "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason
    });
    data(&chat_chunk(reply, json!([choice])))
}

pub(super) fn chat_opening(reply: &Reply) -> String {
    delta(reply, json!({"role": "assistant", "content": ""}), None)
}

pub(super) fn chat_token(reply: &Reply, word: &str) -> String {
    delta(reply, json!({"content": word}), None)
}

pub(super) fn chat_closing(reply: &Reply, counts: Usage) -> String {
    let mut out = delta(reply, json!({}), Some(reply.finish_reason()));
    if reply.include_usage {
        let mut chunk = chat_chunk(reply, json!([]));
        chunk["usage"] = usage(counts);
        out += &data(&chunk);
    }
    out + DONE
}

pub(super) fn chat(reply: &Reply, text: &str, counts: Usage) -> Value {
    json!({
        "id": format!("chatcmpl-{}", reply.id),
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": null,
            "finish_reason": reply.finish_reason(),
        }],
        "usage": usage(counts),
    })
}

fn text_chunk(reply: &Reply, choices: Value) -> Value {
    json!({
        "id": format!("cmpl-{}", reply.id),
        "object": "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
    })
}

fn text_choice(text: &str, finish_reason: Option<&str>) -> Value {
    json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason}])
}

pub(super) fn completion_token(reply: &Reply, word: &str) -> String {
    data(&text_chunk(reply, text_choice(word, None)))
}

pub(super) fn completion_closing(reply: &Reply, counts: Usage) -> String {
    let mut out = data(&text_chunk(reply, text_choice("", Some(reply.finish_reason()))));
    if reply.include_usage {
        let mut chunk = text_chunk(reply, json!([]));
        chunk["usage"] = usage(counts);
        out += &data(&chunk);
    }
    out + DONE
}

pub(super) fn completion(reply: &Reply, text: &str, counts: Usage) -> Value {
    let mut whole = text_chunk(reply, text_choice(text, Some(reply.finish_reason())));
    whole["usage"] = usage(counts);
    whole
}

pub(super) fn embedding(reply: &Reply, counts: Usage) -> Value {
    json!({
        "id": format!("embd-{}", reply.id),
        "object": "list",
        "created": reply.created,
        "model": reply.model,
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5, 0.5, -0.5]}],
        "usage": usage(counts),
    })
}
