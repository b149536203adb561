//! Requests of the OpenAI API to decide about.

use serde::Serialize;
use serde_json::{Value, json};

/// What a request is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Messages of 4,000 characters: instructions, documents.
    Long,
    /// Messages of 280 characters: a conversation. More strings and brackets per byte.
    Short,
    /// A conversation of messages of many sizes, with code in them.
    Code,
    /// An agent at work: tools, tool calls and their output besides.
    Agent,
    /// A picture, and a question about it.
    Picture,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Long, Self::Short, Self::Code, Self::Agent, Self::Picture];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Long => "long messages",
            Self::Short => "short messages",
            Self::Code => "prose and code",
            Self::Agent => "agent",
            Self::Picture => "picture",
        }
    }

    /// A body of about `bytes`, 4 KiB at least.
    pub fn body(self, bytes: usize) -> Vec<u8> {
        match self {
            Self::Long => chat(14, bytes),
            Self::Short => chat(1, bytes),
            Self::Code => request(false, bytes),
            Self::Agent => request(true, bytes),
            Self::Picture => picture(bytes),
        }
    }
}

/// Of texts: line ends and quotes are escaped, as they are in prose and code.
const TURN: &str = "Let us look at the second point again.\\n\\nThe figures say that a \
    \\\"warm\\\" cache answers in a tenth of the time; what does that mean for a fleet of hosts? \
    Answer in full sentences, name your sources, and keep to the facts that were given before. ";

/// A chat of about `bytes` whose messages are `turns` texts each. The model comes last, as some clients
/// send it, which makes the scanner go all the way.
fn chat(turns: usize, bytes: usize) -> Vec<u8> {
    const TAIL: &str = r#"],"temperature":0.7,"stream":true,"model":"m"}"#;
    let text = TURN.repeat(turns);
    let mut body = String::from(r#"{"messages":[{"role":"system","content":"You are helpful."}"#);
    for role in ["user", "assistant"].into_iter().cycle() {
        let message = format!(r#",{{"role":"{role}","content":"{text}"}}"#);
        if body.len() + message.len() + TAIL.len() > bytes {
            break;
        }
        body += &message;
    }
    const FRAME: usize = r#",{"role":"user","content":""}"#.len();
    let filler = bytes.saturating_sub(body.len() + TAIL.len() + FRAME);
    body += &format!(r#",{{"role":"user","content":"{}"}}"#, "x".repeat(filler));
    body += TAIL;
    body.into_bytes()
}

/// A question about a picture that is in the request, in base64.
fn picture(bytes: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rng = fastrand::Rng::with_seed(7);
    let data: String =
        (0..bytes - 300).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])).collect();
    let content = json!([
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{data}") } },
        { "type": "text", "text": "What is in this picture?" },
    ]);
    let messages = json!([
        { "role": "system", "content": "You are helpful." },
        { "role": "user", "content": content },
    ]);
    json!({ "messages": messages, "model": "m" }).to_string().into_bytes()
}

const PROSE: &str = "The quick assistant reads the whole question before it answers, and says what it \
    does not know. When a file is named, it looks at the file first.\n\n";
const CODE: &str = "fn main() {\n    let name = std::env::args().nth(1).unwrap_or(\"world\".into());\n\
    \x20   println!(\"hello, {name}\\n\");\n}\n";
const LOG: &str = "{\"level\":\"info\",\"path\":\"C:\\\\data\",\"ms\":12}\n";

/// A request of about `bytes` bytes, 4 KiB at least, as SDKs write it: compact, `messages` first, then
/// `model`, and no `prompt_cache_key`, so that a decision has to look at all of it. Line breaks and
/// quotes in the text are escaped, as everywhere.
fn request(agent: bool, bytes: usize) -> Vec<u8> {
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
    let tools: Vec<_> = if agent { (0..bytes / 4096).map(tool).collect() } else { Vec::new() };
    let room = bytes - size_of(&tools).min(bytes) - 100;
    let mut used = size_of(&messages);
    for turn in 0.. {
        let size = [120, 700, 300, 1100, 60, 450][turn % 6];
        let next = match (agent, turn % 4) {
            (false, n) => {
                let role = if n % 2 == 0 { "user" } else { "assistant" };
                vec![Message::new(role, text(size, &[PROSE, PROSE, CODE]))]
            }
            (true, 0) => vec![Message::new("user", text(size, &[PROSE, CODE]))],
            (true, 3) => vec![Message::new("assistant", text(size, &[PROSE]))],
            (true, _) => Message::call(turn, text(size, &[CODE, LOG])).into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_size_asked_for() {
        for (shape, size) in Shape::ALL
            .into_iter()
            .flat_map(|shape| [4 << 10, 32 << 10, 1 << 20].map(|n| (shape, n)))
        {
            let body = shape.body(size);
            assert!((size * 3 / 4..=size * 11 / 10).contains(&body.len()), "{} {size}", body.len());
            let value: Value = serde_json::from_slice(&body).unwrap();
            assert!(value["model"].is_string());
            assert!(value["messages"].as_array().unwrap().len() > 1);
        }
    }
}
