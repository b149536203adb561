//! Which instance gets a request, seen from outside.

mod bodies;
mod conversations;
mod endpoints;
mod prefix;
mod stored;
mod strategies;
mod threshold;

use std::{collections::HashMap, sync::Barrier};

use tests::{
    Engine, Gate, Gateway, Message, Setup, Upstream, eventually,
    gateway::{INSTANCE_HEADER, REASON_HEADER},
    message::{chat, chat_body, chat_with, request, request_with, response},
    payload,
};

const PREFIX: i64 = 1024;
const TENANT: &str = "X-Amzn-SageMaker-Prefix-Aware-Id";

fn fleet(count: usize) -> Vec<Upstream> {
    (0..count).map(|_| Upstream::ok()).collect()
}

fn start(fleet: &[Upstream]) -> Gateway {
    Setup::new(Engine::Userspace).instances(fleet).prefix_aware(PREFIX, 1024).start()
}

/// Which of the fleet a response names.
#[track_caller]
fn served_by(fleet: &[Upstream], answer: &Message) -> usize {
    assert_eq!(answer.status(), 200);
    let name = answer.get(INSTANCE_HEADER).expect("the instance is named");
    fleet
        .iter()
        .position(|upstream| name.contains(&upstream.address().to_string()))
        .unwrap_or_else(|| panic!("{name} is no instance"))
}

#[track_caller]
fn reason(answer: &Message) -> String {
    answer.get(REASON_HEADER).expect("the reason is named").to_owned()
}

/// Many clients with one prompt at once, all held open; answers come once the gate opens.
fn crowd(gateway: &Gateway, gate: &Gate, count: usize, text: &str) -> Vec<Message> {
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    barrier.wait();
                    client.send(chat(text));
                    client.response()
                })
            })
            .collect();
        eventually("all are held", || gate.waiting() == count);
        assert_eq!(gateway.in_flight() as usize, count);
        gate.open();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}
