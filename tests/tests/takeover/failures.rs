//! A take-over that fails, at whichever step: the old gateway serves as before.

use std::{
    io::{Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixStream},
    },
    process::Stdio,
    time::Duration,
};

use serde_json::json;
use tests::{Engine, Gateway, Setup, Upstream, eventually, message::chat};

use super::take_over;

/// Starts one that cannot; what it says.
fn refused(setup: &Setup) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("atalho.toml");
    std::fs::write(&file, setup.text()).unwrap();
    let mut child = tests::gateway::atalho(None)
        .args(["serve", "--take-over", "--config"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = tests::wait::within(tests::DEADLINE, || child.try_wait().unwrap());
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended.is_some_and(|status| !status.success()), "it started: {text}");
    text
}

fn serves(gateway: &mut Gateway) {
    let client = &mut gateway.connect();
    for _ in 0..2 {
        let answer = client.ask(chat("x"));
        assert_eq!(answer.status(), 200);
        assert!(!answer.closes(), "it is as if nothing had been");
    }
    assert!(gateway.running());
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
}

#[test]
fn one_that_cannot_start_changes_nothing() {
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream);
    let mut old = setup.start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let place = setup.clone().in_place_of(&old);
    // Before it asks, and after it has been given everything.
    for (setting, value) in [("engine.mode", "nonsense"), ("admin", &taken)] {
        let said = refused(&place.clone().set(setting, value));
        assert!(said.contains(value), "{said}");
        serves(&mut old);
    }
    old.expect_line(&["a take-over has failed", "goes on serving"]);
    assert_eq!(old.ask(chat("x")).status(), 200);
    // The next one has better luck.
    let new = take_over(&setup, &old);
    assert!(old.wait().success());
    assert_eq!(new.ask(chat("x")).status(), 200);
}

/// Speaks as a new gateway does, up to any step, and goes.
#[test]
fn one_that_dies_on_the_way_changes_nothing() {
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream);
    let mut old = setup.start();
    let name = UnixAddress::from_abstract_name(format!("atalho-take-over {}", old.address()));
    let connect = || {
        let stream = UnixStream::connect_addr(name.as_ref().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    };
    let message = |value: serde_json::Value| {
        let body = value.to_string().into_bytes();
        let mut out = (body.len() as u64).to_le_bytes().to_vec();
        out.extend(body);
        out
    };
    let hello = json!({ "Hello": { "protocol": 1, "version": "9", "pid": 1 } });
    let serving = json!("Serving");
    // Nothing, half a message, nonsense, a message out of order.
    for bytes in [&b""[..], b"\x05\0", &[0xff; 64], &message(serving)] {
        connect().write_all(bytes).unwrap();
        serves(&mut old);
    }
    // Another way to take over is refused by name.
    let other = json!({ "Hello": { "protocol": 2, "version": "9.9", "pid": 1 } });
    let mut stream = connect();
    stream.write_all(&message(other)).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("version 9.9"), "{said:?}");
    // One that has got everything. Meanwhile nobody else gets it, and nothing changes.
    let mut first = connect();
    first.write_all(&message(hello.clone())).unwrap();
    first.read_exact(&mut [0; 64]).unwrap();
    serves(&mut old);
    let mut second = connect();
    second.write_all(&message(hello)).unwrap();
    let mut said = Vec::new();
    second.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("at this moment"), "{said:?}");
    drop(first);
    old.expect_line(&["a take-over has failed", "the other gateway has gone"]);
    old.reload(&setup.clone().in_place_of(&old).set("access_log", true));
    serves(&mut old);
    let new = take_over(&setup, &old);
    assert!(old.wait().success());
    assert_eq!(new.ask(chat("x")).status(), 200);
}

/// What is made by the control API is the next one's, and is still the old one's if there is no next one.
#[test]
fn the_state_of_the_control_api_goes_along() {
    let upstream = Upstream::ok();
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("state.redb").display().to_string();
    let setup = Setup::single(Engine::Userspace, &upstream)
        .set("control.listen", "127.0.0.1:0")
        .set("control.store", store);
    let mut old = setup.start();
    let make = |gateway: &Gateway, name: &str| {
        let role = "arn:aws:iam::123456789012:role/x";
        let model = json!({ "ModelName": name, "ExecutionRoleArn": role,
                            "PrimaryContainer": { "Image": "vllm" } });
        gateway.call("CreateModel", &model)
    };
    assert_eq!(make(&old, "one").status(), 200);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // It fails after the state was released.
    refused(&setup.clone().in_place_of(&old).set("admin", taken));
    eventually("the old one has its state again", || make(&old, "two").status() == 200);
    let new = take_over(&setup, &old);
    let listed = new.done("ListModels", &json!({}));
    let names: Vec<_> =
        listed["Models"].as_array().unwrap().iter().map(|it| it["ModelName"].clone()).collect();
    assert!(names.contains(&json!("one")) && names.contains(&json!("two")), "{names:?}");
    assert_eq!(make(&new, "three").status(), 200);
    assert!(old.wait().success());
}
