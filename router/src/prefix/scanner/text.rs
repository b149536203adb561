//! JSON strings as the text they stand for, in pieces of any size.

use fearless_simd::{Simd, dispatch};

use super::vector::{self, BLOCK, Block, low};

/// What takes the text of a string.
pub(super) trait Sink {
    /// Takes bytes that stand for themselves; they may begin or end within a character.
    fn bytes(&mut self, bytes: &[u8]);
    /// Takes one character that was written as `\uXXXX`, or a pair of those.
    fn character(&mut self, character: char);
    /// Takes one character that was written as a backslash and this byte; not always a letter that
    /// JSON knows.
    fn escape(&mut self, letter: u8) {
        self.character(escape(letter));
    }
    /// Whether no more is wanted.
    fn is_full(&self) -> bool;
}

/// Why decoding stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The input is used up.
    Input,
    /// The closing quote was consumed.
    Quote,
    /// The sink is full; the string goes on.
    Full,
}

/// Where a string's decoding stands between two pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decoder {
    state: State,
    /// A high surrogate that waits for its other half; 0 when there is none.
    high: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    /// Behind a backslash.
    Escape,
    /// Within `\uXXXX`: digits seen, their value.
    Hex(u8, u16),
}

impl Decoder {
    /// A decoder that stands in a string, behind a backslash or not.
    pub(super) fn escaped(escaped: bool) -> Self {
        Self { state: if escaped { State::Escape } else { State::Plain }, high: 0 }
    }

    /// Whether it stands between two characters.
    pub(super) fn is_plain(&self) -> bool {
        self.state == State::Plain && self.high == 0
    }

    /// Whether the next byte is made literal by a backslash.
    pub(super) fn is_escaped(&self) -> bool {
        self.state == State::Escape
    }

    /// Decodes up to the closing quote, or until the sink is full. Returns the bytes consumed.
    ///
    /// Every escape is one character. Half a surrogate pair is U+FFFD.
    pub(super) fn decode(&mut self, input: &[u8], sink: &mut impl Sink) -> (usize, Stop) {
        let mut at = 0;
        while at < input.len() {
            if sink.is_full() {
                return (at, Stop::Full);
            }
            match self.state {
                State::Plain => {
                    let rest = &input[at..];
                    let run = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    if run > 0 {
                        self.lone(sink);
                        sink.bytes(&rest[..run]);
                        at += run;
                        continue;
                    }
                    at += 1;
                    if rest[0] == b'"' {
                        self.lone(sink);
                        return (at, Stop::Quote);
                    }
                    self.state = State::Escape;
                }
                State::Escape => {
                    let byte = input[at];
                    at += 1;
                    self.state = State::Plain;
                    if byte == b'u' {
                        self.state = State::Hex(0, 0);
                    } else {
                        self.lone(sink);
                        sink.escape(byte);
                    }
                }
                State::Hex(digits, value) => match (input[at] as char).to_digit(16) {
                    Some(digit) => {
                        at += 1;
                        let value = value << 4 | digit as u16;
                        if digits < 3 {
                            self.state = State::Hex(digits + 1, value);
                        } else {
                            self.state = State::Plain;
                            self.unit(value, sink);
                        }
                    }
                    None => {
                        // The byte is looked at again: it may be the closing quote.
                        self.lone(sink);
                        sink.character(char::REPLACEMENT_CHARACTER);
                        self.state = State::Plain;
                    }
                },
            }
        }
        (at, if sink.is_full() { Stop::Full } else { Stop::Input })
    }

    /// Takes a UTF-16 code unit.
    fn unit(&mut self, unit: u16, sink: &mut impl Sink) {
        let high = std::mem::take(&mut self.high);
        match unit {
            0xdc00..=0xdfff if high != 0 => {
                let value =
                    0x1_0000 + ((u32::from(high) - 0xd800) << 10 | (u32::from(unit) - 0xdc00));
                sink.character(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            0xd800..=0xdbff => {
                self.high = high;
                self.lone(sink);
                self.high = unit;
            }
            _ => {
                self.high = high;
                self.lone(sink);
                let character = char::from_u32(u32::from(unit));
                sink.character(character.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// Whatever comes now is not the other half of a pair.
    fn lone(&mut self, sink: &mut impl Sink) {
        if std::mem::take(&mut self.high) != 0 {
            sink.character(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// The beginning of a string's inside, as far as it is quick to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes.
    pub(super) bytes: usize,
    /// Characters in them.
    pub(super) characters: usize,
    /// The closing quote is behind them.
    pub(super) quote: bool,
}

/// Reads on while characters are written as themselves or as an escape of two bytes. Stops before the
/// closing quote, before `\u` and `\/` (there are other ways to write those characters), before an
/// escape that is cut, where more characters than `room` might be in the next block, and, with `lines`,
/// before `\n`.
pub(super) fn run(input: &[u8], room: usize, lines: bool) -> Run {
    dispatch!(vector::level(), simd => blocks(simd, input, room, lines))
}

#[inline(always)]
fn blocks<S: Simd>(simd: S, input: &[u8], room: usize, lines: bool) -> Run {
    let mut characters = 0;
    let mut at = 0;
    // A backslash at the end of a block, counted as a character, makes the next byte literal.
    let mut literal = false;
    // All positions are those of whole blocks until the last one: the next block can be loaded
    // before this one is judged.
    let (end, quote) = loop {
        if at >= input.len() || characters + BLOCK > room {
            break (at, false);
        }
        let block = Block::load(simd, &input[at..]);
        let backslashes = block.is(b'\\');
        let (escaped, carry) = vector::literals(backslashes, literal);
        let quotes = block.is(b'"') & !escaped;
        let breaks = if lines { block.is(b'n') } else { 0 };
        let unusual = escaped & (block.is(b'u') | block.is(b'/') | breaks);
        let seconds = escaped | block.continuations();
        let stop = quotes | unusual;
        let length = stop.trailing_zeros().min(block.len);
        characters += (length - (seconds & low(length)).count_ones()) as usize;
        if stop != 0 || block.len < 64 {
            let quote = quotes >> (length % 64) & 1 == 1 && length < block.len;
            literal = if length == 0 {
                literal
            } else {
                (backslashes & !escaped) >> (length - 1) & 1 == 1
            };
            break (at + length as usize, quote);
        }
        literal = carry;
        at += BLOCK;
    };
    // A backslash stays with what it escapes.
    let cut = usize::from(literal);
    Run { bytes: end - cut, characters: characters - cut, quote }
}

fn escape(byte: u8) -> char {
    match byte {
        b'"' | b'\\' | b'/' => byte as char,
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// A sink that keeps a name of up to `N` bytes, and knows when it was longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Name<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The name, unless it was longer than `N` bytes.
    pub(super) fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}

impl<const N: usize> Sink for Name<N> {
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.len = N + 1;
        }
    }

    fn character(&mut self, character: char) {
        self.bytes(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn is_full(&self) -> bool {
        self.len > N
    }
}

/// A sink that keeps the first `limit` bytes.
#[derive(Debug)]
pub(super) struct Capture<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) limit: usize,
}

impl Sink for Capture<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let room = self.limit - self.out.len();
        self.out.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn character(&mut self, character: char) {
        self.bytes(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn is_full(&self) -> bool {
        self.out.len() >= self.limit
    }
}
