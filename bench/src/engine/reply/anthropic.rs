//! Anthropic's messages API.

use serde_json::{Value, json};

use super::{Reply, Usage, event};

fn usage(usage: Usage) -> Value {
    // There, input_tokens leaves out what was read from the cache.
    json!({
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.generated,
    })
}

fn message(reply: &Reply, content: Value, stop_reason: Option<&str>, counts: Usage) -> Value {
    json!({
        "id": format!("msg_{}", reply.id),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": usage(counts),
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.limited { "max_tokens" } else { "end_turn" }
}

pub(super) fn opening(reply: &Reply, counts: Usage) -> String {
    let message = message(reply, json!([]), None, counts);
    event(&json!({"type": "message_start", "message": message}))
        + &event(&json!({
            "type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""},
        }))
}

pub(super) fn token(word: &str) -> String {
    event(&json!({
        "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word},
    }))
}

pub(super) fn closing(reply: &Reply, counts: Usage) -> String {
    event(&json!({"type": "content_block_stop", "index": 0}))
        + &event(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null},
            "usage": usage(counts),
        }))
        + &event(&json!({"type": "message_stop"}))
}

pub(super) fn whole(reply: &Reply, text: &str, counts: Usage) -> Value {
    message(reply, json!([{"type": "text", "text": text}]), Some(stop_reason(reply)), counts)
}
