//! Text or token ids, up to a number of units.

use super::{
    PrefixKind,
    lines::{self, Place, SkipLines, Verdict},
    media::{DIGITS, MEDIA, MEDIA_UNITS},
    text::Sink,
};

/// Stands between two pieces of text (strings of the body). No UTF-8 text has this byte, so pieces
/// cannot be cut elsewhere and look the same. It counts as no character.
pub(super) const BOUNDARY: u8 = 0xff;

/// A part of the prompt: its first units.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// The text as [`PrefixKind::Text`](super::PrefixKind::Text) says, or ids in decimal, each with
    /// a comma behind it.
    pub(super) text: Vec<u8>,
    /// Characters or ids in `text`.
    pub(super) units: usize,
    /// Units wanted.
    pub(super) limit: usize,
    /// Nothing more is taken.
    pub(super) full: bool,
    /// Set by the first unit; units of the other kind are left out.
    pub(super) kind: Option<PrefixKind>,
    /// A boundary goes before the next unit.
    boundary: bool,
    /// Lines that are left out.
    pub(super) skip: SkipLines,
    pub(super) place: Place,
    /// The beginning of a line that may be left out.
    held: Vec<u8>,
}

impl Section {
    pub(super) fn reset(&mut self, limit: usize) {
        self.text.clear();
        self.held.clear();
        *self = Self {
            text: std::mem::take(&mut self.text),
            held: std::mem::take(&mut self.held),
            limit,
            ..Self::default()
        };
    }

    /// A string or a list of ids begins.
    pub(super) fn begin_piece(&mut self) {
        self.boundary = self.units > 0;
        self.place = Place::Start;
        self.held.clear();
    }

    /// A string ends, so a character that was not complete is now, and the beginning of a line is a line.
    pub(super) fn end_piece(&mut self) {
        self.release();
        self.full |= self.units >= self.limit;
    }

    /// Whether there is no room for another unit.
    pub(super) fn is_full(&mut self) -> bool {
        self.full |= self.units >= self.limit;
        self.full
    }

    /// Takes a media part, by what stands for it. There is always room for it: it takes many units.
    pub(super) fn media(&mut self, hash: &[u8; 1 + DIGITS]) {
        if self.is_full() {
            return;
        }
        if std::mem::take(&mut self.boundary) {
            self.text.push(BOUNDARY);
        }
        self.text.extend_from_slice(hash);
        self.units = self.limit.min(self.units + MEDIA_UNITS);
        self.end_piece();
    }

    /// Bytes that `text` may still take. Characters have four at most, and a boundary; ids have ten
    /// digits and a comma. Only bytes that are no UTF-8, or no ids, meet this limit.
    pub(super) fn room(&self) -> usize {
        let per_unit = if self.kind == Some(PrefixKind::TokenIds) { 24 } else { 5 };
        (self.limit * per_unit).saturating_sub(self.text.len())
    }

    fn first(&mut self, kind: PrefixKind) {
        self.kind = Some(kind);
        // One allocation instead of a few, with some room for escapes and for characters of several
        // bytes; a buffer in use again has its room already.
        self.text.reserve(self.limit + self.limit / 8);
    }

    /// Writes the boundary, if there is to be one. Returns the room behind it.
    fn open(&mut self) -> usize {
        if self.boundary && self.room() > 0 {
            self.boundary = false;
            self.text.push(BOUNDARY);
        }
        self.room()
    }

    /// Takes bytes one by one, as far as there is room; whatever the cuts, the same.
    fn push(&mut self, bytes: &[u8]) {
        let room = self.open();
        self.full |= bytes.len() > room;
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// A number begins; says whether it is wanted.
    pub(super) fn begin_id(&mut self) -> bool {
        if self.is_full() {
            return false;
        }
        if self.kind.is_none() {
            self.first(PrefixKind::TokenIds);
        }
        if self.kind != Some(PrefixKind::TokenIds) {
            return false;
        }
        self.units += 1;
        true
    }

    /// Bytes of a number.
    pub(super) fn id(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    /// A number ends.
    pub(super) fn end_id(&mut self) {
        self.push(b",");
        self.end_piece();
    }

    /// Takes bytes of a string that hold so many characters, neither more than there is room for.
    pub(super) fn run(&mut self, bytes: &[u8], characters: usize) {
        match self.kind {
            None => self.first(PrefixKind::Text),
            Some(PrefixKind::Text) => {}
            Some(_) => return,
        }
        if self.open() < bytes.len() {
            self.full = true;
            return;
        }
        self.units += characters;
        self.text.extend_from_slice(bytes);
    }

    /// Takes the bytes of one character.
    fn one(&mut self, bytes: &[u8]) {
        self.full |= self.units >= self.limit;
        if !self.full {
            self.run(bytes, 1);
        }
    }

    /// The first `units` units of the text, as a length in bytes.
    pub(super) fn length_of(&self, units: usize) -> usize {
        let ids = self.kind == Some(PrefixKind::TokenIds);
        let mut left = units;
        let mut at = 0;
        while let Some(&byte) = self.text.get(at) {
            let (length, takes) = match byte {
                BOUNDARY => (1, 0),
                MEDIA => (1 + DIGITS, MEDIA_UNITS),
                _ if ids => (1, usize::from(byte == b',')),
                b'\\' => (2, 1),
                _ => (1, usize::from(starts_character(byte))),
            };
            // An id's comma ends it, every other unit's first byte begins it.
            if left == 0 && (takes > 0 && !ids || ids && byte != BOUNDARY) {
                // A boundary before the first unit left out goes with it.
                return at - usize::from(at > 0 && self.text[at - 1] == BOUNDARY);
            }
            left = left.saturating_sub(takes);
            at += length;
        }
        self.text.len()
    }
}

/// Every byte of UTF-8 text that is no continuation begins a character.
#[inline(always)]
fn starts_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

impl Section {
    /// Whether there are lines to be left out, so that text must not be taken past the end of a line.
    pub(super) fn has_lines(&self) -> bool {
        !self.skip.is_empty()
    }

    /// Takes note of the byte that begins a line: most lines are told by it.
    pub(super) fn peek(&mut self, byte: u8) {
        let begins = self.place == Place::Start && self.held.is_empty();
        let byte = byte.to_ascii_lowercase();
        let plain = byte != b'\\' && byte != b'"';
        if begins && plain && self.skip.iter().all(|pattern| pattern.first() != Some(&byte)) {
            self.place = Place::Counts;
        }
    }

    /// Lets go of the beginning of a line, which counts.
    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while !rest.is_empty() {
            let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
            self.text_bytes(&rest[..plain]);
            rest = &rest[plain..];
            if let [_, letter, more @ ..] = rest {
                self.one(&[b'\\', *letter]);
                rest = more;
            } else {
                break;
            }
        }
        self.held = held;
        self.held.clear();
    }

    /// Holds back more of a line's beginning, until it is known whether the line counts.
    fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        match lines::judge(&self.skip, &self.held) {
            Verdict::Open => {}
            Verdict::Counts => {
                self.place = Place::Counts;
                self.release();
            }
            Verdict::Skipped => {
                self.place = Place::Skipped;
                self.held.clear();
            }
        }
    }

    /// Takes one character in its form, which may be a line break.
    fn escaped(&mut self, bytes: &[u8]) {
        if !self.has_lines() {
            return self.one(bytes);
        }
        if bytes == b"\\n" {
            self.release();
            if self.place != Place::Skipped {
                self.one(bytes);
            }
            self.place = Place::Start;
            return;
        }
        match self.place {
            Place::Counts => self.one(bytes),
            Place::Skipped => {}
            Place::Start => self.hold(bytes),
        }
    }
}

impl Section {
    fn text_bytes(&mut self, mut bytes: &[u8]) {
        match self.kind {
            None => self.first(PrefixKind::Text),
            Some(PrefixKind::Text) => {}
            Some(_) => return,
        }
        while !bytes.is_empty() && !self.full {
            let left = self.limit - self.units;
            if left == 0 {
                // The rest of the last character, if it is one.
                let rest = bytes.iter().take_while(|&&b| !starts_character(b)).count();
                self.push(&bytes[..rest]);
                self.full |= rest < bytes.len();
                return;
            }
            let room = self.open();
            self.full |= room == 0;
            // No more bytes than characters wanted, so no more characters either.
            let (now, later) = bytes.split_at(bytes.len().min(left).min(room));
            self.units += now.iter().filter(|&&b| starts_character(b)).count();
            self.text.extend_from_slice(now);
            bytes = later;
        }
    }
}

impl Sink for Section {
    fn bytes(&mut self, mut bytes: &[u8]) {
        while self.has_lines() && self.place == Place::Start && !bytes.is_empty() {
            let (first, rest) = bytes.split_at(1);
            self.hold(first);
            bytes = rest;
        }
        if self.place != Place::Skipped || !self.has_lines() {
            self.text_bytes(bytes);
        }
    }

    fn character(&mut self, character: char) {
        // Each character has one spelling here, however the body spells it.
        let letter = match character {
            '"' => b'"',
            '\\' => b'\\',
            '\n' => b'n',
            '\t' => b't',
            '\r' => b'r',
            '\u{8}' => b'b',
            '\u{c}' => b'f',
            _ => return self.escaped(character.encode_utf8(&mut [0; 4]).as_bytes()),
        };
        self.escaped(&[b'\\', letter]);
    }

    fn escape(&mut self, letter: u8) {
        match letter {
            b'/' => self.escaped(b"/"),
            _ => self.escaped(&[b'\\', letter]),
        }
    }

    fn is_full(&self) -> bool {
        self.full
    }
}
