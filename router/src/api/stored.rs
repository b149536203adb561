//! The ids of stored responses: in paths, and in the answers that give them.
//!
//! The Responses API keeps what it answers, if it is told to. Later requests name it by an id that the
//! instance has made up.

/// The segment of a path behind which the id stands.
const RESPONSES: &str = "responses";
/// Longest id.
const MAX_ID: usize = 256;

/// The id that a path names, such as that of `/v1/responses/resp_1/cancel`.
pub fn id_of(path: &str) -> Option<&str> {
    let rest = &path[collection(path)?.len()..];
    rest.split('/').find(|segment| !segment.is_empty())
}

/// A path up to the segment that all paths of stored responses have in common.
pub fn collection(path: &str) -> Option<&str> {
    let mut end = 0;
    for segment in path.split('/') {
        end += segment.len();
        if segment == RESPONSES {
            return Some(&path[..end]);
        }
        end += 1;
    }
    None
}

/// Whether an id can stand in a path as it is. Those that servers make do.
pub fn is_plain(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// The id of the response that begins with these bytes of its body, if it is among them: JSON, or events
/// whose first one has it.
pub fn id_in(body: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"id\"";
    let mut rest = body;
    while let Some(at) = rest.windows(KEY.len()).position(|window| window == KEY) {
        rest = rest[at + KEY.len()..].trim_ascii_start();
        let Some(value) = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start) else { continue };
        let Some(value) = value.strip_prefix(b"\"") else { continue };
        let id = value.split(|&b| b == b'"').next().unwrap_or_default();
        if id.starts_with(b"resp") && id.len() < value.len() {
            return std::str::from_utf8(id).is_ok_and(is_plain).then_some(id);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_ids() {
        for (path, id) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/v1/responses/resp_1/", Some("resp_1")),
            ("/v1/responses/resp_1/cancel", Some("resp_1")),
            ("/openai/v1//responses//resp_1/input_items", Some("resp_1")),
            ("/responses/resp_1", Some("resp_1")),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/my_responses/resp_1", None),
            ("", None),
        ] {
            assert_eq!(id_of(path), id, "{path}");
        }
        assert_eq!(collection("/a/v1/responses/resp_1/cancel"), Some("/a/v1/responses"));
        assert!(is_plain("resp_0-aZ") && !is_plain("") && !is_plain("a b") && !is_plain("a\r\nb"));
        assert!(!is_plain("a/b") && !is_plain("%2e") && !is_plain(&"a".repeat(257)));
    }

    #[test]
    fn answers_begin_with_their_id() {
        for (body, id) in [
            (&br#"{"id":"resp_1","object":"response""#[..], Some("resp_1")),
            (b"{\n  \"object\": \"response\",\n  \"id\" : \"resp_1\"}", Some("resp_1")),
            (
                b"7b\r\nevent: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"created_at",
                Some("resp_1"),
            ),
            (br#"{"output":[{"id":"msg_1"}],"id":"resp_1"}"#, Some("resp_1")),
            (br#"{"id":"resp_1"#, None),
            (br#"{"id":"msg_1"}"#, None),
            (br#"{"id":7,"text":"\"id\":\"resp_1\""}"#, None),
            (br#"{"id":"resp_\u0031"}"#, None),
            (b"", None),
        ] {
            let found = id_in(body).map(|id| std::str::from_utf8(id).unwrap());
            assert_eq!(found, id, "{}", String::from_utf8_lossy(body));
        }
    }
}
