//! What bodies say about where they go, however they are written.

use std::io::Write;

use super::*;

/// A chat of one message with these content parts, `model` last as SDKs send it.
fn parts(content: &serde_json::Value, model: &str) -> String {
    let content = content.to_string();
    format!(r#"{{"messages":[{{"role":"user","content":{content}}}],"model":"{model}"}}"#)
}

fn chat_text(text: &str) -> String {
    String::from_utf8(chat_body(text)).expect("text")
}

fn picture(seed: u64, bytes: usize) -> serde_json::Value {
    let data = payload::text(seed, bytes).replace(|c: char| !c.is_ascii_alphanumeric(), "A");
    let url = format!("data:image/png;base64,{data}");
    serde_json::json!({"type": "image_url", "image_url": {"url": url}})
}

fn text(text: &str) -> serde_json::Value {
    serde_json::json!({"type": "text", "text": text})
}

/// `gzip`, not compressed: blocks of bytes as they are (RFC 1951 section 3.2.4).
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = data.chunks(60_000).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&[0; 8]);
    out
}

fn post(path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    request_with("POST", path, fields, body)
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_picture_brings_its_questions_together() {
    let fleet = fleet(8);
    let gateway = start(&fleet);
    let homes = |picture: &serde_json::Value| {
        let ask = |n: u64| {
            let content = serde_json::json!([picture, text(&payload::text(n, 60))]);
            let answer = gateway.ask(post(CHAT, &[], parts(&content, "m").as_bytes()));
            assert_eq!(reason(&answer), "home");
            served_by(&fleet, &answer)
        };
        (0..16).map(ask).collect::<std::collections::HashSet<_>>()
    };
    let homes: Vec<_> = (0..8).map(|n| homes(&picture(n, 200_000))).collect();
    assert!(homes.iter().all(|homes| homes.len() == 1), "{homes:?}");
    let all: std::collections::HashSet<_> = homes.iter().flatten().collect();
    assert!(all.len() > 1, "eight pictures at one instance");
}

#[test]
fn the_model_behind_a_large_picture_counts() {
    let fleet = fleet(8);
    let gateway = start(&fleet);
    let content = serde_json::json!([picture(1, 9_000_000), text("What is this?")]);
    let ask = |model: &str| {
        served_by(&fleet, &gateway.ask(post(CHAT, &[], parts(&content, model).as_bytes())))
    };
    let homes: std::collections::HashSet<_> = (0..8).map(|n| ask(&format!("model-{n}"))).collect();
    assert!(homes.len() > 1, "eight models at one instance");
    assert_eq!(gateway.metric("atalho_decision_shortfalls_total", &[]), 0.0);
}

#[test]
fn coded_bodies_go_where_plain_ones_do_and_are_passed_on_as_they_are() {
    let fleet: Vec<_> = (0..8)
        .map(|_| Upstream::answering(|request| response(200, request.body.clone())))
        .collect();
    let gateway = start(&fleet);
    for seed in 0..8 {
        let body = chat_text(&payload::text(seed, 90_000));
        let home = served_by(&fleet, &gateway.ask(post(CHAT, &[], body.as_bytes())));
        let once = gzip(body.as_bytes());
        let twice = gzip(&once);
        for (coding, bytes) in [("gzip", &once), ("GZIP, x-gzip", &twice)] {
            let answer = gateway.ask(post(CHAT, &[("Content-Encoding", coding)], bytes));
            assert_eq!((&*reason(&answer), served_by(&fleet, &answer)), ("home", home));
            assert!(answer.payload() == bytes.as_slice(), "not the bytes that were sent");
        }
    }
    for (why, coding, body) in [
        ("unknown_coding", "compress", &b"\x1f\x9d\x90"[..]),
        ("corrupt_coding", "gzip", b"{\"messages\":[]}"),
        ("corrupt_coding", "zstd", b"{\"messages\":[]}"),
    ] {
        let labels = [("why", why)];
        let before = gateway.metric("atalho_decision_shortfalls_total", &labels);
        let answer = gateway.ask(post(CHAT, &[("Content-Encoding", coding)], body));
        assert_eq!((answer.status(), &*reason(&answer)), (200, "undecodable"), "{coding}");
        assert_eq!(answer.payload(), body);
        let counted = gateway.metric("atalho_decision_shortfalls_total", &labels);
        assert_eq!(counted, before + 1.0, "{coding}");
    }
}

#[test]
fn a_line_that_changes_with_each_request_moves_nothing() {
    let fleet = fleet(8);
    let gateway = start(&fleet);
    let system = payload::text(3, 500);
    let turn = |n: usize| {
        let blocks = serde_json::json!([
            text(&format!("x-anthropic-billing-header: cc_version=2.1.{n}; cch={n:05x};")),
            text(&format!("{system}\nCurrent time: 12:00:{n:02}\nBe brief.")),
        ]);
        let body = serde_json::json!({
            "model": "m",
            "system": blocks,
            "messages": [{"role": "user", "content": "Hello"}],
        });
        served_by(&fleet, &gateway.ask(post("/v1/messages", &[], body.to_string().as_bytes())))
    };
    let homes: std::collections::HashSet<_> = (0..10).map(turn).collect();
    assert_eq!(homes.len(), 1, "ten turns of one conversation");
}

#[test]
fn other_spellings_of_a_path_keep_affinity() {
    let fleet = fleet(8);
    let gateway = start(&fleet);
    let body = chat_text(&payload::text(1, 2000));
    let home = served_by(&fleet, &gateway.ask(post(CHAT, &[], body.as_bytes())));
    for path in [
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/chat/completions",
        "/openai/v1/chat/completions",
    ] {
        let answer = gateway.ask(post(path, &[], body.as_bytes()));
        assert_eq!((&*reason(&answer), served_by(&fleet, &answer)), ("home", home), "{path}");
        let seen = fleet[home].requests();
        assert_eq!(seen.last().expect("a request").target(), path, "passed on as it came");
    }
}

#[test]
fn explain_and_gateway_agree_on_any_body() {
    const LIMIT: usize = 100_000;
    let fleet = fleet(8);
    let gateway = Setup::new(Engine::Userspace)
        .instances(&fleet)
        .prefix_aware(PREFIX, 10)
        .set("limits.decision_bytes", LIMIT as i64)
        .start();
    let config = gateway.config_file();
    let long = chat_text(&payload::text(5, 3000));
    // The model is beyond the limit by a byte, at it, and before it.
    let at = |bytes: usize| {
        let body = parts(&serde_json::json!([picture(2, 10), text("x")]), "m");
        let tail = r#","pad":"","model":"m-3"}"#.len();
        let head = body.trim_end_matches(r#","model":"m"}"#);
        format!(r#"{head},"pad":"{}","model":"m-3"}}"#, "y".repeat(bytes - head.len() - tail))
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("", long.clone().into_bytes()),
        ("", [b"\xef\xbb\xbf", long.as_bytes()].concat()),
        ("", long.as_bytes()[..2000].to_vec()),
        ("", b"{\"messages\":[{\"content\" 5}]}".to_vec()),
        ("", b"not JSON at all".to_vec()),
        ("", at(LIMIT - 1).into_bytes()),
        ("", at(LIMIT).into_bytes()),
        ("", at(LIMIT + 1).into_bytes()),
        ("", at(LIMIT + 20).into_bytes()),
        ("", at(300_000).into_bytes()),
        ("gzip", gzip(long.as_bytes())),
        ("gzip", gzip(at(LIMIT + 1).as_bytes())),
        ("gzip", gzip(at(300_000).as_bytes())),
        ("gzip", gzip(long.as_bytes())[..2500].to_vec()),
        ("gzip", long.clone().into_bytes()),
        ("br", long.clone().into_bytes()),
        ("snappy", long.clone().into_bytes()),
    ];
    for (index, (coding, body)) in cases.iter().enumerate() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(body).unwrap();
        let mut command = tests::gateway::atalho(None);
        command.args(["explain", "--json", "--config", config.to_str().unwrap()]);
        let field = format!("Content-Encoding: {coding}");
        if !coding.is_empty() {
            command.args(["-H", &field]);
        }
        let output = command.arg(file.path()).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let fields = [("Content-Encoding", *coding)];
        let fields = if coding.is_empty() { &[][..] } else { &fields };
        // In pieces, which must not matter.
        let bytes = post(CHAT, fields, body);
        let mut client = gateway.connect();
        for piece in bytes.chunks(bytes.len() / 7 + 1) {
            client.send(piece);
        }
        let answer = client.response();
        assert_eq!(said["choice"]["reason"], reason(&answer), "{index}: {said}");
        if reason(&answer) == "home" {
            let instance = said["choice"]["instance"].as_str().unwrap();
            let served = answer.get(INSTANCE_HEADER).unwrap();
            assert_eq!(instance.trim_start_matches("http://"), served, "{index}: {said}");
        }
        let broken = (2..5).contains(&index) || index >= 7 && *coding != "gzip" || index > 10;
        let notes = said["notes"].as_array().unwrap();
        assert_eq!(!notes.is_empty(), broken, "{index}: {said}");
    }
}
