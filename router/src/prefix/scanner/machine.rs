//! The way through the JSON of a body: what each byte means for the prefix.

use super::{
    MAX_NAME, PrefixEnd, Scanner,
    lines::Place,
    media::MediaHash,
    role::{self, Role, seen},
    section::Section,
    skim::{self, Nest},
    text::{self, Capture, Decoder, Sink, Stop},
};

/// What some programs write before UTF-8 text (RFC 8259 section 8.1).
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Levels of nesting that are looked at, the top-level object included.
pub(super) const MAX_LEVELS: usize = 8;
/// The frame of a message, in the top-level object and in a list.
const MESSAGE: usize = 2;
/// Open frames within a message.
const IN_MESSAGE: usize = MESSAGE + 1;
/// The longest key of interest.
pub(super) const MAX_KEY: usize = 20;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The body.
    Start,
    /// A key, or the end of an object.
    Members,
    /// An element, or the end of an array.
    Elements,
    /// More of a key.
    Key,
    /// The colon behind a key.
    Colon,
    /// A value.
    Value,
    /// More of a string that counts.
    String,
    /// More of a string that is media.
    Media,
    /// More of a string that does not count.
    SkipString,
    /// More of a nested value that does not count.
    Nest,
    /// More of a number that is a token id.
    Id,
    /// More of a number or literal that does not count.
    Scalar,
    /// Bytes of a body that is no JSON object.
    Raw,
    /// Nothing that matters.
    Done,
}

/// An object or array that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) array: bool,
    pub(super) role: Role,
    /// The keys of interest that have been seen, as bits.
    pub(super) seen: u32,
}

impl Scanner {
    /// Consumes some of `input`, which is not empty. Consuming nothing changes the state.
    pub(super) fn step(&mut self, input: &[u8]) -> usize {
        match self.state {
            State::Key => self.key(input),
            State::String => self.string(input),
            State::Media => {
                let media = self.media.get_or_insert_default();
                let (used, stop) = self.decoder.decode(input, media);
                if stop == Stop::Quote {
                    self.end_media();
                    self.value_ended();
                }
                used
            }
            State::SkipString => match skim::string(input, &mut self.escaped) {
                Some(end) => {
                    self.value_ended();
                    end
                }
                None => input.len(),
            },
            State::Nest => match self.nest.skip(input) {
                Some(end) => {
                    self.value_ended();
                    end
                }
                None => input.len(),
            },
            State::Id | State::Scalar => self.scalar(input),
            State::Raw | State::Done => input.len(),
            State::Start | State::Members | State::Elements | State::Colon | State::Value => {
                if self.state == State::Elements
                    && let Some(used) = self.usual_message(input)
                {
                    return used;
                }
                let blank = input.iter().take_while(|b| is_blank(**b)).count();
                match &input[blank..] {
                    [] => blank,
                    [b'"', rest @ ..] if self.state == State::Members => {
                        blank + 1 + self.begin_key(rest)
                    }
                    [byte, ..] => blank + self.token(*byte),
                }
            }
        }
    }

    /// Takes the beginning of a message as nearly all are written, up to its text: with what lies
    /// between two messages, it would cost more than the text in steps of a few bytes.
    fn usual_message(&mut self, input: &[u8]) -> Option<usize> {
        const MAX_ROLE: usize = 16;
        let rest = input.strip_prefix(b",").unwrap_or(input).strip_prefix(b"{\"role\":\"")?;
        let end = rest.iter().take(MAX_ROLE).position(|b| matches!(b, b'"' | b'\\'))?;
        let (author, rest) = rest.split_at(end);
        let rest = rest.strip_prefix(b"\",\"content\":\"")?;
        self.role = self.frames[self.depth - 1].role;
        if self.depth >= MAX_LEVELS || self.role.is_media() || self.section().full {
            return None;
        }
        // The same as the long way: an object, who says it, and a string that counts.
        let user = if author == b"user" { seen::IS_USER } else { 0 };
        let seen = seen::CONTENT | seen::AUTHOR | user;
        self.open(Frame { array: false, role: self.role, seen });
        self.decoder = Decoder::default();
        self.state = State::String;
        self.begin_piece();
        Some(input.len() - rest.len())
    }

    /// Takes a byte that is no white space, between values. Returns whether it was consumed.
    fn token(&mut self, byte: u8) -> usize {
        match (self.state, byte) {
            (State::Start, b'{') if matches!(self.mark, 0 | 3) => {
                self.open(Frame { array: false, role: Role::Skip, seen: self.known });
            }
            // White space around its bytes does no harm.
            (State::Start, _) if BYTE_ORDER_MARK.get(self.mark) == Some(&byte) => self.mark += 1,
            (State::Members | State::Elements, b',') => {}
            (State::Members, b'}') | (State::Elements, b']') => self.close(),
            (State::Elements, _) => {
                self.role = self.frames[self.depth - 1].role;
                self.bit = 0;
                self.state = State::Value;
                return 0;
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::Value, _) => return self.value(byte),
            _ => self.malformed(),
        }
        1
    }

    /// Begins a value with its first byte.
    fn value(&mut self, byte: u8) -> usize {
        // `null` is as if the key were absent.
        if byte != b'n' {
            let frame = &mut self.frames[self.depth - 1];
            if frame.seen & self.bit != 0 || byte == b'"' && self.bit & seen::OBJECTS_ONLY != 0 {
                self.role = Role::Skip;
            }
            frame.seen |= self.bit;
        }
        match byte {
            b'"' => {
                self.decoder = Decoder::default();
                self.escaped = false;
                self.state = State::String;
                match self.role {
                    Role::Skip => self.state = State::SkipString,
                    Role::Model => self.has_model = true,
                    Role::CacheKey => self.has_cache_key = true,
                    Role::Previous => self.has_previous = true,
                    Role::Type | Role::Author => self.key.clear(),
                    Role::Lead | Role::Main => self.begin_piece(),
                    Role::LeadMedia | Role::MainMedia => self.begin_media(),
                }
                1
            }
            b'{' | b'[' => {
                let array = byte == b'[';
                if self.role.counts() && self.depth < MAX_LEVELS && !self.section().full {
                    if array {
                        self.begin_piece();
                    }
                    self.open(Frame { array, role: self.role, seen: 0 });
                } else {
                    self.nest = if array { Nest::array(1) } else { Nest::object(1) };
                    self.state = State::Nest;
                }
                1
            }
            b'}' | b']' | b',' | b':' => {
                self.malformed();
                1
            }
            _ => {
                let number = byte == b'-' || byte.is_ascii_digit();
                let counts = number
                    && self.role == Role::Main
                    && self.frames[self.depth - 1].array
                    && self.keys.ids
                    && self.main.begin_id();
                self.state = if counts { State::Id } else { State::Scalar };
                0
            }
        }
    }

    fn begin_piece(&mut self) {
        let lead = self.frames[0].seen & (seen::LEAD | seen::ANY_MEDIA) != 0;
        if !self.role.leads() && self.main.units == 0 && lead {
            // What comes first takes its share first.
            self.main.limit = self.prefix_length.saturating_sub(self.lead.units);
            self.main.full = self.main.limit == 0;
        }
        self.section().begin_piece();
    }

    /// Begins a string that is media.
    fn begin_media(&mut self) {
        self.begin_piece();
        self.media.get_or_insert_default().reset();
        self.state = if self.section().is_full() { State::SkipString } else { State::Media };
    }

    /// Ends a string that is media.
    pub(super) fn end_media(&mut self) {
        if let Some(hash) = self.media.as_ref().and_then(MediaHash::finish) {
            self.section().media(&hash);
        }
    }

    fn section(&mut self) -> &mut Section {
        if self.role.leads() { &mut self.lead } else { &mut self.main }
    }

    fn open(&mut self, frame: Frame) {
        if self.depth == MESSAGE {
            self.before_message = self.main.units;
        }
        self.frames[self.depth] = frame;
        self.depth += 1;
        self.state = if frame.array { State::Elements } else { State::Members };
    }

    fn close(&mut self) {
        self.depth -= 1;
        if self.depth == 0 {
            self.state = State::Done;
        } else {
            if self.depth == MESSAGE && self.end == PrefixEnd::FirstUserMessage {
                self.end_message();
            }
            self.value_ended();
        }
    }

    /// Ends the prefix, if what has ended is a message of the user that has something in it.
    fn end_message(&mut self) {
        let Frame { array, role, seen } = self.frames[MESSAGE];
        let message = !array && role == Role::Main && self.frames[MESSAGE - 1].array;
        let user = seen & seen::IS_USER != 0 && self.main.units > self.before_message;
        if message && user && !self.main.is_full() {
            self.main.full = true;
            self.opening = true;
        }
    }

    /// Goes on behind a value.
    fn value_ended(&mut self) {
        let Frame { array, role, .. } = self.frames[self.depth - 1];
        self.state = if array { State::Elements } else { State::Members };
        if self.depth > 1 {
            // Within a prompt. Once its section is full, the rest is passed over.
            self.role = role;
            if self.section().full {
                self.nest = self.leave();
                self.state = State::Nest;
            }
        }
        if self.is_decided() {
            self.state = State::Done;
        }
    }

    /// Gives up on what is open of a prompt: it is passed over up to its last bracket.
    fn leave(&mut self) -> Nest {
        let open = &self.frames[1..self.depth];
        self.depth = 1;
        let arrays = open.iter().filter(|frame| frame.array).count();
        if open[0].array {
            Nest::array(arrays as u64)
        } else {
            Nest::object((open.len() - arrays) as u64)
        }
    }

    /// Whether nothing that follows can change the prefix, the model and the caller's id.
    fn is_decided(&self) -> bool {
        let seen = self.frames[0].seen;
        let previous = if self.keys.previous.is_some() { seen::PREVIOUS } else { 0 };
        let names = seen::MODEL | seen::CACHE_KEY | previous;
        let led = self.keys.lead.is_empty() || seen & seen::LEAD != 0;
        let full = self.lead.full || (self.main.full && led && self.keys.media.is_empty());
        full && seen & names == names
    }

    fn malformed(&mut self) {
        self.malformed = true;
        self.state = if self.units() > 0 { State::Done } else { State::Raw };
    }

    /// Begins a key, behind its quote. Returns the bytes consumed.
    fn begin_key(&mut self, input: &[u8]) -> usize {
        // Most keys are short, plain, at hand, and have their colon right behind them.
        let near = input.iter().take(MAX_KEY + 1).position(|b| matches!(b, b'"' | b'\\'));
        if let Some(end) = near
            && input[end] == b'"'
        {
            self.named(&input[..end]);
            let colon = input.get(end + 1) == Some(&b':');
            if colon {
                self.state = State::Value;
            }
            return end + 1 + usize::from(colon);
        }
        self.key.clear();
        self.decoder = Decoder::default();
        self.state = State::Key;
        0
    }

    fn key(&mut self, input: &[u8]) -> usize {
        let (used, stop) = self.decoder.decode(input, &mut self.key);
        match stop {
            Stop::Input => {}
            Stop::Full => {
                // Too long to be one of interest: pass over the rest of it.
                self.escaped = self.decoder.is_escaped();
                return match skim::string(&input[used..], &mut self.escaped) {
                    Some(end) => {
                        self.named(b"");
                        used + end
                    }
                    None => {
                        self.decoder = Decoder::escaped(self.escaped);
                        input.len()
                    }
                };
            }
            Stop::Quote => {
                let key = self.key;
                self.named(key.get().unwrap_or_default());
            }
        }
        used
    }

    /// A key has ended: says what its value is.
    fn named(&mut self, key: &[u8]) {
        self.state = State::Colon;
        let Frame { role, seen, .. } = self.frames[self.depth - 1];
        let (role, bit) = match self.depth {
            1 => role::of_member(self.keys, key),
            IN_MESSAGE if key == b"role" && role == Role::Main => (Role::Author, seen::AUTHOR),
            _ => role::of_part(role, seen, key),
        };
        self.role = role;
        self.bit = bit;
    }

    fn string(&mut self, input: &[u8]) -> usize {
        let mut capture = |out| self.decoder.decode(input, &mut Capture { out, limit: MAX_NAME });
        let (used, stop) = match self.role {
            Role::Model => capture(&mut self.model),
            Role::CacheKey => capture(&mut self.cache_key),
            Role::Previous => capture(&mut self.previous),
            Role::Type | Role::Author => self.decoder.decode(input, &mut self.key),
            Role::Lead => collect(input, &mut self.decoder, &mut self.lead),
            _ => collect(input, &mut self.decoder, &mut self.main),
        };
        let counts = self.role.counts();
        match stop {
            Stop::Input => {}
            Stop::Full => {
                self.escaped = self.decoder.is_escaped();
                self.state = State::SkipString;
                if counts && self.depth > 1 {
                    // Within a prompt that is full: the string and all brackets of the prompt.
                    self.nest = self.leave().in_string(self.escaped);
                    self.state = State::Nest;
                }
                if counts && self.is_decided() {
                    self.state = State::Done;
                }
            }
            Stop::Quote => {
                if counts {
                    self.section().end_piece();
                } else if self.role == Role::Type && self.key.get() == Some(b"text") {
                    self.frames[self.depth - 1].seen |= seen::IS_TEXT;
                } else if self.role == Role::Author && self.key.get() == Some(b"user") {
                    self.frames[self.depth - 1].seen |= seen::IS_USER;
                }
                self.value_ended();
            }
        }
        used
    }

    fn scalar(&mut self, input: &[u8]) -> usize {
        let end = input.iter().position(|b| b",]} \t\n\r\"{[:".contains(b));
        let bytes = &input[..end.unwrap_or(input.len())];
        if self.state == State::Id {
            self.main.id(bytes);
        }
        if end.is_some() {
            if self.state == State::Id {
                self.main.end_id();
            }
            self.value_ended();
        }
        bytes.len()
    }
}

/// White space of JSON.
#[inline(always)]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Decodes a string into a section: what is plain in large steps, the rest character by character.
fn collect(input: &[u8], decoder: &mut Decoder, section: &mut Section) -> (usize, Stop) {
    /// Bytes read with care before large steps are tried again; two escapes of the longest kind.
    const CAREFUL: usize = 24;
    let mut at = 0;
    loop {
        if decoder.is_plain()
            && section.has_lines()
            && let Some(byte) = input.get(at)
        {
            section.peek(*byte);
        }
        let counts = !section.has_lines() || section.place == Place::Counts;
        if decoder.is_plain() && !section.full && counts {
            // A byte less than there is room for: a boundary may come before the run.
            let end = input.len().min(at + section.room().saturating_sub(1));
            let room = section.limit - section.units;
            let run = text::run(&input[at..end], room, section.has_lines());
            if run.bytes > 0 {
                section.run(&input[at..at + run.bytes], run.characters);
                at += run.bytes;
            }
            if run.quote {
                return (at + 1, Stop::Quote);
            }
            if section.has_lines() && !section.full && input[at..].starts_with(br"\n") {
                section.escape(b'n');
                at += 2;
                continue;
            }
        }
        let some = &input[at..input.len().min(at + CAREFUL)];
        let (used, stop) = decoder.decode(some, section);
        at += used;
        if stop != Stop::Input || at == input.len() {
            return (at, stop);
        }
    }
}
