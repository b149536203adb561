//! The framing of event streams (`application/vnd.amazon.eventstream`).
//!
//! A message is a prelude (its length, the length of its headers, their CRC-32), headers, a payload, and
//! the CRC-32 of all before it; numbers are big-endian. What is here writes the messages that SageMaker's
//! runtime API sends: parts of a payload as they are, and exceptions at their end.
//! <https://smithy.io/2.0/aws/amazon-eventstream.html>

pub mod decode;

use crc32fast::Hasher;

/// Media type of an event stream.
pub const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

/// Longest payload of one message, in bytes: what the format allows.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// Length, headers' length, CRC.
const PRELUDE: usize = 12;
const CRC: usize = 4;

/// The headers of a part. Each is the length of its name, the name, 7 for a string, the value's length in
/// two bytes, the value.
const PART_HEADERS: &[u8; 89] = b"\x0b:event-type\x07\x00\x0bPayloadPart\
    \x0d:content-type\x07\x00\x18application/octet-stream\
    \x0d:message-type\x07\x00\x05event";

/// What stands before a part's payload.
pub type PartHead = [u8; PRELUDE + PART_HEADERS.len()];

/// Bytes of a part's message besides its payload.
pub const PART_OVERHEAD: usize = size_of::<PartHead>() + CRC;

/// What stands before and behind a payload that makes it a `PayloadPart`.
///
/// # Panics
/// When the payload is longer than [`MAX_PAYLOAD`].
pub fn part(payload: &[u8]) -> (PartHead, [u8; CRC]) {
    let mut head = [0; size_of::<PartHead>()];
    prelude(&mut head, PART_HEADERS.len(), payload.len());
    head[PRELUDE..].copy_from_slice(PART_HEADERS);
    let mut hash = Hasher::new();
    hash.update(&head);
    hash.update(payload);
    (head, hash.finalize().to_be_bytes())
}

/// The message of an exception of this type; `payload` is the JSON of its members.
///
/// # Panics
/// When the payload is longer than [`MAX_PAYLOAD`], or the type's name than 255 bytes.
pub fn exception(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut headers = Vec::with_capacity(128);
    for (key, value) in [
        (":exception-type", name),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ] {
        let length = u8::try_from(value.len()).expect("a name is short");
        headers.push(key.len() as u8);
        headers.extend_from_slice(key.as_bytes());
        headers.extend_from_slice(&[7, 0, length]);
        headers.extend_from_slice(value.as_bytes());
    }
    let mut out = vec![0; PRELUDE];
    prelude(&mut out, headers.len(), payload.len());
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload);
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

fn prelude(out: &mut [u8], headers: usize, payload: usize) {
    assert!(payload <= MAX_PAYLOAD, "a message has at most 16 MiB of payload");
    let total = (PRELUDE + headers + payload + CRC) as u32;
    out[..4].copy_from_slice(&total.to_be_bytes());
    out[4..8].copy_from_slice(&(headers as u32).to_be_bytes());
    let crc = crc32fast::hash(&out[..8]);
    out[8..PRELUDE].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        decode::{Message, messages},
        *,
    };

    fn of_part(payload: &[u8]) -> Vec<u8> {
        let (head, crc) = part(payload);
        [&head, payload, &crc].concat()
    }

    /// Made by another implementation.
    #[test]
    fn the_bytes_of_a_part() {
        let hex: String = of_part(b"hi").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, EXPECTED);
    }

    const EXPECTED: &str = "0000006b00000059997770650b3a6576656e742d7479706507000b5061796c6f6164506172740d3a636f6e74656e742d747970650700186170706c69636174696f6e2f6f637465742d73747265616d0d3a6d6573736167652d747970650700056576656e746869f0e10a16";

    #[test]
    fn an_exception_has_its_type_and_members() {
        let bytes = exception("ModelStreamError", br#"{"Message":"m","ErrorCode":"StreamBroken"}"#);
        let [message] = &messages(&bytes).expect("one")[..] else { panic!("one message") };
        assert_eq!(message.header(":message-type"), Some("exception"));
        assert_eq!(message.header(":exception-type"), Some("ModelStreamError"));
        assert_eq!(message.header(":content-type"), Some("application/json"));
        assert_eq!(message.payload, br#"{"Message":"m","ErrorCode":"StreamBroken"}"#);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(payloads: Vec<Vec<u8>>) {
            let bytes: Vec<u8> = payloads.iter().flat_map(|payload| of_part(payload)).collect();
            let read = messages(&bytes).expect("well-formed");
            prop_assert!(read.iter().all(|m| m.header(":event-type") == Some("PayloadPart")));
            let read: Vec<_> = read.into_iter().map(|Message { payload, .. }| payload).collect();
            prop_assert_eq!(read, payloads);
        }

        #[test]
        fn no_flipped_bit_goes_unseen(payload: Vec<u8>, at: prop::sample::Index, bit in 0u32..8) {
            let mut bytes = of_part(&payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(messages(&bytes).is_err());
        }
    }
}
