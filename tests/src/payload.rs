//! Bytes that show where they belong.

/// `len` bytes derived from `seed`: no two offsets look alike, so that a lost, doubled or swapped
/// piece is seen.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut out = vec![0; len];
    rng.fill(&mut out);
    out
}

/// Text of `len` printable characters derived from `seed`.
pub fn text(seed: u64, len: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.alphanumeric()).collect()
}

/// Compares long byte strings and says where they part, rather than printing both.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn assert_same(what: &str, got: &[u8], want: &[u8]) {
    if got == want {
        return;
    }
    let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
    let show = |bytes: &[u8]| {
        let from = at.saturating_sub(16).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..(at + 48).min(bytes.len())]).into_owned()
    };
    panic!(
        "{what}: {} bytes, expected {}; they part at {at}: got …{:?}, expected …{:?}",
        got.len(),
        want.len(),
        show(got),
        show(want)
    );
}
