//! The simulated engine over real connections.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bench::engine::{
    fault::Fault,
    params::Params,
    server::{Options, Server},
};
use serde_json::Value;

/// A server on a thread of its own; it ends with the test process.
fn start(params: Params) -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = bench::machine::listen("127.0.0.1:0".parse().unwrap()).unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let options = Options {
                models: vec!["m".into()],
                name: "one".into(),
                keep_alive: Duration::from_millis(300),
            };
            Server::new(params, options, Fault::default()).serve(listener).await.unwrap();
        });
    });
    receiver.recv().unwrap()
}

fn instant() -> Params {
    Params { time_scale: 0.0, ..Params::default() }
}

fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The whole answer as text, or why it broke off.
fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut text = String::new();
    send(address, method, path, body).read_to_string(&mut text)?;
    Ok(text)
}

fn json(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn state(address: SocketAddr) -> Value {
    json(&call(address, "GET", "/sim/state", "").unwrap())
}

fn wait_for(address: SocketAddr, field: &str, value: u64) {
    let start = Instant::now();
    while state(address)[field] != value {
        assert!(start.elapsed() < Duration::from_secs(5), "{field}: {}", state(address));
        std::thread::yield_now();
    }
}

fn chat(extra: &str) -> String {
    let prompt = "a prompt that fills a few blocks of the cache ".repeat(20);
    format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "{prompt}"}}]{extra}}}"#)
}

#[test]
fn answers_plain_and_as_a_stream_and_remembers() {
    let address = start(instant());
    let cold = json(&call(address, "POST", "/v1/chat/completions", &chat("")).unwrap());
    let warm = json(&call(address, "POST", "/v1/chat/completions", &chat("")).unwrap());
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 200, "{cached}");
    assert_eq!(cold["choices"], warm["choices"]);
    let body =
        chat(r#", "stream": true, "max_tokens": 5, "stream_options": {"include_usage": true}"#);
    let stream = call(address, "POST", "/v1/chat/completions", &body).unwrap();
    assert_eq!(stream.matches("\"content\":").count(), 6, "{stream}");
    assert!(stream.contains("text/event-stream") && stream.contains("x-sim-name: one"));
    assert!(stream.contains(&format!("\"cached_tokens\":{cached}")) && stream.contains("[DONE]"));
    let metrics = call(address, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains(r#"vllm:num_requests_running{model_name="m"} 0"#), "{metrics}");
    assert!(
        metrics
            .contains(&format!("vllm:prefix_cache_hits_total{{model_name=\"m\"}} {}", 2 * cached))
    );
}

#[test]
fn every_api_answers() {
    let address = start(instant());
    for (path, body, part) in [
        ("/v1/completions", r#"{"prompt": "x", "max_tokens": 2}"#, "text_completion"),
        ("/v1/responses", r#"{"input": "x"}"#, "output_text"),
        ("/v1/embeddings", r#"{"input": ["x", "y"]}"#, "embedding"),
        ("/v1/messages", r#"{"messages": [], "max_tokens": 2}"#, "stop_reason"),
        ("/generate", r#"{"text": "x"}"#, "meta_info"),
        ("/invocations", "any bytes", "generated_text"),
        ("/invocations", r#"{"messages": []}"#, "chat.completion"),
    ] {
        let answer = call(address, "POST", path, body).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(part), "{path}: {answer}");
    }
    for (path, status) in [("/health", 200), ("/ping", 200), ("/v1/models", 200), ("/nope", 404)] {
        let answer = call(address, "GET", path, "").unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    assert!(call(address, "GET", "/v1/completions", "").unwrap().starts_with("HTTP/1.1 405"));
    assert!(call(address, "POST", "/v1/completions", "{").unwrap().starts_with("HTTP/1.1 400"));
    let echo = json(&call(address, "PUT", "/sim/echo?x=1", "body").unwrap());
    assert_eq!((&echo["target"], &echo["body_bytes"]), (&"/sim/echo?x=1".into(), &4.into()));
}

#[test]
fn a_client_that_leaves_cancels_its_work() {
    // One request at a time, and a step that lasts long enough to leave within it.
    let address = start(Params { max_running: 1, step_us: 50_000, ..Params::default() });
    let long = r#", "max_tokens": 10000"#;
    let streaming =
        send(address, "POST", "/v1/chat/completions", &chat(&format!("{long}, \"stream\": true")));
    wait_for(address, "running", 1);
    let queued = send(address, "POST", "/v1/chat/completions", &chat(long));
    wait_for(address, "waiting", 1);
    drop(queued);
    wait_for(address, "cancelled", 1);
    let mut head = [0; 16];
    (&streaming).read_exact(&mut head).unwrap();
    drop(streaming);
    wait_for(address, "cancelled", 2);
    // A plain answer, before its first byte.
    let plain = send(address, "POST", "/v1/chat/completions", &chat(long));
    wait_for(address, "running", 1);
    drop(plain);
    wait_for(address, "cancelled", 3);
    let metrics = call(address, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains(r#"sim_requests_cancelled_total{model_name="m",phase="queue"} 1"#));
    assert_eq!(state(address)["running"], 0);
}

#[test]
fn faults_strike_where_they_are_told_to() {
    let address = start(instant());
    let fault = |fault: &str| {
        let answer = call(address, "POST", "/sim/fault", fault).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    let stream = || {
        let mut stream =
            send(address, "POST", "/v1/chat/completions", &chat(r#", "stream": true"#));
        let mut bytes = Vec::new();
        let end = stream.read_to_end(&mut bytes);
        (String::from_utf8(bytes).unwrap(), end)
    };

    fault(r#"{"kind": "close", "after_tokens": 3, "times": 1}"#);
    let (text, end) = stream();
    assert!(end.is_ok());
    assert_eq!(text.matches("data:").count(), 4, "{text}");
    assert!(!text.ends_with("0\r\n\r\n"));

    fault(r#"{"kind": "reset", "after_bytes": 100, "times": 1}"#);
    let (text, end) = stream();
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(text.len() < 500, "{text}");

    fault(r#"{"kind": "reset", "times": 1}"#);
    assert_eq!(stream().1.unwrap_err().kind(), io::ErrorKind::ConnectionReset);

    fault(r#"{"kind": "error500", "status": 503, "times": 1}"#);
    assert!(stream().0.starts_with("HTTP/1.1 503"));

    fault(r#"{"kind": "close", "after_bytes": 10, "times": 1}"#);
    let plain = call(address, "POST", "/v1/chat/completions", &chat("")).unwrap();
    assert_eq!(plain.split_once("\r\n\r\n").unwrap().1.len(), 10);

    assert!(stream().0.ends_with("0\r\n\r\n"));

    fault(r#"{"kind": "stall", "after_tokens": 1}"#);
    let stalled = send(address, "POST", "/v1/chat/completions", &chat(r#", "stream": true"#));
    (&stalled).read_exact(&mut [0; 300]).unwrap();
    drop(stalled);
    wait_for(address, "cancelled", 4);

    fault(r#"{"kind": "unhealthy"}"#);
    assert!(call(address, "GET", "/health", "").unwrap().starts_with("HTTP/1.1 503"));
    assert!(call(address, "POST", "/sim/fault", r#"{"kind": "?"}"#).unwrap().contains(" 400 "));
}

#[test]
fn an_idle_connection_is_closed() {
    let address = start(instant());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}
