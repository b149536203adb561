//! What is sent, and what must come of it.

use crate::engine::outcome::{HandoverEnd, HandoverOutcome};

pub(super) fn expect(
    outcome: &HandoverOutcome,
    end: HandoverEnd,
    bytes: u64,
) -> Result<(), String> {
    if outcome.end == end && outcome.bytes == bytes {
        return Ok(());
    }
    Err(format!("expected {end:?} after {bytes} bytes, got {outcome:?}"))
}

pub(super) fn compare(got: &[u8], sent: &[u8]) -> Result<(), String> {
    if got == sent {
        return Ok(());
    }
    let at = got.iter().zip(sent).take_while(|(got, sent)| got == sent).count();
    Err(format!("of {} bytes {} came, and they differ from byte {at} on", sent.len(), got.len()))
}

/// Bytes of which no two stretches are alike.
pub(super) fn payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

/// A chunked body, with chunks of `size` bytes.
pub(in crate::engine) fn chunked(payload: &[u8], size: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(payload.len() * 11 / 10);
    for chunk in payload.chunks(size) {
        body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}
