//! How long an instance that says that it is overloaded is spared.

use std::time::{Duration, SystemTime};

/// What a `Retry-After` field asks for: seconds, or the time until a date (RFC 9110 section
/// 10.2.3). `None` when it is neither.
pub fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than the type holds is for ever, and is bounded like all else.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let read = |text: &str| retry_after(text.as_bytes(), now);
        assert_eq!(read("3"), Some(Duration::from_secs(3)));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(read("Sat, 05 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "past");
        for text in ["", "-1", "1.5", "soon", "3 s", "\u{e9}"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(retry_after(b"\xff", now), None);
    }
}
