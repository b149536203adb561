//! The caller's own id, which is combined with the prefix.

use crate::http::Reject;

/// The request header that carries the id.
pub const HEADER: &str = "x-amzn-sagemaker-prefix-aware-id";

/// Checks an id: 1 to 64 printable ASCII characters, the first not a space
/// (`\A\S[\p{Print}]*\z` in the InvokeEndpoint reference).
///
/// # Errors
/// The id is something else; the request is answered with 400.
pub fn validate(value: &[u8]) -> Result<&str, Reject> {
    const BAD: Reject = Reject::bad(
        "tenant_id",
        "X-Amzn-SageMaker-Prefix-Aware-Id must be 1 to 64 printable ASCII characters, the first \
         not a space.",
    );
    let printable = value.iter().all(|b| matches!(b, b' '..=b'~'));
    if !printable || !(1..=64).contains(&value.len()) || value[0] == b' ' {
        return Err(BAD);
    }
    std::str::from_utf8(value).map_err(|_| BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for good in [&b"a"[..], b"tenant 1", b"~!@#", &[b'x'; 64]] {
            assert_eq!(validate(good).map(str::as_bytes), Ok(good));
        }
        for bad in [&b""[..], b" a", b"a\tb", b"\x7f", b"caf\xc3\xa9", &[b'x'; 65]] {
            assert_eq!(validate(bad).map_err(|r| r.status), Err(400), "{bad:?}");
        }
    }
}
