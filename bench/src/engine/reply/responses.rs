//! The responses API: the events that its clients need to assemble a text.

use serde_json::{Value, json};

use super::{Reply, Usage, event};

pub(super) fn opening(reply: &Reply) -> String {
    let response = whole(reply, "in_progress", "", None);
    event(&json!({"type": "response.created", "sequence_number": 0, "response": response}))
        + &event(&json!({
            "type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
            "item": item(reply, "in_progress", None),
        }))
        + &event(&json!({
            "type": "response.content_part.added", "sequence_number": 2, "output_index": 0,
            "content_index": 0, "item_id": item_id(reply), "part": part(""),
        }))
}

pub(super) fn token(reply: &Reply, word: &str) -> String {
    event(&json!({
        "type": "response.output_text.delta", "sequence_number": 3, "output_index": 0,
        "content_index": 0, "item_id": item_id(reply), "delta": word, "logprobs": [],
    }))
}

pub(super) fn closing(reply: &Reply, text: &str, usage: Usage) -> String {
    event(&json!({
        "type": "response.output_text.done", "sequence_number": 4, "output_index": 0,
        "content_index": 0, "item_id": item_id(reply), "text": text, "logprobs": [],
    })) + &event(&json!({
        "type": "response.content_part.done", "sequence_number": 5, "output_index": 0,
        "content_index": 0, "item_id": item_id(reply), "part": part(text),
    })) + &event(&json!({
        "type": "response.output_item.done", "sequence_number": 6, "output_index": 0,
        "item": item(reply, "completed", Some(text)),
    })) + &event(&json!({
        "type": "response.completed", "sequence_number": 7,
        "response": whole(reply, "completed", text, Some(usage)),
    }))
}

pub(super) fn whole(reply: &Reply, status: &str, text: &str, usage: Option<Usage>) -> Value {
    let output = usage.map_or(json!([]), |_| json!([item(reply, "completed", Some(text))]));
    json!({
        "id": format!("resp_{}", reply.id),
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage.map(|usage| json!({
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.generated,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.generated,
        })),
    })
}

fn item_id(reply: &Reply) -> String {
    format!("msg_{}", reply.id)
}

fn item(reply: &Reply, status: &str, text: Option<&str>) -> Value {
    let content = text.map_or(json!([]), |text| json!([part(text)]));
    json!({
        "id": item_id(reply), "type": "message", "role": "assistant", "status": status,
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}
