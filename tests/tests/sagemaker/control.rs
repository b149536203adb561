//! The control API at the addresses of clients, where the configuration has it there.

use serde_json::json;
use tests::{
    Engine, Gateway, Setup, Upstream,
    message::{chat, chunked_request, request_with},
};

fn start(upstream: &Upstream, on: bool) -> (Gateway, tempfile::TempDir) {
    let store = tempfile::tempdir().expect("a directory");
    let gateway = Setup::single(Engine::Userspace, upstream)
        .default_paths()
        .set("control.on_client_listener", on)
        .set("control.store", store.path().join("state.redb").display().to_string())
        .start();
    (gateway, store)
}

fn call(operation: &str, input: &str) -> Vec<u8> {
    let target = format!("SageMaker.{operation}");
    let fields = [("X-Amz-Target", &*target), ("Content-Type", "application/x-amz-json-1.1")];
    request_with("POST", "/", &fields, input)
}

fn model(name: &str) -> String {
    let role = "arn:aws:iam::000000000000:role/x";
    json!({ "ModelName": name, "ExecutionRoleArn": role,
            "PrimaryContainer": { "Image": "vllm" } })
    .to_string()
}

#[test]
fn clients_can_call_it_where_that_is_on() {
    let upstream = Upstream::ok();
    let (gateway, _store) = start(&upstream, true);
    // Requests and calls share a connection.
    let mut client = gateway.connect();
    assert_eq!(client.ask(chat("x")).payload(), b"ok");
    let made = client.ask(call("CreateModel", &model("one")));
    assert_eq!(made.json()["ModelArn"], "arn:aws:sagemaker:us-east-1:000000000000:model/one");
    assert!(made.get("x-amzn-requestid").is_some());
    let twice = client.ask(call("CreateModel", &model("one")));
    assert_eq!((twice.status(), twice.get("x-amzn-errortype")), (400, Some("ValidationException")));
    assert_eq!(twice.json()["__type"], "ValidationException");
    let unknown = client.ask(call("CreateTrainingJob", "{}"));
    assert_eq!(unknown.get("x-amzn-errortype"), Some("UnknownOperationException"));
    let nonsense = client.ask(call("ListModels", "{"));
    assert_eq!(nonsense.get("x-amzn-errortype"), Some("SerializationException"));
    assert_eq!(client.ask(chat("y")).payload(), b"ok");
    // In chunks, and byte by byte.
    let listed = {
        let mut client = gateway.connect();
        client.send_in_pieces(call("ListModels", "{}"), 1);
        client.response().json()
    };
    let names: Vec<_> = listed["Models"].as_array().expect("a list").iter().collect();
    assert!(names.iter().any(|it| it["ModelName"] == "one"), "{names:?}");
    let text = String::from_utf8(chunked_request("/", "2\r\n{}\r\n0\r\n\r\n")).expect("text");
    let in_chunks = text.replacen("\r\n", "\r\nX-Amz-Target: SageMaker.ListModels\r\n", 1);
    assert_eq!(gateway.ask(in_chunks).json(), listed);
    // No more is held than any call needs.
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20));
    let mut client = gateway.connect();
    let _ = client.try_send(&call("CreateModel", &long));
    assert_eq!(client.response().status(), 413);
}

#[test]
fn it_is_off_unless_the_configuration_says_otherwise() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).default_paths().start();
    let answer = gateway.ask(call("ListModels", "{}"));
    assert_eq!((answer.status(), answer.get("x-atalho-error")), (404, Some("unknown_path")));
    let (gateway, _store) = start(&upstream, false);
    assert_eq!(gateway.ask(call("ListModels", "{}")).status(), 404);
    assert_eq!(upstream.count(), 0);
}
