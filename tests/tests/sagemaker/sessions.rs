//! Stateful sessions.

use std::time::{Duration, SystemTime};

use tests::{
    Engine, Gateway, Message, Setup, Upstream, eventually,
    message::{Message as Wire, request_with, response_with},
};

use crate::{call, error_type};

const SESSION: &str = "X-Amzn-SageMaker-Session-Id";
const NEW: &str = "X-Amzn-SageMaker-New-Session-Id";
const CLOSED: &str = "X-Amzn-SageMaker-Closed-Session-Id";

/// When a session ends, as models write it.
fn in_future(ahead: Duration) -> String {
    humantime::format_rfc3339_seconds(SystemTime::now() + ahead).to_string()
}

/// Opens a session when it is asked to, with a name of its own, and closes it when the body says so.
fn model(number: usize, request: &Wire) -> Vec<u8> {
    let body = request.payload();
    match request.get(SESSION) {
        Some("NEW_SESSION") => {
            let text = String::from_utf8(body).expect("when it ends");
            let new = format!("session-{number}; Expires={text}");
            response_with(200, &[(NEW, &new)], number.to_string())
        }
        Some(id) if body == b"close" => response_with(200, &[(CLOSED, id)], number.to_string()),
        _ => response_with(200, &[], number.to_string()),
    }
}

fn start(fleet: &[Upstream]) -> Gateway {
    Setup::new(Engine::Userspace).instances(fleet).prefix_aware(1024, 1).start()
}

fn fleet() -> Vec<Upstream> {
    (0..4).map(|number| Upstream::answering(move |request| model(number, request))).collect()
}

fn invoke(gateway: &Gateway, session: &str, body: &str) -> Message {
    gateway.ask(call("invocations", &[(SESSION, session)], body))
}

#[test]
fn a_session_stays_where_it_was_opened() {
    let fleet = fleet();
    let gateway = start(&fleet);
    let end = in_future(Duration::from_secs(3600));
    let opened = invoke(&gateway, "NEW_SESSION", &end);
    assert_eq!(opened.status(), 200);
    let (id, _) = opened.get(NEW).expect("a session").split_once(';').expect("and its end");
    let home = opened.payload();
    // Whatever the prefix is, and however it is called.
    for n in 0..12 {
        let answer = invoke(&gateway, id, &format!("{n}").repeat(2000));
        assert_eq!((answer.status(), answer.payload()), (200, home.clone()));
        assert_eq!(answer.get("x-atalho-reason"), Some("session"));
    }
    let stream = gateway.ask(call("invocations-response-stream", &[(SESSION, id)], "x"));
    assert_eq!(stream.get("x-atalho-instance"), opened.get("x-atalho-instance"));
    // Of other endpoints and APIs it is no session.
    let plain = gateway.ask(request_with("POST", "/invocations", &[(SESSION, "any_thing")], "x"));
    assert_eq!(plain.status(), 200);
    // Another instance cannot close it; its own can.
    let closed = invoke(&gateway, id, "close");
    assert_eq!((closed.get(CLOSED), closed.payload()), (Some(id), home));
    let gone = invoke(&gateway, id, "x");
    assert_eq!((gone.status(), error_type(&gone)), (400, "ValidationError"));
    assert_eq!(gone.get("x-atalho-error"), Some("unknown_session"));
    let message = gone.json()["Message"].to_string();
    assert!(message.contains(id) && message.contains("not found"), "{message}");
    gateway.expect_idle();
}

#[test]
fn sessions_end_by_themselves_and_with_their_instances() {
    let mut fleet = fleet();
    let gateway = start(&fleet);
    let unknown = invoke(&gateway, "never-opened", "x");
    assert_eq!((unknown.status(), error_type(&unknown)), (400, "ValidationError"));

    // One that lives for a second is found until then, and never after.
    let opened = invoke(&gateway, "NEW_SESSION", &in_future(Duration::from_secs(2)));
    let id = opened.get(NEW).and_then(|new| new.split(';').next()).expect("a session").to_owned();
    eventually("it has expired", || invoke(&gateway, &id, "x").status() == 400);

    // One that had ended before it began was none.
    let opened = invoke(&gateway, "NEW_SESSION", "1999-01-01T00:00:00Z");
    assert_eq!(opened.status(), 200);
    let id = opened.get(NEW).and_then(|new| new.split(';').next()).expect("a session").to_owned();
    assert_eq!(invoke(&gateway, &id, "x").status(), 400);

    // While its instance drains it goes on; once that is dead, nobody else takes its place.
    let opened = invoke(&gateway, "NEW_SESSION", &in_future(Duration::from_secs(3600)));
    let id = opened.get(NEW).and_then(|new| new.split(';').next()).expect("a session").to_owned();
    let home: usize = String::from_utf8(opened.payload()).unwrap().parse().expect("its number");
    let drained = fleet.iter().enumerate().fold(
        Setup::new(Engine::Userspace).prefix_aware(1024, 1),
        |setup, (number, upstream)| {
            setup.instance_with(upstream.address(), &[("drain", (number == home).into())])
        },
    );
    gateway.reload(&drained);
    assert_eq!(invoke(&gateway, &id, "x").payload(), opened.payload());
    fleet[home].die();
    let dead = invoke(&gateway, &id, "x");
    assert!(matches!(dead.status(), 424 | 503), "{}", dead.status());
    assert_eq!(invoke(&gateway, &id, "x").status(), 503);
    // And one that is no longer configured keeps nothing.
    let rest = fleet.iter().enumerate().filter(|(number, _)| *number != home);
    let rest = rest.map(|(_, upstream)| upstream);
    gateway.reload(&Setup::new(Engine::Userspace).instances(rest).prefix_aware(1024, 1));
    assert_eq!(invoke(&gateway, &id, "x").status(), 400);
}
