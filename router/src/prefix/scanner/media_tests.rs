use super::{
    tests::{chat as chat_text, scan, text},
    *,
};

/// What stands for a media part, by its text.
fn media(text: &str) -> String {
    format!("{MEDIA_SHOWN}{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}

/// How the byte before a hash is shown by [`text`].
const MEDIA_SHOWN: &str = "\u{fffd}";

#[test]
fn media_parts_count_by_their_hash_in_their_place() {
    let data = "data:image/png;base64,iVBORw0KGgo=";
    let m = media(data);
    let parts = |api, key: &str, parts: &str| {
        text(api, 20_000, &format!(r#"{{"{key}":[{{"role":"user","content":[{parts}]}}]}}"#))
    };
    let chat = |content: &str| parts(Api::ChatCompletions, "messages", content);
    for part in [
        r#"{"type":"image_url","image_url":{"url":"DATA","detail":"low"}}"#,
        r#"{"image_url":{"detail":"high","url":"DATA"},"type":"image_url"}"#,
        r#"{"type":"image_url","image_url":"DATA"}"#,
        r#"{"type":"video_url","video_url":{"url":"DATA"}}"#,
        r#"{"type":"audio_url","audio_url":{"url":"DATA"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"DATA","format":"wav"}}"#,
        r#"{"type":"file","file":{"filename":"a.pdf","file_data":"DATA"}}"#,
        r#"{"type":"file","file":{"file_id":"DATA"}}"#,
        r#"{"type":"image_embeds","image_embeds":"DATA"}"#,
    ] {
        let content = format!(r#"{{"type":"text","text":"a"}},{part},{{"text":"b"}}"#);
        assert_eq!(chat(&content.replace("DATA", data)), format!("a|{m}|b"), "{part}");
    }
    // The same picture, spelled as PHP does.
    let escaped = data.replace('/', r"\/");
    assert_eq!(chat(&format!(r#"{{"image_url":{{"url":"{escaped}"}}}}"#)), m);

    let responses = |content: &str| parts(Api::Responses, "input", content);
    for part in [
        r#"{"type":"input_image","image_url":"DATA","detail":"auto"}"#,
        r#"{"type":"input_image","file_id":"DATA"}"#,
        r#"{"type":"input_file","filename":"a.pdf","file_data":"DATA"}"#,
        r#"{"type":"input_file","file_url":"DATA"}"#,
    ] {
        assert_eq!(responses(&part.replace("DATA", data)), m, "{part}");
    }
    let screenshot = format!(
        r#"{{"input":[{{"type":"computer_call_output","output":
            {{"type":"computer_screenshot","image_url":"{data}"}}}}]}}"#
    );
    assert_eq!(text(Api::Responses, 20_000, &screenshot), m);

    let anthropic = |content: &str| parts(Api::Messages, "messages", content);
    for part in [
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"DATA"}}"#,
        r#"{"type":"image","source":{"type":"url","url":"DATA"}}"#,
        r#"{"type":"document","title":"no","source":{"type":"base64","data":"DATA"}}"#,
        r#"{"type":"document","source":{"type":"file","file_id":"DATA"}}"#,
        r#"{"type":"tool_result","content":[{"type":"image","source":{"data":"DATA"}}]}"#,
    ] {
        assert_eq!(anthropic(&part.replace("DATA", data)), m, "{part}");
    }
    // Documents of text are text.
    for part in [
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a\nb"}}"#,
        r#"{"type":"document","source":{"type":"content","content":"a\nb"}}"#,
        r#"{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a\nb"}]}}"#,
    ] {
        assert_eq!(anthropic(part), r"a\nb", "{part}");
    }

    // Pictures beside a prompt lead it, wherever they stand.
    let both = format!("{}|{}|<image>why?", media("x"), media("y"));
    for body in [
        r#"{"image_data":["x",{"url":"y","detail":"low"}],"text":"<image>why?"}"#,
        r#"{"text":"<image>why?","image_data":["x","y"]}"#,
        r#"{"text":"<image>why?","image_data":"x","video_data":"y"}"#,
    ] {
        assert_eq!(text(Api::Generate, 20_000, body), both, "{body}");
    }
    let ids = scan(Api::Generate, 4098, br#"{"input_ids":[1,2,3],"image_data":["x",""]}"#);
    assert_eq!((ids.kind, ids.units), (PrefixKind::TokenIds, 4098));
    assert_eq!(String::from_utf8_lossy(&ids.text), format!("{}\u{fffd}1,2,", media("x")));
}

#[test]
fn what_is_no_media() {
    let chat = |part: &str| {
        chat_text(&format!(r#"[{{"content":[{{"text":"a"}},{part},{{"text":"b"}}]}}]"#))
    };
    for part in [
        r#"{"type":"search_result","source":"https://example.com","title":"no"}"#,
        r#"{"type":"file","file":"no"}"#,
        r#"{"type":"image_url","image_url":{"url":""}}"#,
        r#"{"type":"image_url","image_url":null}"#,
        r#"{"type":"image_url","image_url":{"url":null,"detail":"low"}}"#,
        r#"{"type":"image_url","image_url":{"url":7}}"#,
        r#"{"type":"audio","audio":{"id":"audio_1"}}"#,
        r#"{"type":"image_embeds","image_embeds":{"grid":[1,2]}}"#,
        r#"{"type":"redacted_thinking","data":"no"}"#,
    ] {
        assert_eq!(chat(part), "a|b", "{part}");
    }
}

#[test]
fn a_media_part_takes_a_fixed_share_of_the_length() {
    let body = |data: &str, question: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":
                {{"url":"data:image/png;base64,{data}"}}}},{{"text":"{question}"}}]}}]}}"#
        )
    };
    let key = |length, data: &str, question: &str| {
        scan(Api::ChatCompletions, length, body(data, question).as_bytes()).text
    };
    let picture = "iVBORw0KGgo".repeat(20_000);
    let other = picture.clone() + "A";
    // By default one picture is all of the prefix, so all questions about it meet.
    assert_eq!(key(4096, &picture, "What is this?"), key(4096, &picture, "And this?"));
    assert_ne!(key(4096, &picture, "What is this?"), key(4096, &other, "What is this?"));
    assert_ne!(key(8192, &picture, "What is this?"), key(8192, &picture, "And this?"));
    let prefix = scan(Api::ChatCompletions, 8192, body("A", "four").as_bytes());
    assert_eq!(prefix.units, MEDIA_UNITS + 4);
    // What is left of the length may be less than it takes.
    let prefix = scan(Api::ChatCompletions, 5, body("A", "four").as_bytes());
    assert_eq!((prefix.units, prefix.text.len()), (5, 33));
    // Its memory does not depend on the size of the media.
    assert!(key(65536, &picture, "What is this?").len() < 100);
}
