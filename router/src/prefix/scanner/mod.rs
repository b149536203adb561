//! Finds the prefix in a request body as it arrives.
//!
//! # What the prefix is
//!
//! On the Invoke API it is the first `PrefixLength` bytes of the body, whatever they are. On the JSON
//! APIs it is the first `PrefixLength` characters of the prompt's text, or as many token ids. Which
//! members of the body are the prompt is in the [table of APIs](crate::api::TABLE): `messages` for
//! chat completions, `system` and then `messages` for Anthropic's messages, and so on.
//!
//! - Text is every string that is reached from there through arrays and the keys `content`, `text`
//!   and `output` (tool outputs of the responses API), in the order of the document. So roles and
//!   tool calls do not count, tool messages do, and `null` is no text. What `type` a content part says
//!   it has does not matter: only parts that are text have a `text`.
//! - Media parts (pictures, sound, documents) count in their place among the text, each by a hash of
//!   all of its data or of its URL, and take [`MEDIA_UNITS`] of the prefix length. They are the strings
//!   of `image_url`, `video_url`, `audio_url`, `input_audio`, `image`, `video`, `audio`, `file_data`,
//!   `file_url`, `file_id`, `image_embeds`, `video_embeds`, `audio_embeds`, and of the objects `source`
//!   and `file`; where these are objects, their `data`, `url`, `file_data`, `file_url` and `file_id`.
//!   In such an object `text`, `content` and, behind a `type` that is `text`, `data` are text.
//! - What leads (`instructions`, `system`, a `query`) comes first even when it comes later in the body,
//!   because that is where the server puts it: equal prompts are equal whatever the order of the keys.
//!   Of several names for it the first one in the body counts.
//! - An escape is one character (a surrogate pair too; half a pair is U+FFFD), and so is a multi-byte
//!   sequence. Bytes that are no UTF-8 are kept as they are.
//! - Where one string ends and the next begins is part of the prefix, but not of its length: `ab`,
//!   `c` and `a`, `bc` are different prompts to the server, too. Strings without characters do not
//!   count.
//! - Arrays of numbers in `prompt`, `input`, `input_ids` and the like are token ids; what comes first,
//!   text or ids, decides, and the rest of the other kind is left out.
//! - Of a key that an object has twice, the first one counts (so that a decision never has to be
//!   taken back); `null` is as if the key were absent. This is about routing only: the instance gets
//!   the body as it is.
//! - With [`PrefixEnd::FirstUserMessage`], the prefix of an API whose prompt is a list of messages ends with the
//!   first one that has the `role` `user` and at least one unit, if that is before `PrefixLength`; what leads counts
//!   before it, also when it comes later in the body.
//! - Nothing is looked at deeper than eight levels, and nothing is validated. A body that is not a
//!   JSON object, or has no text, has its first `PrefixLength` bytes as the prefix (an object up to
//!   its closing brace). A byte order mark before it is passed over. Where JSON turns out to be malformed, what was found until then counts.
//!
//! The result depends on the bytes alone, not on how they were cut.

mod lines;
mod machine;
mod media;
#[cfg(any(test, fuzzing))]
pub mod reference;
mod role;
mod section;
mod skim;
mod text;
mod vector;

pub use lines::SkipLines;
pub use media::{MEDIA, MEDIA_UNITS};

use machine::{Frame, MAX_KEY, MAX_LEVELS, State};
use media::MediaHash;
use role::{Role, seen};
use section::{BOUNDARY, Section};
use skim::Nest;
use text::{Decoder, Name};

use crate::{
    api::{Api, Keys, Prompt},
    config::PrefixEnd,
};

/// Bytes that are kept of `model`, of `prompt_cache_key`, and of `previous_response_id`.
const MAX_NAME: usize = 1024;

/// What matters in a body that has no prompt.
const NO_PROMPT: Keys = Keys {
    lead: &[],
    main: &[],
    media: &[],
    ids: false,
    roles: false,
    model: "model",
    previous: None,
};

/// What the prefix was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixKind {
    /// Text of a prompt, UTF-8, with a byte 0xff between one string and the next. Quotes, backslashes
    /// and the control characters that have an escape of one letter are escaped as in JSON, and
    /// escapes that JSON does not know are as they were. A media part is a byte 0xfe and the 32 hexadecimal
    /// digits of its hash, xxh3-128 of its text.
    Text,
    /// Token ids of a prompt, decimal, a comma behind each, a byte 0xff between one list and the next.
    TokenIds,
    /// Bytes of the body.
    Body,
}

/// The prefix of a request, and what else its body says about where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Whether it ends with the first message of the user, and not where its length does.
    pub opening: bool,
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
    /// Top-level `previous_response_id` of the responses API, when it is a string; its first 1024 bytes.
    pub previous: Option<Vec<u8>>,
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
    /// See [`Prefix::previous`].
    pub previous: Option<&'a [u8]>,
}

/// Reads a body in pieces and keeps its prefix.
#[derive(Debug)]
pub struct Scanner {
    keys: &'static Keys,
    prefix_length: usize,
    state: State,
    /// The role of the value that comes, or of the string being read.
    role: Role,
    /// The bit of the key whose value comes.
    bit: u32,
    /// Bits of names that are known from elsewhere.
    known: u32,
    frames: [Frame; MAX_LEVELS],
    depth: usize,
    key: Name<MAX_KEY>,
    decoder: Decoder,
    escaped: bool,
    nest: Nest,
    media: Option<MediaHash>,
    lead: Section,
    main: Section,
    model: Vec<u8>,
    has_model: bool,
    cache_key: Vec<u8>,
    has_cache_key: bool,
    previous: Vec<u8>,
    has_previous: bool,
    body: Vec<u8>,
    /// Where the prefix of a chat ends.
    end: PrefixEnd,
    /// Units of the prompt before the message that is being read.
    before_message: usize,
    /// The first message of the user has ended, and the prefix with it.
    opening: bool,
    /// Bytes of a byte order mark that have come.
    mark: usize,
    /// The body turned out to be no JSON object.
    malformed: bool,
}

impl Scanner {
    /// A scanner for one body. `prefix_length` is in units: bytes for the Invoke API, characters or
    /// token ids for the others.
    pub fn new(api: Api, prefix_length: usize) -> Self {
        let mut scanner = Self {
            keys: &NO_PROMPT,
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
            nest: Nest::array(0),
            media: None,
            lead: Section::default(),
            main: Section::default(),
            model: Vec::new(),
            has_model: false,
            cache_key: Vec::new(),
            has_cache_key: false,
            previous: Vec::new(),
            has_previous: false,
            body: Vec::new(),
            end: PrefixEnd::Length,
            before_message: 0,
            opening: false,
            mark: 0,
            malformed: false,
        };
        scanner.reset(api, prefix_length);
        scanner
    }

    /// Makes it as new, and keeps its memory: a scanner in use again does not allocate.
    pub fn reset(&mut self, api: Api, prefix_length: usize) {
        let prompt = &api.info().prompt;
        self.keys = if let Prompt::Json(keys) = prompt { keys } else { &NO_PROMPT };
        self.prefix_length = prefix_length;
        self.state = if matches!(prompt, Prompt::Bytes) { State::Raw } else { State::Start };
        self.depth = 0;
        self.known = 0;
        self.lead.reset(prefix_length);
        self.main.reset(prefix_length);
        self.has_model = false;
        self.has_cache_key = false;
        self.has_previous = false;
        self.model.clear();
        self.cache_key.clear();
        self.previous.clear();
        self.body.clear();
        self.end = PrefixEnd::Length;
        self.opening = false;
        self.mark = 0;
        self.malformed = false;
    }

    /// Says that the body's `model`, or its `prompt_cache_key`, does not matter, since the request
    /// gives it elsewhere: it is not looked for, and the decision need not wait for it. To be called
    /// before the first byte is fed.
    pub fn ignore(&mut self, model: bool, cache_key: bool) {
        let bit = |ignored, bit| if ignored { bit } else { 0 };
        self.known = bit(model, seen::MODEL) | bit(cache_key, seen::CACHE_KEY);
    }

    /// Says where the prefix of a chat ends. To be called before the first byte is fed.
    pub fn end_at(&mut self, end: PrefixEnd) {
        self.end = if self.keys.roles { end } else { PrefixEnd::Length };
    }

    /// Says which lines of text to leave out. To be called before the first byte is fed.
    pub fn skip_lines(&mut self, skip: &SkipLines) {
        self.lead.skip = skip.clone();
        self.main.skip = skip.clone();
    }

    /// Takes the next payload bytes; `true` means that no more are needed to decide: the prefix is
    /// full and `model`, `prompt_cache_key` and `previous_response_id` (of the responses API) are known, or
    /// the JSON value has ended.
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

    /// Whether what was fed is not the JSON object that the API has, as far as it was looked at; `whole`
    /// says whether all of the body was fed, so that it must have ended.
    pub fn is_malformed(&self, whole: bool) -> bool {
        let open = !matches!(self.state, State::Done | State::Raw);
        let begun = self.state != State::Start || !self.body.is_empty();
        self.malformed || whole && open && begun
    }

    /// The prefix of what was fed.
    pub fn finish(mut self) -> Prefix {
        self.settle();
        let kind = self.kind();
        let model = self.has_model.then_some(self.model);
        let cache_key = self.has_cache_key.then_some(self.cache_key);
        let previous = self.has_previous.then_some(self.previous);
        let (text, units) = match kind {
            PrefixKind::Body => (self.body, None),
            _ => (self.main.text, Some(self.main.units)),
        };
        let opening = self.opening;
        let units = units.unwrap_or(text.len());
        Prefix { text, units, kind, opening, model, cache_key, previous }
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
            previous: self.has_previous.then_some(&self.previous),
        }
    }

    fn units(&self) -> usize {
        self.lead.units + self.main.units
    }

    fn kind(&self) -> PrefixKind {
        match self.main.units {
            0 => PrefixKind::Body,
            // Media alone.
            _ => self.main.kind.unwrap_or(PrefixKind::Text),
        }
    }

    /// Ends the scan: makes one section of the two.
    fn settle(&mut self) {
        if self.state == State::Media {
            self.end_media();
        }
        self.state = State::Done;
        self.lead.release();
        self.main.release();
        // What leads may come last, and leave no room for all of the first message.
        self.opening &= self.lead.units + self.main.units < self.prefix_length;
        if self.lead.units == 0 {
            return;
        }
        let room = self.prefix_length.saturating_sub(self.lead.units).min(self.main.units);
        // Ids do not go on where text has begun.
        let differs = self.lead.kind.is_some_and(|kind| self.main.kind.is_some_and(|m| m != kind));
        if room > 0 && !differs {
            let rest = &self.main.text[..self.main.length_of(room)];
            self.lead.text.push(BOUNDARY);
            self.lead.text.extend_from_slice(rest);
            self.lead.units += room;
            // There may have been room for media only, with ids behind it.
            if self.main.kind != Some(PrefixKind::TokenIds) || rest.contains(&b',') {
                self.lead.kind = self.lead.kind.or(self.main.kind);
            }
        }
        std::mem::swap(&mut self.lead, &mut self.main);
        self.lead.reset(0);
    }
}

#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod media_tests;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod tests;
