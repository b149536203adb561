//! Finds the prefix in a request body as it arrives.
//!
//! # What the prefix is
//!
//! On the Invoke API it is the first `PrefixLength` bytes of the body, whatever they are. On the JSON
//! APIs it is the first `PrefixLength` characters of the prompt's text, or as many token ids:
//!
//! | API | prompt |
//! | --- | --- |
//! | chat completions | `messages` |
//! | responses | `instructions`, then `input` |
//! | messages (Anthropic) | `system`, then `messages` |
//! | completions | `prompt` |
//! | embeddings | `input` |
//! | generate (SGLang) | `text` or `input_ids` |
//!
//! - Text is every string that is reached from there through arrays and the keys `content`, `text`
//!   and `output` (tool outputs of the responses API), in the order of the document. So roles, tool
//!   calls and images do not count, tool messages do, and `null` is no text. What `type` a content
//!   part says it has does not matter: only parts that are text have a `text`.
//! - `instructions` and `system` come first even when they come later in the body, because that is
//!   where the server puts them: equal prompts are equal whatever the order of the keys.
//! - An escape is one character (a surrogate pair too; half a pair is U+FFFD), and so is a multi-byte
//!   sequence. Bytes that are no UTF-8 are kept as they are.
//! - Where one string ends and the next begins is part of the prefix, but not of its length: `ab`,
//!   `c` and `a`, `bc` are different prompts to the server, too. Strings without characters do not
//!   count.
//! - Arrays of numbers in `prompt`, `input` and `input_ids` are token ids; what comes first, text or
//!   ids, decides, and the rest of the other kind is left out.
//! - Of a key that an object has twice, the first one counts (so that a decision never has to be
//!   taken back); `null` is as if the key were absent. This is about routing only: the instance gets
//!   the body as it is.
//! - Nothing is looked at deeper than eight levels, and nothing is validated. A body that is not a
//!   JSON object, or has no text, has its first `PrefixLength` bytes as the prefix. Where JSON turns
//!   out to be malformed, what was found until then counts.
//!
//! The result depends on the bytes alone, not on how they were cut.

#[cfg(any(test, fuzzing))]
pub mod reference;
mod section;
mod skim;
mod text;
mod vector;

use section::{BOUNDARY, Section};
use skim::Nest;
use text::{Capture, Decoder, Name, Stop};

use super::api::Api;

/// Bytes that are kept of `model` and of `prompt_cache_key`.
const MAX_NAME: usize = 1024;
/// Levels of nesting that are looked at, the top-level object included.
const MAX_LEVELS: usize = 8;
/// The longest key of interest.
const MAX_KEY: usize = 16;

/// What the prefix was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixKind {
    /// Text of a prompt, UTF-8, with a byte 0xff between one string and the next. Quotes, backslashes
    /// and the control characters that have an escape of one letter are escaped as in JSON, and
    /// escapes that JSON does not know are as they were.
    Text,
    /// Token ids of a prompt, decimal, a comma behind each, a byte 0xff between one list and the next.
    TokenIds,
    /// Bytes of the body.
    Body,
}

/// The prefix of a request, and what else its body says about where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The prefix itself, in the form that [`PrefixKind`] says.
    pub text: Vec<u8>,
    /// Its length in units: characters, ids or bytes.
    pub units: usize,
    /// What it was made of.
    pub kind: PrefixKind,
    /// Top-level `model` (SGLang's generate: `lora_path`), when it is a string; its first 1024 bytes.
    pub model: Option<Vec<u8>>,
    /// Top-level `prompt_cache_key`, when it is a string; its first 1024 bytes.
    pub cache_key: Option<Vec<u8>>,
}

/// As [`Prefix`], in the scanner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixRef<'a> {
    /// See [`Prefix::text`].
    pub text: &'a [u8],
    /// See [`Prefix::units`].
    pub units: usize,
    /// See [`Prefix::kind`].
    pub kind: PrefixKind,
    /// See [`Prefix::model`].
    pub model: Option<&'a [u8]>,
    /// See [`Prefix::cache_key`].
    pub cache_key: Option<&'a [u8]>,
}

/// What a value is to the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nothing.
    Skip,
    /// The part of the prompt that the server puts first.
    Lead,
    /// The prompt.
    Main,
    /// The model's name.
    Model,
    /// The caller's own id.
    CacheKey,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    /// More of a string that does not.
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
struct Frame {
    array: bool,
    role: Role,
    /// The keys of interest that have been seen, as bits.
    seen: u8,
}

/// Bits of [`Frame::seen`].
mod seen {
    pub(super) const MODEL: u8 = 1;
    pub(super) const CACHE_KEY: u8 = 2;
    pub(super) const LEAD: u8 = 4;
    pub(super) const MAIN: u8 = 8;
    pub(super) const INPUT_IDS: u8 = 16;
    pub(super) const CONTENT: u8 = 32;
    pub(super) const TEXT: u8 = 64;
    pub(super) const OUTPUT: u8 = 128;
}

/// Reads a body in pieces and keeps its prefix.
#[derive(Debug)]
pub struct Scanner {
    api: Api,
    prefix_length: usize,
    state: State,
    /// The role of the value that comes, or of the string being read.
    role: Role,
    /// The bit of the key whose value comes.
    bit: u8,
    /// Bits of names that are known from elsewhere.
    known: u8,
    frames: [Frame; MAX_LEVELS],
    depth: usize,
    key: Name<MAX_KEY>,
    decoder: Decoder,
    escaped: bool,
    nest: Nest,
    lead: Section,
    main: Section,
    model: Vec<u8>,
    has_model: bool,
    cache_key: Vec<u8>,
    has_cache_key: bool,
    body: Vec<u8>,
}

impl Scanner {
    /// A scanner for one body. `prefix_length` is in units: bytes for the Invoke API, characters or
    /// token ids for the others.
    pub fn new(api: Api, prefix_length: usize) -> Self {
        let mut scanner = Self {
            api,
            prefix_length,
            state: State::Start,
            role: Role::Skip,
            bit: 0,
            known: 0,
            frames: [Frame { array: false, role: Role::Skip, seen: 0 }; MAX_LEVELS],
            depth: 0,
            key: Name::new(),
            decoder: Decoder::default(),
            escaped: false,
            nest: Nest::default(),
            lead: Section::default(),
            main: Section::default(),
            model: Vec::new(),
            has_model: false,
            cache_key: Vec::new(),
            has_cache_key: false,
            body: Vec::new(),
        };
        scanner.reset(api, prefix_length);
        scanner
    }

    /// Makes it as new, and keeps its memory: a scanner in use again does not allocate.
    pub fn reset(&mut self, api: Api, prefix_length: usize) {
        self.api = api;
        self.prefix_length = prefix_length;
        self.state = if api == Api::Invocations { State::Raw } else { State::Start };
        self.depth = 0;
        self.known = 0;
        self.lead.reset(prefix_length);
        self.main.reset(prefix_length);
        self.has_model = false;
        self.has_cache_key = false;
        self.model.clear();
        self.cache_key.clear();
        self.body.clear();
    }

    /// Says that the body's `model`, or its `prompt_cache_key`, does not matter, since the request
    /// gives it elsewhere: it is not looked for, and the decision need not wait for it. To be called
    /// before the first byte is fed.
    pub fn ignore(&mut self, model: bool, cache_key: bool) {
        let bit = |ignored, bit| if ignored { bit } else { 0 };
        self.known = bit(model, seen::MODEL) | bit(cache_key, seen::CACHE_KEY);
    }

    /// Takes the next payload bytes; `true` means that no more are needed to decide: the prefix is
    /// full and `model` and `prompt_cache_key` are known, or the JSON value has ended.
    ///
    /// More bytes may be fed all the same, they change nothing.
    pub fn feed(&mut self, payload: &[u8]) -> bool {
        let mut at = 0;
        while at < payload.len() && self.state != State::Done && self.state != State::Raw {
            at += self.step(&payload[at..]);
        }
        if self.state == State::Raw {
            at = payload.len();
        }
        if self.units() == 0 {
            let room = self.prefix_length.saturating_sub(self.body.len());
            self.body.extend_from_slice(&payload[..at.min(room)]);
        }
        match self.state {
            State::Done => true,
            State::Raw => self.body.len() >= self.prefix_length,
            _ => false,
        }
    }

    /// The prefix of what was fed.
    pub fn finish(mut self) -> Prefix {
        self.settle();
        let kind = self.kind();
        let model = self.has_model.then_some(self.model);
        let cache_key = self.has_cache_key.then_some(self.cache_key);
        let (text, units) = match kind {
            PrefixKind::Body => (self.body, None),
            _ => (self.main.text, Some(self.main.units)),
        };
        Prefix { units: units.unwrap_or(text.len()), text, kind, model, cache_key }
    }

    /// The prefix of what was fed, borrowed. Nothing more can be fed then, until [`Scanner::reset`].
    pub fn prefix(&mut self) -> PrefixRef<'_> {
        self.settle();
        let kind = self.kind();
        let (text, units) = match kind {
            PrefixKind::Body => (&self.body, self.body.len()),
            _ => (&self.main.text, self.main.units),
        };
        PrefixRef {
            text,
            units,
            kind,
            model: self.has_model.then_some(&self.model),
            cache_key: self.has_cache_key.then_some(&self.cache_key),
        }
    }

    fn units(&self) -> usize {
        self.lead.units + self.main.units
    }

    fn kind(&self) -> PrefixKind {
        self.main.kind.filter(|_| self.main.units > 0).unwrap_or(PrefixKind::Body)
    }

    /// Ends the scan: makes one section of the two.
    fn settle(&mut self) {
        self.state = State::Done;
        if self.lead.units == 0 {
            return;
        }
        let room = self.prefix_length.saturating_sub(self.lead.units).min(self.main.units);
        if room > 0 {
            self.lead.text.push(BOUNDARY);
            self.lead.text.extend_from_slice(&self.main.text[..self.main.length_of(room)]);
            self.lead.units += room;
        }
        std::mem::swap(&mut self.lead, &mut self.main);
        self.lead.reset(0);
    }

    /// Consumes some of `input`, which is not empty. Consuming nothing changes the state.
    fn step(&mut self, input: &[u8]) -> usize {
        match self.state {
            State::Key => self.key(input),
            State::String => self.string(input),
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

    /// Takes a byte that is no white space, between values. Returns whether it was consumed.
    fn token(&mut self, byte: u8) -> usize {
        match (self.state, byte) {
            (State::Start, b'{') => {
                self.open(Frame { array: false, role: Role::Skip, seen: self.known });
            }
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
            if frame.seen & self.bit != 0 {
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
                    Role::Lead | Role::Main => self.begin_piece(),
                }
                1
            }
            b'{' | b'[' => {
                let array = byte == b'[';
                let counts = matches!(self.role, Role::Lead | Role::Main);
                if counts && self.depth < MAX_LEVELS && !self.section().full {
                    if array {
                        self.begin_piece();
                    }
                    self.open(Frame { array, role: self.role, seen: 0 });
                } else {
                    self.nest = Nest::new(1);
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
                    && matches!(self.api, Api::Completions | Api::Embeddings | Api::Generate)
                    && self.main.begin_id();
                self.state = if counts { State::Id } else { State::Scalar };
                0
            }
        }
    }

    fn begin_piece(&mut self) {
        let lead = self.frames[0].seen & seen::LEAD != 0;
        if self.role == Role::Main && self.main.units == 0 && lead {
            // What comes first takes its share first.
            self.main.limit = self.prefix_length.saturating_sub(self.lead.units);
            self.main.full = self.main.limit == 0;
        }
        self.section().begin_piece();
    }

    fn section(&mut self) -> &mut Section {
        if self.role == Role::Lead { &mut self.lead } else { &mut self.main }
    }

    fn open(&mut self, frame: Frame) {
        self.frames[self.depth] = frame;
        self.depth += 1;
        self.state = if frame.array { State::Elements } else { State::Members };
    }

    fn close(&mut self) {
        self.depth -= 1;
        if self.depth == 0 {
            self.state = State::Done;
        } else {
            self.value_ended();
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
                self.nest = Nest::new(self.depth as u64 - 1);
                self.depth = 1;
                self.state = State::Nest;
            }
        }
        if self.is_decided() {
            self.state = State::Done;
        }
    }

    /// Whether nothing that follows can change the prefix, the model and the caller's id.
    fn is_decided(&self) -> bool {
        let seen = self.frames[0].seen;
        let names = seen::MODEL | seen::CACHE_KEY;
        let has_lead = matches!(self.api, Api::Responses | Api::Messages);
        let full = self.lead.full || (self.main.full && (!has_lead || seen & seen::LEAD != 0));
        full && seen & names == names
    }

    fn malformed(&mut self) {
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
        let (role, bit) = if self.depth > 1 {
            let role = self.frames[self.depth - 1].role;
            match key {
                b"content" => (role, seen::CONTENT),
                b"text" => (role, seen::TEXT),
                b"output" => (role, seen::OUTPUT),
                _ => (Role::Skip, 0),
            }
        } else {
            match (self.api, key) {
                (Api::Generate, b"lora_path") => (Role::Model, seen::MODEL),
                (Api::Generate, b"model") => (Role::Skip, 0),
                (_, b"model") => (Role::Model, seen::MODEL),
                (_, b"prompt_cache_key") => (Role::CacheKey, seen::CACHE_KEY),
                (Api::Responses, b"instructions") | (Api::Messages, b"system") => {
                    (Role::Lead, seen::LEAD)
                }
                (Api::ChatCompletions | Api::Messages, b"messages")
                | (Api::Completions, b"prompt")
                | (Api::Responses | Api::Embeddings, b"input")
                | (Api::Generate, b"text") => (Role::Main, seen::MAIN),
                (Api::Generate, b"input_ids") => (Role::Main, seen::INPUT_IDS),
                _ => (Role::Skip, 0),
            }
        };
        self.role = role;
        self.bit = bit;
    }

    fn string(&mut self, input: &[u8]) -> usize {
        let mut capture = |out| self.decoder.decode(input, &mut Capture { out, limit: MAX_NAME });
        let (used, stop) = match self.role {
            Role::Model => capture(&mut self.model),
            Role::CacheKey => capture(&mut self.cache_key),
            Role::Lead => collect(input, &mut self.decoder, &mut self.lead),
            Role::Main | Role::Skip => collect(input, &mut self.decoder, &mut self.main),
        };
        let counts = matches!(self.role, Role::Lead | Role::Main);
        match stop {
            Stop::Input => {}
            Stop::Full => {
                self.escaped = self.decoder.is_escaped();
                self.state = State::SkipString;
                if counts && self.depth > 1 {
                    // Within a prompt that is full: the string and all brackets of the prompt.
                    self.nest = Nest::in_string(self.depth as u64 - 1, self.escaped);
                    self.depth = 1;
                    self.state = State::Nest;
                }
                if counts && self.is_decided() {
                    self.state = State::Done;
                }
            }
            Stop::Quote => {
                if counts {
                    self.section().end_piece();
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
        if decoder.is_plain() && !section.full {
            // A byte less than there is room for: a boundary may come before the run.
            let end = input.len().min(at + section.room().saturating_sub(1));
            let run = text::run(&input[at..end], section.limit - section.units);
            if run.bytes > 0 {
                section.run(&input[at..at + run.bytes], run.characters);
                at += run.bytes;
            }
            if run.quote {
                return (at + 1, Stop::Quote);
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
