//! What the decision about a request costs: scan and key, beside a tree parse of the same body.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use router::prefix::{Api, KeyParts, Scanner, key};
use serde::Serialize;
use serde_json::{Value, json};

/// Bytes of a piece in which a body is fed, about what a read brings.
const PIECE: usize = 64 * 1024;

/// One body at one prefix length.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// `chat`, `agent` (both of the OpenAI API) or `invoke`.
    pub request: &'static str,
    /// Units of the prefix.
    pub prefix_length: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Scan and key, a scanner in use again, median, nanoseconds.
    pub decision_ns: u64,
    /// `serde_json::from_slice::<Value>` of the same body, median, nanoseconds.
    pub tree_ns: u64,
}

/// What a request of the OpenAI API looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A conversation: a system prompt, then turns of prose and code.
    Chat,
    /// An agent at work: tools, tool calls and their output besides.
    Agent,
}

const PROSE: &str = "The quick assistant reads the whole question before it answers, and says what it \
    does not know. When a file is named, it looks at the file first.\n\n";
const CODE: &str = "fn main() {\n    let name = std::env::args().nth(1).unwrap_or(\"world\".into());\n\
    \x20   println!(\"hello, {name}\\n\");\n}\n";
const LOG: &str = "{\"level\":\"info\",\"path\":\"C:\\\\data\",\"ms\":12}\n";

/// A request of about `bytes` bytes, 4 KiB at least, as SDKs write it: compact, `messages` first, then
/// `model`, and no `prompt_cache_key`, so that a decision has to look at all of it. Line breaks and
/// quotes in the text are escaped, as everywhere.
pub fn openai_body(shape: Shape, bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut text = |size: usize, of: &[&str]| {
        let mut text = String::new();
        while text.len() < size {
            text.push_str(of[rng.usize(..of.len())]);
        }
        text.truncate(size);
        text
    };
    let mut messages = vec![Message::new("system", text(bytes / 16, &[PROSE]))];
    let tools: Vec<_> = match shape {
        Shape::Chat => Vec::new(),
        Shape::Agent => (0..bytes / 4096).map(tool).collect(),
    };
    let room = bytes - size_of(&tools).min(bytes) - 100;
    let mut used = size_of(&messages);
    for turn in 0.. {
        let size = [120, 700, 300, 1100, 60, 450][turn % 6];
        let next = match (shape, turn % 4) {
            (Shape::Chat, n) => {
                let role = if n % 2 == 0 { "user" } else { "assistant" };
                vec![Message::new(role, text(size, &[PROSE, PROSE, CODE]))]
            }
            (Shape::Agent, 0) => vec![Message::new("user", text(size, &[PROSE, CODE]))],
            (Shape::Agent, 3) => vec![Message::new("assistant", text(size, &[PROSE]))],
            (Shape::Agent, _) => Message::call(turn, text(size, &[CODE, LOG])).into(),
        };
        used += size_of(&next);
        if used > room {
            break;
        }
        messages.extend(next);
    }
    let tools = (!tools.is_empty()).then_some(tools);
    let request = Request { messages, model: "llama-3.3-70b", stream: true, tools };
    serde_json::to_vec(&request).unwrap_or_default()
}

fn size_of(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |s| s.len())
}

/// A message, its keys in the order in which people write them.
#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

impl Message {
    fn new(role: &'static str, content: String) -> Self {
        Self { role, content: Some(content), tool_calls: None, tool_call_id: None }
    }

    /// A call of a tool, and what came of it.
    fn call(number: usize, output: String) -> [Self; 2] {
        let id = format!("call_{number}");
        let calls = json!([{
            "id": id,
            "type": "function",
            "function": { "name": "read", "arguments": "{\"path\":\"src/main.rs\"}" },
        }]);
        let call =
            Self { role: "assistant", content: None, tool_calls: Some(calls), tool_call_id: None };
        [call, Self { tool_call_id: Some(id), ..Self::new("tool", output) }]
    }
}

/// The definition of a function that a model may call.
fn tool(number: usize) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": format!("tool_{number}"),
            "description": PROSE.trim_end(),
            "parameters": {
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file, from the root." },
                    "limit": { "type": "integer", "description": "Lines at most.", "default": 100 },
                    "mode": { "type": "string", "enum": ["text", "binary", "auto"] },
                },
                "required": ["path"],
                "additionalProperties": false,
            },
        },
    })
}

/// In the order in which SDKs write it.
#[derive(Serialize)]
struct Request {
    messages: Vec<Message>,
    model: &'static str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
}

/// Measures one body at one prefix length, for about a fifth of a second.
pub fn measure(request: &'static str, prefix_length: usize, body: &[u8]) -> Cost {
    let api = if request == "invoke" { Api::Invocations } else { Api::ChatCompletions };
    let mut scanner = Scanner::new(api, prefix_length);
    let decision_ns = median(|| {
        scanner.reset(api, prefix_length);
        for piece in body.chunks(PIECE) {
            if scanner.feed(piece) {
                break;
            }
        }
        let prefix = scanner.prefix();
        black_box(key(&KeyParts {
            endpoint: "default",
            variant: "default",
            tenant: prefix.cache_key,
            model: prefix.model,
            kind: prefix.kind,
            prefix: prefix.text,
        }));
    });
    let tree_ns = median(|| {
        black_box(serde_json::from_slice::<Value>(body).ok());
    });
    Cost { request, prefix_length, body_bytes: body.len(), decision_ns, tree_ns }
}

/// The table of the project's goals: prefix lengths 1024, 4096 and 65536, bodies of 4 KiB to 1 MiB.
pub fn table() -> Vec<Cost> {
    let mut costs = Vec::new();
    for size in [4, 32, 256, 1024] {
        let (chat, agent) = (Shape::Chat, Shape::Agent);
        for (request, shape) in [("chat", chat), ("agent", agent), ("invoke", chat)] {
            let body = openai_body(shape, size * 1024);
            for prefix_length in [1024, 4096, 65_536] {
                costs.push(measure(request, prefix_length, &body));
            }
        }
    }
    costs
}

/// The median time of one call, in nanoseconds, over batches long enough for the clock.
fn median(mut call: impl FnMut()) -> u64 {
    let mut time = |calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        start.elapsed()
    };
    let once = time(3).max(Duration::from_nanos(3)) / 3;
    let calls = (Duration::from_millis(2).as_nanos() / once.as_nanos().max(1)).clamp(1, 100_000);
    let calls = calls as u32;
    let mut batches: Vec<Duration> = (0..50).map(|_| time(calls)).collect();
    batches.sort_unstable();
    batches[batches.len() / 2].as_nanos() as u64 / u64::from(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_of_the_size_asked_for() {
        for size in [4 << 10, 32 << 10, 1 << 20] {
            for shape in [Shape::Chat, Shape::Agent] {
                let body = openai_body(shape, size);
                assert!((size * 3 / 4..=size * 11 / 10).contains(&body.len()), "{}", body.len());
                let tree: Value = serde_json::from_slice(&body).unwrap();
                assert!(tree["messages"].as_array().unwrap().len() > 1);
            }
        }
    }
}
