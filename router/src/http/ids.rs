//! What one request is called, so that its traces can be put together: `x-request-id`, and `traceparent`
//! of W3C's Trace Context.
//!
//! Both are the client's where they are valid, and made here otherwise. They go to the instance, into
//! the access line and, the first one, back to the client. What is kept has a fixed size, in place.

use std::fmt;

/// Longest request id that is taken from a client, bytes.
pub const MAX_REQUEST_ID: usize = 128;
/// The field with the request id.
pub const REQUEST_ID: &str = "x-request-id";
/// The field with the trace (W3C Trace Context section 3.2).
pub const TRACE_PARENT: &str = "traceparent";
/// The field with what vendors add to the trace (W3C Trace Context section 3.3).
pub const TRACE_STATE: &str = "tracestate";

/// A request's id: 1 to [`MAX_REQUEST_ID`] bytes that mean nothing to headers, JSON and shells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    bytes: [u8; MAX_REQUEST_ID],
    len: u8,
}

impl RequestId {
    /// Takes a client's id: letters, digits and `-._~:/+=@|`. `None` if it is something else.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let ok = |b: &u8| b.is_ascii_alphanumeric() || b"-._~:/+=@|".contains(b);
        if !(1..=MAX_REQUEST_ID).contains(&value.len()) || !value.iter().all(ok) {
            return None;
        }
        let mut bytes = [0; MAX_REQUEST_ID];
        bytes[..value.len()].copy_from_slice(value);
        Some(Self { bytes, len: value.len() as u8 })
    }

    /// A new id: 32 hexadecimal digits.
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        let mut bytes = [0; MAX_REQUEST_ID];
        hex(&mut bytes[..32], rng);
        Self { bytes, len: 32 }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Its bytes, all visible ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", self.as_str())
    }
}

/// Bytes of a `traceparent` of version 00.
const TRACE_PARENT_LEN: usize = 55;

/// Where a request stands in a trace, as version 00 writes it: `00-{trace id}-{parent id}-{flags}`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; TRACE_PARENT_LEN]);

impl TraceParent {
    /// Reads a client's field (W3C Trace Context sections 3.2 and 4.3): lower-case hexadecimal digits, no id
    /// all zeros. One of a later version becomes one of version 00 with the one flag that is known.
    /// `None` if it is something else.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut text: [u8; TRACE_PARENT_LEN] = value.get(..TRACE_PARENT_LEN)?.try_into().ok()?;
        let dashes = [2, 35, 52];
        let fits = text.iter().enumerate().all(|(at, byte)| match dashes.contains(&at) {
            true => *byte == b'-',
            false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        let zeros = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        if !fits || zeros(&text[3..35]) || zeros(&text[36..52]) {
            return None;
        }
        match (&text[..2], &value[TRACE_PARENT_LEN..]) {
            (b"ff", _) => return None,
            (b"00", rest) => return rest.is_empty().then_some(Self(text)),
            (_, [] | [b'-', ..]) => {}
            _ => return None,
        }
        let sampled = matches!(text[54], b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f');
        text[..2].copy_from_slice(b"00");
        text[53..].copy_from_slice(if sampled { b"01" } else { b"00" });
        Some(Self(text))
    }

    /// A new trace, with the flag that asks the instance to record it or without.
    pub fn random(rng: &mut fastrand::Rng, sampled: bool) -> Self {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        loop {
            hex(&mut text[3..35], rng);
            hex(&mut text[36..52], rng);
            text[54] = if sampled { b'1' } else { b'0' };
            // All zeros would be invalid; that has yet to be seen to happen.
            if let Some(valid) = Self::parse(&text) {
                return valid;
            }
        }
    }

    /// The id of the whole trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        std::str::from_utf8(&self.0[3..35]).unwrap_or_default()
    }

    /// The field's value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceParent({})", String::from_utf8_lossy(&self.0))
    }
}

/// What one request is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The request's own id.
    pub request: RequestId,
    /// The trace that it is part of; `None` where none came and none is to be made.
    pub trace: Option<TraceParent>,
    /// Whether the trace is the client's, and so is what vendors added to it.
    pub continued: bool,
}

/// Fills `out` with random hexadecimal digits.
fn hex(out: &mut [u8], rng: &mut fastrand::Rng) {
    for pair in out.chunks_mut(16) {
        let number = rng.u64(..);
        for (at, digit) in pair.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (4 * at)) as usize & 15];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn request_ids() {
        for good in ["a", "req_1-2.3~4", "b64+/=", "Root=1-67891233@x|y:z", &"x".repeat(128)] {
            assert_eq!(RequestId::parse(good.as_bytes()).expect(good).as_str(), good);
        }
        for bad in ["", "a b", "a,b", "a\"b", "a;b", "a\\b", "<a>", "a\tb", "caf\u{e9}"] {
            assert_eq!(RequestId::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(RequestId::parse(&[b'x'; 129]), None);
    }

    #[test]
    fn traces_of_version_00() {
        let trace = TraceParent::parse(TRACE.as_bytes()).expect("valid");
        assert_eq!(trace.as_bytes(), TRACE.as_bytes());
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let zeros = "0".repeat(32);
        for bad in [
            "",
            &TRACE[..54],
            &format!("{TRACE}-"),
            &format!("{TRACE}0"),
            &TRACE.to_uppercase(),
            &TRACE.replace('-', "_"),
            &TRACE.replacen("00", "ff", 1),
            &TRACE.replacen("00", "0g", 1),
            &TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            &TRACE.replace("00f067aa0ba902b7", &zeros[..16]),
            &format!(" {TRACE}"),
        ] {
            assert_eq!(TraceParent::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn traces_of_later_versions_become_version_00() {
        for (given, kept) in [
            (TRACE.replacen("00", "01", 1), Some(TRACE.to_owned())),
            (format!("{}-what-will-be", TRACE.replacen("00", "cc", 1)), Some(TRACE.to_owned())),
            (TRACE.replacen("00", "01", 1).replace("-01", "-fe"), None),
            (format!("{}x", TRACE.replacen("00", "01", 1)), None),
        ] {
            let parsed = TraceParent::parse(given.as_bytes());
            let text = parsed.map(|trace| String::from_utf8_lossy(trace.as_bytes()).into_owned());
            match kept {
                Some(kept) => assert_eq!(text, Some(kept), "{given}"),
                None if given.ends_with('x') => assert_eq!(text, None, "{given}"),
                None => assert!(text.expect("valid").ends_with("-00"), "{given}"),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_made_is_valid_and_new(seed: u64, sampled: bool) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (one, two) = (RequestId::random(&mut rng), RequestId::random(&mut rng));
            prop_assert_eq!(RequestId::parse(one.as_bytes()), Some(one));
            prop_assert_ne!(one, two);
            let trace = TraceParent::random(&mut rng, sampled);
            prop_assert_eq!(TraceParent::parse(trace.as_bytes()), Some(trace));
            prop_assert_eq!(trace.as_bytes().ends_with(b"-01"), sampled);
            prop_assert_eq!(trace.as_bytes().ends_with(b"-00"), !sampled);
        }

        #[test]
        fn what_is_taken_is_safe_anywhere(value: Vec<u8>) {
            if let Some(id) = RequestId::parse(&value) {
                prop_assert_eq!(id.as_bytes(), &value[..]);
                prop_assert!(id.as_str().bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b','));
            }
            if let Some(trace) = TraceParent::parse(&value) {
                prop_assert_eq!(TraceParent::parse(trace.as_bytes()), Some(trace));
            }
        }
    }
}
