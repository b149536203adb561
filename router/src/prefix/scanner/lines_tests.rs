use proptest::prelude::*;

use super::{
    tests::{any_length, any_string, scan},
    *,
};

const SKIP: [&str; 2] = ["x-anthropic-billing-header:", "current time:"];

fn skipping(api: Api, length: usize, body: &[u8], sizes: &[usize]) -> Prefix {
    let mut scanner = Scanner::new(api, length);
    scanner.skip_lines(&SKIP.map(|line| line.as_bytes().into()).into());
    let mut rest = body;
    for size in sizes.iter().chain(&[1 << 20]).cycle() {
        let (now, later) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        if scanner.feed(now) || later.is_empty() {
            break;
        }
        rest = later;
    }
    scanner.finish()
}

#[test]
fn lines_that_change_with_each_request_are_left_out() {
    let body = |nonce: &str, time: &str| {
        format!(
            r#"{{"model":"m","system":[{{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"}},
                {{"type":"text","text":"You are Claude.\n\nCurrent Time: {time}\nBe brief."}}],
                "messages":[{{"role":"user","content":"x-ray\ncurrent times\nCURRENT TIME:"}}]}}"#
        )
    };
    let expected = r"You are Claude.\n\nBe brief.|x-ray\ncurrent times\n";
    for (nonce, time) in [("36ee5", "12:00"), ("0aaa9", r#"12:01 \"noon\" \\n"#)] {
        let prefix = skipping(Api::Messages, 1000, body(nonce, time).as_bytes(), &[]);
        let shown = String::from_utf8(
            prefix.text.iter().map(|&b| if b == BOUNDARY { b'|' } else { b }).collect(),
        );
        assert_eq!(shown.as_deref(), Ok(expected));
        assert_eq!(prefix.units, expected.len() - 1 - 4, "escapes are one character each");
    }
}

/// Twice the text takes twice the time, whatever it is made of: a hundred times the time that a prefix of
/// this length takes is far from what a scan of all that remains would take at each step.
#[test]
fn lines_and_escapes_are_read_once() {
    let time = |unit: &str, between: &str, strings: usize, units: usize| {
        let text = format!(r#"{{"content":"{}"}}"#, unit.repeat(units));
        let body = format!(r#"{{"messages":[{}]}}"#, vec![text; strings].join(between));
        let start = std::time::Instant::now();
        skipping(Api::ChatCompletions, 65_536, body.as_bytes(), &[]);
        start.elapsed()
    };
    let plain = time("x", ",", 1, 65_536).max(std::time::Duration::from_millis(1));
    for (unit, strings, units) in
        [(r"\n", 1, 65_536), (r"\u00e9", 1, 65_536), ("x", 20_000, 1), (r"\\", 1, 65_536)]
    {
        // On a busy machine, one that was not interrupted counts.
        let taken = (0..10).map(|_| time(unit, ",", strings, units)).min().expect("ten of them");
        assert!(taken < plain * 100, "{unit}: {taken:?}, and {plain:?} without");
    }
}

proptest! {
    /// Skipping lines is the same as sending text without them.
    #[test]
    fn lines_are_skipped_as_if_they_were_not_there(
        strings in proptest::collection::vec(proptest::collection::vec(prop_oneof![
            3 => any_string().prop_map(|s| s[1..s.len() - 1].to_owned()),
            1 => Just("X-Anthropic-Billing-Header: a".to_owned()),
            1 => Just(r"current time:\u00e9 \\n".to_owned()),
            1 => Just("current tim".to_owned()),
            1 => Just("current ".to_owned()),
            1 => Just("\\u0078-anthropic-billing-header:".to_owned()),
        ], 0..6), 0..5),
        separators in proptest::collection::vec(prop_oneof![Just("\\n"), Just("\\u000a")], 30),
        length in any_length(),
        sizes in proptest::collection::vec(1usize..200, 1..20),
    ) {
        let mut separator = separators.iter().cycle();
        let decoded = |line: &str| serde_json::from_str::<String>(&format!("\"{line}\"")).unwrap();
        let mut with = Vec::new();
        let mut without = Vec::new();
        for lines in &strings {
            let mut text = String::new();
            for (at, line) in lines.iter().enumerate() {
                if at > 0 {
                    text += separator.next().unwrap();
                }
                text += line;
            }
            let kept: String = decoded(&text)
                .split_inclusive('\n')
                .filter(|line| !SKIP.iter().any(|skip| line.to_ascii_lowercase().starts_with(skip)))
                .collect();
            with.push(format!(r#"{{"role":"user","content":"{text}"}}"#));
            without.push(serde_json::json!({"role": "user", "content": kept}).to_string());
        }
        let body = |messages: &[String]| format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
        let (with, without) = (body(&with), body(&without));
        let mut expected = scan(Api::ChatCompletions, length, without.as_bytes());
        let found = skipping(Api::ChatCompletions, length, with.as_bytes(), &sizes);
        if expected.kind == PrefixKind::Body {
            expected.text = found.text.clone();
            expected.units = found.units;
        }
        prop_assert_eq!(found, expected, "{}", with);
    }
}
