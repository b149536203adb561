use proptest::prelude::*;

use super::{reference, *};
use crate::prefix::properties;

pub(super) fn scan(api: Api, length: usize, body: &[u8]) -> Prefix {
    scan_to(PrefixEnd::Length, api, length, body)
}

pub(super) fn scan_to(end: PrefixEnd, api: Api, length: usize, body: &[u8]) -> Prefix {
    let mut scanner = Scanner::new(api, length);
    scanner.end_at(end);
    scanner.feed(body);
    scanner.finish()
}

/// The text as characters, with `|` between pieces.
pub(super) fn text(api: Api, length: usize, body: &str) -> String {
    let prefix = scan(api, length, body.as_bytes());
    assert_ne!(prefix.kind, PrefixKind::Body, "{body}");
    let pieces: Vec<_> =
        prefix.text.split(|&b| b == BOUNDARY).map(|p| String::from_utf8_lossy(p)).collect();
    pieces.join("|")
}

pub(super) fn chat(messages: &str) -> String {
    text(Api::ChatCompletions, 1000, &format!(r#"{{"model":"m","messages":{messages}}}"#))
}

#[test]
fn chat_text_is_the_content_of_messages() {
    assert_eq!(chat(r#"[{"role":"system","content":"ab"},{"content":"c","role":"user"}]"#), "ab|c");
    assert_eq!(
        chat(
            r#"[{"role":"user","content":[{"type":"text","text":"a"},
                {"type":"refusal","refusal":"no"},
                {"text":"b","type":"input_text"}]}]"#
        ),
        "a|b"
    );
    assert_eq!(
        chat(
            r#"[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f",
                "arguments":"{\"content\":\"no\"}"},"content":"no"}]},
                {"role":"tool","tool_call_id":"1","content":"result"}]"#
        ),
        "result"
    );
    assert_eq!(chat(r#"["bare", {"content":""}, {"content":[]}, {"content":"x"}]"#), "bare|x");
}

#[test]
fn other_apis_have_their_own_keys() {
    let t = |api, body| text(api, 1000, body);
    assert_eq!(t(Api::Completions, r#"{"prompt":"once","messages":[{"content":"no"}]}"#), "once");
    assert_eq!(t(Api::Completions, r#"{"prompt":["a","b"]}"#), "a|b");
    assert_eq!(t(Api::Embeddings, r#"{"input":"a"}"#), "a");
    assert_eq!(t(Api::Embeddings, r#"{"input":["a","b"]}"#), "a|b");
    assert_eq!(t(Api::Generate, r#"{"text":"a","sampling_params":{"text":"no"}}"#), "a");
    assert_eq!(t(Api::Responses, r#"{"input":"b"}"#), "b");
    assert_eq!(
        t(
            Api::Responses,
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"b"}]},
                {"type":"function_call_output","output":"c"},{"type":"message","content":"d"}],
                "instructions":"a"}"#
        ),
        "a|b|c|d"
    );
    assert_eq!(
        t(
            Api::Messages,
            r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[
                {"type":"tool_result","content":[{"type":"text","text":"r"}]}]}]}"#
        ),
        "s|r"
    );
}

#[test]
fn what_the_server_puts_first_counts_first() {
    for length in 1..12 {
        let first =
            text(Api::Messages, length, r#"{"system":"sys","messages":[{"content":"héllo"}]}"#);
        let last =
            text(Api::Messages, length, r#"{"messages":[{"content":"héllo"}],"system":"sys"}"#);
        assert_eq!(first, last);
        assert_eq!(first.chars().filter(|c| *c != '|').count(), length.min(8));
    }
    assert_eq!(text(Api::Messages, 3, r#"{"messages":[{"content":"x"}],"system":"sys"}"#), "sys");
    assert_eq!(text(Api::Messages, 9, r#"{"messages":[{"content":"x"}],"system":null}"#), "x");
}

#[test]
fn token_ids() {
    let t = |api, body| {
        let prefix = scan(api, 4, body);
        (prefix.kind, prefix.units, prefix.text)
    };
    let ids = |units, text: &[u8]| (PrefixKind::TokenIds, units, text.to_vec());
    assert_eq!(t(Api::Completions, br#"{"prompt":[1, 22,333]}"#), ids(3, b"1,22,333,"));
    assert_eq!(t(Api::Completions, br#"{"prompt":[1,2,3,4,5,6]}"#), ids(4, b"1,2,3,4,"));
    assert_eq!(t(Api::Embeddings, br#"{"input":[[1,2],[3],[4,5]]}"#), ids(4, b"1,2,\xff3,\xff4,"));
    assert_eq!(t(Api::Generate, br#"{"input_ids":[7]}"#), ids(1, b"7,"));
    assert_eq!(t(Api::Generate, br#"{"text":null,"input_ids":[7,"x"]}"#), ids(1, b"7,"));
    assert_eq!(t(Api::Generate, br#"{"text":"a","input_ids":[7]}"#).2, b"a");
    // Not the same as the text of the same bytes, and no ids where none can be.
    assert_eq!(t(Api::Completions, br#"{"prompt":"1,"}"#).0, PrefixKind::Text);
    assert_eq!(t(Api::ChatCompletions, br#"{"messages":[1,2]}"#).0, PrefixKind::Body);
    assert_eq!(t(Api::Completions, br#"{"prompt":5}"#).0, PrefixKind::Body);
}

#[test]
fn characters_count_once_however_written() {
    let units = |content: &str| {
        let body = format!(r#"{{"prompt":"{content}"}}"#);
        let prefix = scan(Api::Completions, 1000, body.as_bytes());
        (prefix.units, String::from_utf8(prefix.text).unwrap())
    };
    assert_eq!(units(r#"\"\\\/\b\f\n\r\t"#), (8, r#"\"\\/\b\f\n\r\t"#.into()));
    assert_eq!(
        units(r#"\u0022\u005c\u002f\u0008\u000c\u000a\u000D\u0009\u0001"#),
        (9, "\\\"\\\\/\\b\\f\\n\\r\\t\u{1}".into())
    );
    assert_eq!(units(r"\u00e9\u4e2d\ud83d\ude00é中😀"), (6, "é中😀é中😀".into()));
    assert_eq!(units(r"\ud83d"), (1, "\u{fffd}".into()));
    assert_eq!(units(r"\ud83dx\ude00"), (3, "\u{fffd}x\u{fffd}".into()));
    assert_eq!(units(r"\ud83d\ud83d\ude00"), (2, "\u{fffd}😀".into()));
    assert_eq!(units(r"\ud83d\n"), (2, "\u{fffd}\\n".into()));
    assert_eq!(units(r"\x\u12"), (2, "\\x\u{fffd}".into()));
    assert_eq!(units(r"\u00zz"), (3, "\u{fffd}zz".into()));
}

#[test]
fn the_prefix_ends_at_its_length() {
    let body = r#"{"prompt":"a\u00e9😀\ud83d\ude00\nb"}"#;
    for (length, expected) in [
        (1, "a"),
        (2, "aé"),
        (3, "aé😀"),
        (4, "aé😀😀"),
        (5, "aé😀😀\\n"),
        (6, "aé😀😀\\nb"),
        (7, "aé😀😀\\nb"),
    ] {
        assert_eq!(text(Api::Completions, length, body), expected);
    }
    assert_eq!(text(Api::Completions, 2, r#"{"prompt":["a","b","c"]}"#), "a|b");
    // A boundary belongs to what follows it, so nothing hangs at the end.
    assert_eq!(scan(Api::Completions, 1, br#"{"prompt":["a","b"]}"#).text, b"a");
}

#[test]
fn equal_beginnings_meet_and_cuts_between_strings_matter() {
    let key = |body: &str| scan(Api::ChatCompletions, 4, body.as_bytes()).text;
    let one = key(r#"{"messages":[{"content":"abcdef"},{"content":"x"}]}"#);
    let two = key(r#"{"messages":[{"content":"abcdxx"}],"stream":true}"#);
    assert_eq!(one, two);
    let cut = |a, b| chat(&format!(r#"[{{"content":"{a}"}},{{"content":"{b}"}}]"#));
    assert_ne!(cut("ab", "c"), cut("a", "bc"));
    assert_eq!(
        chat(r#"[{"content":"ab"}]"#),
        chat(r#"[{"content":[{"type":"text","text":"ab"}]}]"#)
    );
}

#[test]
fn model_and_cache_key() {
    let names = |api, body: &str| {
        let prefix = scan(api, 4, body.as_bytes());
        let text = |v: Option<Vec<u8>>| v.map(|v| String::from_utf8(v).unwrap());
        (text(prefix.model), text(prefix.cache_key))
    };
    let some = |s: &str| Some(s.to_owned());
    let chat = Api::ChatCompletions;
    assert_eq!(
        names(
            chat,
            r#"{"messages":[{"content":"abcdefgh"}],"model":"a\u0062","prompt_cache_key":"k"}"#
        ),
        (some("ab"), some("k"))
    );
    assert_eq!(names(chat, r#"{"mod\u0065l":"m"}"#), (some("m"), None));
    assert_eq!(names(chat, r#"{"x":{"model":"no"},"metadata":[{"model":"no"}]}"#), (None, None));
    assert_eq!(
        names(chat, r#"{"model":null,"model":"m","prompt_cache_key":5}"#),
        (some("m"), None)
    );
    assert_eq!(names(chat, r#"{"model":["no"],"model":"m"}"#), (None, None));
    assert_eq!(names(chat, r#"{"model":"a","model":"b"}"#), (some("a"), None));
    assert_eq!(names(chat, r#"{"model":""}"#), (some(""), None));
    assert_eq!(names(Api::Generate, r#"{"model":"no","lora_path":"l"}"#), (some("l"), None));
    let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(3000));
    assert_eq!(names(chat, &long), (some(&"x".repeat(MAX_NAME)), None));
}

#[test]
fn the_first_of_equal_keys_counts() {
    assert_eq!(chat(r#"[{"content":"a","content":"b"}]"#), "a");
    assert_eq!(chat(r#"[{"content":null,"content":"b"}]"#), "b");
    let twice = r#"{"messages":[{"content":"a"}],"messages":[{"content":"b"}]}"#;
    assert_eq!(text(Api::ChatCompletions, 9, twice), "a");
}

#[test]
fn bodies_without_text_are_their_own_prefix() {
    for body in [
        &b""[..],
        b"not json",
        b"\xff\xfe\x00",
        b"[1,2]",
        b"\"text\"",
        b"{\"model\":\"m\"}",
        b"{}",
        b"{",
        b"{\"messages\":[]}",
        b"{\"messages\":[{\"content\":\"\"}]}",
        b"}{",
        b"{\"a\" 1}",
        b"null",
        b"{\"messages\"",
        b"{:",
        b"{\"a\":}",
    ] {
        let prefix = scan(Api::ChatCompletions, 6, body);
        assert_eq!(prefix.kind, PrefixKind::Body, "{body:?}");
        assert_eq!(prefix.text, &body[..body.len().min(6)], "{body:?}");
        assert_eq!(prefix.units, prefix.text.len());
    }
    // White space behind the object may not have arrived when it is decided.
    properties::scan(Api::ChatCompletions, 20, &[5], b" {\"model\":\"m\"} \n");
    let raw = scan(Api::Invocations, 12, br#"{"messages":[{"content":"a"}],"model":"m"}"#);
    assert_eq!((raw.text, raw.model), (br#"{"messages":"#.to_vec(), None));
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let body = br#"{"model":"m","messages":[{"content":"text"}]}"#;
    let marked = [b"\xef\xbb\xbf", &body[..]].concat();
    let prefix = scan(Api::ChatCompletions, 9, &marked);
    assert_eq!(prefix, scan(Api::ChatCompletions, 9, body));
    assert_eq!(prefix.kind, PrefixKind::Text);
    properties::scan(Api::ChatCompletions, 9, &[1], &marked);
    // Part of one, or two, is none. Where bytes count, it is bytes.
    for body in [&b"\xef{}"[..], b"\xef\xbb{}", b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xef\xbb\xbf"] {
        assert_eq!(scan(Api::ChatCompletions, 9, body).text, body);
    }
    assert_eq!(scan(Api::Invocations, 4, &marked).text, b"\xef\xbb\xbf{");
}

#[test]
fn malformed_json_is_known() {
    let malformed = |body: &[u8]| {
        let mut scanner = Scanner::new(Api::ChatCompletions, 9);
        let enough = scanner.feed(body);
        scanner.is_malformed(!enough)
    };
    for body in [&b""[..], b"{}", b" {\"messages\":[]} ", br#"{"messages":[{"content":"x"}]}"#] {
        assert!(!malformed(body), "{body:?}");
    }
    for body in [&b"x"[..], b"[1]", b"{", b"{\"a\" 1}", b"{\"messages\":[{\"content\":\"x", b" "] {
        assert!(malformed(body), "{body:?}");
    }
}

#[test]
fn malformed_json_keeps_what_was_found() {
    assert_eq!(text(Api::ChatCompletions, 9, r#"{"messages":[{"content":"ab"}}"#), "ab");
    assert_eq!(text(Api::ChatCompletions, 9, r#"{"messages":[{"content":"ab"#), "ab");
}

/// What is left of the body when the scanner needs no more of it.
fn fed_until(api: Api, length: usize, body: &[u8]) -> Option<&[u8]> {
    let mut scanner = Scanner::new(api, length);
    (0..body.len()).find(|&i| scanner.feed(&body[i..=i])).map(|i| &body[i + 1..])
}

#[test]
fn it_says_when_enough_was_read() {
    let chat = Api::ChatCompletions;
    // The end of the value, the white space behind it not needed.
    assert_eq!(fed_until(chat, 9, b"{\"messages\":[]} \n"), Some(&b" \n"[..]));
    // Full, and both names known: nothing more, not even the end of the string.
    let body = br#"{"model":"m","prompt_cache_key":"k","messages":[{"content":"abcdef"}]}"#;
    assert_eq!(fed_until(chat, 3, body), Some(&br#"ef"}]}"#[..]));
    let body = br#"{"prompt_cache_key":"k","messages":[{"content":"abcdef"}],"model":"m","x":1}"#;
    assert_eq!(fed_until(chat, 3, body), Some(&br#","x":1}"#[..]));
    assert_eq!(fed_until(chat, 3, br#"{"model":"m","messages":[{"content":"abcdef"}]"#), None);
    // What comes first must be known.
    let body = br#"{"model":"m","prompt_cache_key":"k","messages":[{"content":"abc"}],"system":"s","x":1}"#;
    assert_eq!(fed_until(Api::Messages, 2, body), Some(&br#","x":1}"#[..]));
    assert_eq!(fed_until(Api::Invocations, 3, b"abcdef"), Some(&b"def"[..]));
    assert_eq!(fed_until(chat, 3, b"abcdef"), Some(&b"def"[..]));
}

#[test]
fn what_is_known_is_not_waited_for() {
    let body = br#"{"messages":[{"content":"abcdef"}],"model":"m","prompt_cache_key":"k"}"#;
    let scanned = |model, cache_key| {
        let mut scanner = Scanner::new(Api::ChatCompletions, 3);
        scanner.ignore(model, cache_key);
        let end = (0..body.len()).find(|&i| scanner.feed(&body[i..=i])).unwrap();
        let prefix = scanner.finish();
        (&body[end + 1..], prefix.model.is_some(), prefix.cache_key.is_some())
    };
    assert_eq!(scanned(false, false), (&b"}"[..], true, true));
    assert_eq!(scanned(false, true), (&br#","prompt_cache_key":"k"}"#[..], true, false));
    assert_eq!(scanned(true, false), (&b"}"[..], false, true));
    let (rest, ..) = scanned(true, true);
    assert!(rest.starts_with(b"ef\""));
}

#[test]
fn a_stored_response_is_looked_for_where_there_can_be_one() {
    // As clients send it: behind the prompt.
    let body = br#"{"instructions":"s","input":"abcdef","model":"m","prompt_cache_key":"k","previous_response_id":"resp_1","x":1}"#;
    assert_eq!(fed_until(Api::Responses, 3, body), Some(&br#","x":1}"#[..]));
    assert_eq!(scan(Api::Responses, 3, body).previous.as_deref(), Some(&b"resp_1"[..]));
    assert_eq!(scan(Api::ChatCompletions, 3, body).previous, None);
    for none in [&br#"{"previous_response_id":null}"#[..], br#"{"previous_response_id":7}"#, b"{}"]
    {
        assert_eq!(scan(Api::Responses, 3, none).previous, None);
    }
}

#[test]
fn depth_costs_nothing() {
    for open in ["[", "{\"content\":", "{\"a\":["] {
        let body = format!("{{\"messages\":{}", open.repeat(1_000_000));
        assert_eq!(scan(Api::ChatCompletions, 9, body.as_bytes()).kind, PrefixKind::Body);
    }
    let closed = format!(
        r#"{{"messages":[{}{},{{"content":"after"}}]}}"#,
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    assert_eq!(text(Api::ChatCompletions, 9, &closed), "after");
}

#[test]
fn memory_is_bounded_by_the_length_whatever_comes() {
    for filler in [&b"\x80"[..], b"\xff", b"\\ud800", b"\xf0"] {
        let mut body = br#"{"prompt":"a"#.to_vec();
        for _ in 0..100_000 {
            body.extend_from_slice(filler);
        }
        assert!(scan(Api::Completions, 16, &body).text.len() <= 5 * 16);
    }
    // Where that bound is met, cuts do not matter either.
    let mut body = br#"{"prompt":"ab\u"#.to_vec();
    body.extend_from_slice(&[0xb4; 60]);
    for size in 1..70 {
        properties::scan(Api::Completions, 8, &[size], &body);
    }
    let ids = format!(r#"{{"prompt":[{}"#, "1".repeat(100_000));
    assert!(scan(Api::Completions, 16, ids.as_bytes()).text.len() <= 24 * 16 + 1);
}

#[test]
fn a_scanner_in_use_again_is_as_new() {
    let bodies: [(Api, &[u8]); 5] = [
        (Api::Messages, br#"{"messages":[{"content":"ab"}],"system":"x","model":"m"}"#),
        (Api::Completions, br#"{"prompt":[1,2],"prompt_cache_key":"k"}"#),
        (Api::ChatCompletions, b"not json"),
        (Api::Invocations, b"raw"),
        (Api::ChatCompletions, br#"{"messages":[{"content":"a\"#),
    ];
    let mut scanner = Scanner::new(Api::Other, 1);
    for (api, body) in bodies.iter().chain(bodies.iter().rev()) {
        scanner.reset(*api, 5);
        scanner.feed(body);
        let (borrowed, owned) = (scanner.prefix(), scan(*api, 5, body));
        assert_eq!(borrowed.text, owned.text);
        assert_eq!((borrowed.units, borrowed.kind), (owned.units, owned.kind));
        assert_eq!(borrowed.model, owned.model.as_deref());
        assert_eq!(borrowed.cache_key, owned.cache_key.as_deref());
    }
}

fn any_api() -> impl Strategy<Value = Api> {
    proptest::sample::select(&properties::APIS[..])
}

/// Lengths below and above what is read in large steps.
pub(super) fn any_length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..60, 4 => 60usize..700, 1 => 4000usize..13_000]
}

/// Strings with what JSON and UTF-8 make difficult, as they are written in a body.
pub(super) fn any_string() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z ]{0,20}",
        "[a-z ]{50,140}",
        Just(r#"\""#.to_owned()),
        Just(r"\\".to_owned()),
        Just(r"\n".to_owned()),
        Just(r"\u00e9".to_owned()),
        Just(r"\ud83d\ude00".to_owned()),
        Just("é中😀".to_owned()),
        Just("{[]},:".to_owned()),
    ];
    proptest::collection::vec(part, 0..9).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn any_role() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(
        &[
            r#""user""#,
            r#""user""#,
            r#""system""#,
            r#""assistant""#,
            r#""us\u0065r""#,
            r#""User""#,
            r#""a role that is longer than any key of interest""#,
            "null",
            r#"null,"role":"user""#,
            r#""tool","role":"user""#,
            r#"["user"]"#,
        ][..],
    )
}

/// JSON values that look like requests.
fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => any_string(),
        1 => Just("null".to_owned()),
        1 => Just("\"text\"".to_owned()),
        1 => Just("true".to_owned()),
        1 => (0u32..200_000).prop_map(|n| n.to_string()),
        1 => proptest::collection::vec(0u32..200_000, 0..12).prop_map(|ids| format!("{ids:?}")),
    ];
    let key = proptest::sample::select(
        &[
            "image_url",
            "url",
            "source",
            "data",
            "file",
            "file_data",
            "input_audio",
            "image_data",
            "query",
            "documents",
            "inputs",
            "messages",
            "content",
            "text",
            "type",
            "role",
            "output",
            "input",
            "prompt",
            "system",
            "instructions",
            "model",
            "prompt_cache_key",
            "input_ids",
            "lora_path",
            "tool_calls",
            "a-key-that-is-longer-than-any-of-interest",
            "mod\\u0065l",
            "",
        ][..],
    );
    leaf.prop_recursive(7, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5)
                .prop_map(|elements| format!("[{}]", elements.join(","))),
            proptest::collection::vec((inner.clone(), any_role(), any::<bool>()), 0..5).prop_map(
                |messages| {
                    let messages = messages.iter().map(|(content, role, first)| match first {
                        true => format!(r#"{{"role":{role},"content":{content}}}"#),
                        false => format!(r#"{{"content":{content} ,"role": {role}}}"#),
                    });
                    format!("[{}]", messages.collect::<Vec<_>>().join(","))
                }
            ),
            proptest::collection::vec((key.clone(), inner), 0..6).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(k, v)| format!("\"{k}\" : {v}")).collect();
                format!("{{{}}}", members.join(" ,\n"))
            }),
        ]
    })
}

/// Parts of JSON, to be put together wrongly.
const PIECES: [&str; 11] =
    ["{", "}", "[", "]", "\"", "\\", ":", ",", "\"messages\":", "\\u", "\\ud83d"];

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        any_value().prop_map(String::into_bytes),
        any_string().prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..8),
        proptest::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    proptest::collection::vec(fragment, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn it_agrees_with_a_tree(api in any_api(), length in any_length(), body in any_value()) {
        for end in [PrefixEnd::Length, PrefixEnd::FirstUserMessage] {
            let expected = reference::prefix(api, length, end, body.as_bytes()).expect("valid JSON");
            prop_assert_eq!(scan_to(end, api, length, body.as_bytes()), expected, "{}", body);
        }
    }

    #[test]
    fn any_cut_gives_the_same(
        api in any_api(),
        length in any_length(),
        body in any_bytes(),
        sizes in proptest::collection::vec(prop_oneof![1usize..9, 1usize..200], 1..20),
    ) {
        properties::scan(api, length, &sizes, &body);
    }
}

/// What fuzzing starts from, and what it found before, also where there is no fuzzer.
#[test]
fn the_seeds_of_fuzzing() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fuzz/seeds/scanner");
    for entry in std::fs::read_dir(dir).unwrap() {
        properties::scan_seed(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}
