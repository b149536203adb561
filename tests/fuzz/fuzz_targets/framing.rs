//! The framing machine: as user space advances it, cut anywhere, and as a kernel program steps it.
//!
//! The first byte picks a framing and a cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router_ebpf::framing::Framing;

fuzz_target!(|data: &[u8]| {
    let [first, body @ ..] = data else { return };
    let start = match first % 4 {
        0 => Framing::length(u64::from(*first) * 7),
        1 => Framing::until_close(),
        _ => Framing::chunked(),
    };

    let mut whole = start;
    let result = whole.advance(body);
    if let Ok(used) = result {
        assert!(used == body.len() || whole.is_done());
    }

    let mut cut = start;
    let mut used = 0;
    let size = 1 + usize::from(*first) / 4;
    let in_pieces = body.chunks(size).try_for_each(|piece| {
        used += cut.advance(piece)?;
        Ok(())
    });
    assert_eq!(in_pieces.map(|()| used), result);
    assert_eq!(cut, whole);

    // The kernel passes over payload in one go, and steps through the rest.
    let mut kernel = start;
    let mut at = 0;
    while at < body.len() && !kernel.is_done() && kernel.error().is_none() {
        if kernel.in_payload() {
            at += kernel.skip((body.len() - at) as u64) as usize;
        } else {
            kernel.step(body[at]);
            at += 1;
        }
    }
    assert_eq!(kernel, whole);
    assert_eq!(kernel.error(), result.err());
});
