use tokio::sync::watch;

use super::*;
use crate::{
    config::{self},
    fleet::{Counters, Fleet},
    shared::Phase,
};

fn shared(drain: bool) -> (Arc<Shared>, watch::Sender<Phase>) {
    let text = format!(
        "[[endpoint]]\nname = \"chat\"\n[[endpoint.variant]]\nname = \"main\"\n\
         [[endpoint.variant.instance]]\nurl = \"http://127.0.0.1:9\"\ndrain = {drain}\n"
    );
    let config = Arc::new(config::parse("test", &text).expect("a valid configuration"));
    let metrics = Metrics::new();
    let fleet = Fleet::build(&config, None, &Counters::heap(8), &metrics).expect("a fleet");
    let (sender, phase) = watch::channel(Phase::Running);
    metrics.engine("sockmap").available(Err("disabled"));
    let shared = Shared {
        fleet: arc_swap::ArcSwap::from_pointee(fleet),
        loaded: None,
        metrics,
        stored: Default::default(),
        sessions: Default::default(),
        phase,
    };
    (Arc::new(shared), sender)
}

/// The answer to `request` of a server that runs as in the gateway.
fn ask(shared: &Arc<Shared>, request: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::clone(shared)));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    })
}

fn get(shared: &Arc<Shared>, path: &str) -> String {
    ask(shared, &format!("GET {path} HTTP/1.1\r\nHost: admin\r\n\r\n"))
}

#[test]
fn ready_while_running_with_an_instance_that_can_serve() {
    let (running, phase) = shared(false);
    assert!(get(&running, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    phase.send(Phase::Draining).unwrap();
    let answer = get(&running, "/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("draining"), "{answer}");
    assert!(get(&running, "/healthz").starts_with("HTTP/1.1 200 "));

    let (drained, _phase) = shared(true);
    let answer = get(&drained, "/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no instance"), "{answer}");
}

#[test]
fn status_shows_fleet_and_engines() {
    let (shared, _phase) = shared(true);
    let answer = get(&shared, "/status");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let instance = &status["endpoints"][0]["variants"][0]["instances"][0];
    assert_eq!(instance["url"], "http://127.0.0.1:9");
    assert_eq!(instance["status"], "draining");
    assert_eq!(instance["addresses"][0], "127.0.0.1:9");
    assert_eq!(status["engines"][0]["reason"], "disabled");
    assert_eq!(status["phase"], "running");
}

#[test]
fn metrics_follow_the_fleet() {
    let (shared, _phase) = shared(false);
    let page = get(&shared, "/metrics");
    assert!(page.contains("Content-Type: text/plain; version=0.0.4\r\n"), "{page}");
    let labels = r#"endpoint_name="chat",instance_url="http://127.0.0.1:9",variant="main""#;
    assert!(page.contains(&format!("atalho_instance_available{{{labels}}} 1\n")), "{page}");
}

#[test]
fn other_requests_are_told_what_there_is() {
    let (shared, _phase) = shared(false);
    let answer = get(&shared, "/nothing");
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("/status"), "{answer}");
    let answer = ask(&shared, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("Allow: GET"), "{answer}");
    let answer = ask(&shared, "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\n") && !answer.contains("atalho_"), "{answer}");
    assert!(ask(&shared, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}
