//! Prefixes that end with the first message of the user.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PrefixEnd, tests::scan_to};
use crate::api::Api;

fn opening(api: Api, length: usize, body: &Value) -> (Vec<u8>, bool) {
    let found = scan_to(PrefixEnd::FirstUserMessage, api, length, body.to_string().as_bytes());
    (found.text, found.opening)
}

fn chat(messages: Value) -> Value {
    json!({ "messages": messages, "model": "m" })
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

#[test]
fn it_ends_behind_the_first_message_of_the_user() {
    let body = chat(json!([
        said("system", "S"),
        said("assistant", "A"),
        said("user", "Q"),
        said("user", "R")
    ]));
    assert_eq!(opening(Api::ChatCompletions, 100, &body), (b"S\xffA\xffQ".to_vec(), true));
    // Where the length ends it, all is as it is without.
    assert_eq!(opening(Api::ChatCompletions, 3, &body), (b"S\xffA\xffQ".to_vec(), false));
    assert_eq!(opening(Api::ChatCompletions, 2, &body), (b"S\xffA".to_vec(), false));
}

#[test]
fn the_role_may_stand_behind_the_content() {
    let body = br#"{"messages":[{"content":"S","role":"system"},{"content":[{"type":"text","text":"Q"},
        {"type":"text","text":"R"}],"name":"x","role":"user"},{"content":"A","role":"assistant"}]}"#;
    let found = scan_to(PrefixEnd::FirstUserMessage, Api::ChatCompletions, 100, body);
    assert_eq!((&*found.text, found.opening), (&b"S\xffQ\xffR"[..], true));
}

#[test]
fn only_the_exact_role_of_a_message_counts_and_the_first_of_two() {
    for (role, ends) in [
        (r#""user""#, true),
        (r#""\u0075ser""#, true),
        (r#""User""#, false),
        (r#""user ""#, false),
        (r#"["user"]"#, false),
        (r#"{"role":"user"}"#, false),
        (r#"null,"role":"user""#, true),
        (r#""tool","role":"user""#, false),
        (r#""user","role":"tool""#, true),
    ] {
        let body = format!(
            r#"{{"messages":[{{"role":{role},"content":"Q"}},{{"role":"assistant","content":"A"}}]}}"#
        );
        let found =
            scan_to(PrefixEnd::FirstUserMessage, Api::ChatCompletions, 100, body.as_bytes());
        assert_eq!(found.opening, ends, "{role}");
        assert_eq!(found.text == b"Q", ends, "{role}");
    }
    // Not the role of something else.
    let body =
        br#"{"role":"user","messages":[{"role":"assistant","content":[{"role":"user","text":"A"}]},
        {"role":"assistant","content":"B"}]}"#;
    let found = scan_to(PrefixEnd::FirstUserMessage, Api::ChatCompletions, 100, body);
    assert_eq!((&*found.text, found.opening), (&b"A\xffB"[..], false));
}

#[test]
fn an_empty_message_does_not_end_it() {
    let body = chat(json!([
        said("user", ""),
        json!({"role": "user", "content": null}),
        said("user", "Q"),
        said("user", "R")
    ]));
    assert_eq!(opening(Api::ChatCompletions, 100, &body), (b"Q".to_vec(), true));
    let none = chat(json!([said("system", "S"), said("assistant", "A")]));
    assert_eq!(opening(Api::ChatCompletions, 100, &none), (b"S\xffA".to_vec(), false));
}

#[test]
fn media_ends_it_as_text_does() {
    let picture = json!([{"type": "image_url", "image_url": {"url": "data:,x"}}]);
    let body = chat(json!([{"role": "user", "content": picture}, said("assistant", "A")]));
    let (text, ends) = opening(Api::ChatCompletions, 10_000, &body);
    assert_eq!((text.len(), ends), (33, true));
}

#[test]
fn what_leads_counts_before_it_wherever_it_stands() {
    let messages = json!([said("user", "Q"), said("assistant", "A")]);
    let texts = [
        format!(r#"{{"system":"S","messages":{messages},"model":"m"}}"#),
        format!(r#"{{"messages":{messages},"model":"m","system":"S"}}"#),
    ]
    .map(|body| {
        let found = scan_to(PrefixEnd::FirstUserMessage, Api::Messages, 100, body.as_bytes());
        (found.text, found.opening)
    });
    assert_eq!(texts[0], (b"S\xffQ".to_vec(), true));
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn the_items_of_a_response_are_messages() {
    let body = json!({"model": "m", "instructions": "S", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Q"}]},
        {"type": "function_call_output", "output": "O"},
    ]});
    assert_eq!(opening(Api::Responses, 100, &body), (b"S\xffQ".to_vec(), true));
}

#[test]
fn prompts_without_roles_end_where_their_length_does() {
    for (api, body) in [
        (Api::Completions, json!({"prompt": [{"role": "user", "content": "Q"}, "R"]})),
        (Api::Embeddings, json!({"messages": [said("user", "Q"), said("user", "R")]})),
        (Api::Rerank, json!({"query": "Q", "documents": [said("user", "R"), said("user", "S")]})),
    ] {
        let to_length = scan_to(PrefixEnd::Length, api, 100, body.to_string().as_bytes());
        assert_eq!(opening(api, 100, &body), (to_length.text, false), "{api:?}");
    }
}

fn any_chat() -> impl Strategy<Value = Vec<(String, String)>> {
    let role = proptest::sample::select(&["system", "user", "assistant", "tool"][..]);
    proptest::collection::vec((role.prop_map(str::to_owned), "[a-z\"é語 ]{0,30}"), 1..9)
}

fn body_of(messages: &[(String, String)]) -> Value {
    chat(messages.iter().map(|(role, text)| said(role, text)).collect())
}

proptest! {
    /// Later turns have the prefix of the first one.
    #[test]
    fn all_turns_of_a_conversation_begin_alike(messages in any_chat(), length in 1usize..120) {
        let first = messages.iter().position(|(role, text)| role == "user" && !text.is_empty());
        if let Some(first) = first {
            let begins = opening(Api::ChatCompletions, length, &body_of(&messages[..=first]));
            for end in first + 1..=messages.len() {
                let turn = opening(Api::ChatCompletions, length, &body_of(&messages[..end]));
                prop_assert_eq!(&turn.0, &begins.0);
            }
        }
    }

    /// What meets by its length meets.
    #[test]
    fn what_is_equal_up_to_the_length_is_equal(
        messages in any_chat(),
        others in any_chat(),
        length in 1usize..120,
    ) {
        let to_length = |body: &Value| {
            scan_to(PrefixEnd::Length, Api::ChatCompletions, length, body.to_string().as_bytes())
        };
        let one = body_of(&messages);
        let other = body_of(&[&messages[..], &others].concat());
        if to_length(&one).units == length && to_length(&one).text == to_length(&other).text {
            let ends = [&one, &other].map(|body| opening(Api::ChatCompletions, length, body).0);
            prop_assert_eq!(&ends[0], &ends[1]);
        }
    }
}
