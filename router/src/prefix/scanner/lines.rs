//! Lines that change with each request, and are left out.

use std::sync::Arc;

/// Beginnings of lines that are left out: lower-case, in the form of [`PrefixKind::Text`].
///
/// [`PrefixKind::Text`]: super::PrefixKind::Text
pub type SkipLines = Arc<[Box<[u8]>]>;

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// At its beginning, which may be that of one to be left out: it is held back.
    #[default]
    Start,
    /// In one that counts.
    Counts,
    /// In one that is left out.
    Skipped,
}

/// What the beginning of a line turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not known yet.
    Open,
    Counts,
    Skipped,
}

/// Judges the beginning of a line.
pub(super) fn judge(patterns: &SkipLines, held: &[u8]) -> Verdict {
    let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    let mut verdict = Verdict::Counts;
    for pattern in patterns.iter() {
        if held.len() >= pattern.len() {
            if same(&held[..pattern.len()], pattern) {
                return Verdict::Skipped;
            }
        } else if same(held, &pattern[..held.len()]) {
            verdict = Verdict::Open;
        }
    }
    verdict
}
