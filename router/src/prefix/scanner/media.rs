//! Pictures, sound and other media of a prompt: each counts by its hash.

use xxhash_rust::xxh3::Xxh3;

use super::text::Sink;

/// Units that a media part takes of the prefix length: the characters of about a thousand tokens, which
/// is what models make of a picture.
pub const MEDIA_UNITS: usize = 4096;

/// Stands before a hash in the text of a prefix. No UTF-8 text has this byte.
pub const MEDIA: u8 = 0xfe;

/// Digits of a hash.
pub(super) const DIGITS: usize = 32;

/// The hash of a string that is media, whatever its spelling.
#[derive(Default)]
pub(super) struct MediaHash {
    hash: Box<Xxh3>,
    empty: bool,
}

impl std::fmt::Debug for MediaHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaHash").field("empty", &self.empty).finish_non_exhaustive()
    }
}

impl MediaHash {
    /// A string begins.
    pub(super) fn reset(&mut self) {
        self.hash.reset();
        self.empty = true;
    }

    /// What stands for the string in a prefix; `None` when nothing was in it.
    pub(super) fn finish(&self) -> Option<[u8; 1 + DIGITS]> {
        if self.empty {
            return None;
        }
        let mut out = [MEDIA; 1 + DIGITS];
        let digest = self.hash.digest128();
        for (at, digit) in out[1..].iter_mut().enumerate() {
            let nibble = (digest >> (4 * (DIGITS - 1 - at)) & 0xf) as u8;
            *digit = b"0123456789abcdef"[usize::from(nibble)];
        }
        Some(out)
    }
}

impl Sink for MediaHash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.empty &= bytes.is_empty();
        self.hash.update(bytes);
    }

    fn character(&mut self, character: char) {
        self.bytes(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn is_full(&self) -> bool {
        false
    }
}
