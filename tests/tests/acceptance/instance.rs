//! Instances that answer as they are told, by members of the request that an inference server would ignore.

use serde_json::{Value, json};
use tests::{
    Gate, Next, Peer, Upstream, chunked,
    message::{CHUNKED_HEAD, Head, response, response_with},
};

/// As many instances. A stream that was asked to `hold` goes on once any of them was asked to `release`.
pub(crate) fn fleet(size: usize) -> Vec<Upstream> {
    let gate = Gate::new();
    let instance = |_| {
        let gate = gate.clone();
        Upstream::serve(move |peer, head| exchange(peer, head, &gate).unwrap_or(Next::Close))
    };
    (0..size).map(instance).collect()
}

/// `None` when the gateway is gone.
fn exchange(peer: &mut Peer, head: &Head, gate: &Gate) -> Option<Next> {
    if head.method() == "GET" {
        peer.try_send(&get(head.target())).ok()?;
        return Some(Next::Keep);
    }
    let raw = peer.try_request_body(head).ok()?;
    let body = if head.chunked() { chunked::decode(&raw).0 } else { raw };
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    if asked["release"] == true {
        gate.open();
    }
    // Whatever the text is.
    if let Some(answer) = asked["answer"].as_str() {
        if asked["stream"] == true {
            peer.try_send(CHUNKED_HEAD).ok()?;
            // Frames cut anywhere.
            peer.try_send(&chunked::encode(answer.as_bytes().chunks(7))).ok()?;
        } else {
            let seen = head.get("x-amzn-sagemaker-custom-attributes").unwrap_or_default();
            let component = head.get("x-amzn-sagemaker-inference-component");
            let component = component.map(|name| format!(" for {name}")).unwrap_or_default();
            let seen = format!("seen {seen}{component}");
            let fields = [("X-Amzn-SageMaker-Custom-Attributes", &*seen)];
            peer.try_send(&response_with(200, &fields, answer)).ok()?;
        }
        return Some(Next::Keep);
    }
    let target = head.target();
    if asked["stream"] != true {
        peer.try_send(&response(200, completion(target).to_string())).ok()?;
        return Some(Next::Keep);
    }
    peer.try_send(CHUNKED_HEAD).ok()?;
    peer.try_send(&chunked::chunk(&token("first"))).ok()?;
    if asked["hold"] == true {
        gate.wait();
    }
    for word in ["second", "third"] {
        peer.try_send(&chunked::chunk(&token(word))).ok()?;
    }
    peer.try_send(&chunked::encode([&b"data: [DONE]\n\n"[..]])).ok()?;
    Some(Next::Keep)
}

fn get(target: &str) -> Vec<u8> {
    match target {
        "/v1/models" => {
            let model = json!({ "id": "llm", "object": "model", "created": 0, "owned_by": "x" });
            response(200, json!({ "object": "list", "data": [model] }).to_string())
        }
        _ => response(200, ""),
    }
}

/// An answer whose text is the path that it was asked at.
fn completion(text: &str) -> Value {
    let message = json!({ "role": "assistant", "content": text });
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "llm",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
    })
}

fn token(text: &str) -> Vec<u8> {
    let chunk = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "llm",
        "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }],
    });
    format!("data: {chunk}\n\n").into_bytes()
}
