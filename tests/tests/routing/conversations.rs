//! Where the turns of a conversation go.

use serde_json::{Value, json};

use super::*;

/// Turns of each conversation.
const TURNS: usize = 6;

/// The instances of the turns of conversation `number`, which share a system prompt of 900 characters with all others
/// and have some 400 characters in each message.
fn instances_of(gateway: &Gateway, fleet: &[Upstream], number: u64) -> Vec<usize> {
    let mut messages = vec![json!({"role": "system", "content": payload::text(7, 900)})];
    let turn = |messages: &mut Vec<Value>, turn: u64| {
        // Some clients write the role last.
        let text = payload::text(number * 100 + turn, 400);
        let text = format!("{number} {text}");
        messages.push(match number % 2 {
            0 => json!({"role": "user", "content": text}),
            _ => {
                serde_json::from_str(&format!("{{\"content\":{},\"role\":\"user\"}}", json!(text)))
                    .expect("JSON")
            }
        });
        let body = json!({"messages": messages, "model": "m", "stream": false});
        let sent = request("POST", "/v1/chat/completions", body.to_string());
        let instance = served_by(fleet, &gateway.ask(sent));
        messages.push(json!({"role": "assistant", "content": payload::text(turn, 400)}));
        instance
    };
    (0..TURNS as u64).map(|at| turn(&mut messages, at)).collect()
}

#[test]
fn with_the_first_user_message_as_its_end_all_turns_have_one_home() {
    let fleet = fleet(7);
    let setup = |end: &str| {
        Setup::new(Engine::Userspace)
            .instances(&fleet)
            .prefix_aware(4096, 1024)
            .set("prefix.end", end)
    };
    let gateway = setup("first_user_message").start();
    let mut homes = std::collections::HashSet::new();
    for number in 0..12 {
        let mut instances = instances_of(&gateway, &fleet, number);
        homes.insert(instances[0]);
        instances.dedup();
        assert_eq!(instances.len(), 1, "conversation {number} went to {instances:?}");
    }
    assert!(homes.len() >= 4, "twelve conversations have homes of their own: {homes:?}");
    drop(gateway);

    // What the setting is for: turns that are shorter than the length part otherwise.
    let gateway = setup("length").start();
    let moved = (0..12).filter(|number| {
        let instances = instances_of(&gateway, &fleet, *number);
        instances.iter().any(|instance| *instance != instances[0])
    });
    assert!(moved.count() >= 10);
}
