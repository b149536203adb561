//! Whether all servers read a segment of a path in the same way.

/// Whether a segment can stand for a name: nobody takes it for a way up or for several segments,
/// however often it is decoded. With `slashes`, encoded slashes may separate several such segments.
///
/// Servers differ in what they decode and when: `%2f` and `%5c` are separators to some, `..` and `%2e%2e` lead
/// up, behind `;` come parameters that some cut off (`/..;/`), `%25` becomes `%` to be decoded once
/// more, overlong UTF-8 hides any of them.
pub(super) fn is_plain(segment: &str, slashes: bool) -> bool {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-_~".contains(&b);
    if !segment.is_empty() && segment.bytes().all(unreserved) {
        return true;
    }
    let Some(decoded) = decode(segment.as_bytes()) else { return false };
    let Ok(text) = std::str::from_utf8(&decoded) else { return false };
    let names = |c: char| !c.is_control() && !"\\%;?#".contains(c);
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(names);
    let dots = decoded.iter().filter(|b| **b == b'.').count();
    let encoded_dots = dots != segment.bytes().filter(|b| *b == b'.').count();
    !encoded_dots
        && if slashes { text.split('/').all(is_name) } else { !text.contains('/') && is_name(text) }
}

/// Decodes percent-encoding. `None` where it is none.
fn decode(segment: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.iter();
    while let Some(byte) = bytes.next() {
        let hex = |digit: Option<&u8>| (*digit? as char).to_digit(16);
        match byte {
            b'%' => out.push((hex(bytes.next())? << 4 | hex(bytes.next())?) as u8),
            byte => out.push(*byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in [
            "resp_1",
            "gpt-4.1",
            "Qwen3:30b",
            "caf%C3%A9",
            "a+b",
            "a@b",
            "x%20y",
            "...",
            "a..b",
            "{id}",
        ] {
            assert!(is_plain(good, false) && is_plain(good, true), "{good}");
        }
        for good in ["org%2Fllama-3.1", "a%2fb%2Fc"] {
            assert!(is_plain(good, true) && !is_plain(good, false), "{good}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_no_name() {
        for bad in [
            "",
            ".",
            "..",
            "%2e",
            "%2E%2e",
            ".%2e",
            "a%2eb",
            "..;",
            "..;x",
            "a;b",
            "a%3bb",
            "a\\b",
            "..%5c",
            "%5C",
            "%00",
            "a%0d%0ab",
            "%7f",
            "%",
            "%2",
            "%zz",
            "%252e%252e",
            "a%25b",
            "a%3fb",
            "a%23b",
            "%c0%ae%c0%ae",
            "%c0%af",
            "%ff",
            "..%2fmetrics",
            "a%2f..%2fb",
            "%2fa",
            "a%2f",
            "a%2f%2fb",
            "%2f",
        ] {
            assert!(!is_plain(bad, false) && !is_plain(bad, true), "{bad}");
        }
    }
}
