//! What a value is to the prefix, by its key.

use crate::api::Keys;

/// What a value is to the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing.
    Skip,
    /// The part of the prompt that the server puts first.
    Lead,
    /// The prompt.
    Main,
    /// Media, in the part that the server puts first.
    LeadMedia,
    /// Media, in the prompt.
    MainMedia,
    /// What media is: `base64`, `url`, `text`.
    Type,
    /// Who says a message.
    Author,
    /// The model's name.
    Model,
    /// The caller's own id.
    CacheKey,
    /// The id of a stored response.
    Previous,
}

impl Role {
    /// Whether it is a part of the prompt.
    pub(super) fn counts(self) -> bool {
        self.leads() || matches!(self, Self::Main | Self::MainMedia)
    }

    /// Whether it is a part of what comes first.
    pub(super) fn leads(self) -> bool {
        matches!(self, Self::Lead | Self::LeadMedia)
    }

    /// Whether its strings are media.
    pub(super) fn is_media(self) -> bool {
        matches!(self, Self::LeadMedia | Self::MainMedia)
    }

    /// Text at the same place.
    fn text(self) -> Self {
        if self.leads() { Self::Lead } else { Self::Main }
    }

    /// Media at the same place.
    fn media(self) -> Self {
        if self.leads() { Self::LeadMedia } else { Self::MainMedia }
    }
}

/// The keys of an object that have been seen, as bits: of the top-level one, and of those in a prompt.
pub(super) mod seen {
    pub(in crate::prefix::scanner) const MODEL: u32 = 1;
    pub(in crate::prefix::scanner) const CACHE_KEY: u32 = 2;
    pub(in crate::prefix::scanner) const LEAD: u32 = 4;
    /// The first of at most four.
    pub(in crate::prefix::scanner) const MEDIA: u32 = 8;
    pub(in crate::prefix::scanner) const ANY_MEDIA: u32 = 0xf * MEDIA;
    /// The first of as many as there are.
    pub(in crate::prefix::scanner) const MAIN: u32 = MEDIA << 4;
    pub(in crate::prefix::scanner) const PREVIOUS: u32 = 1 << 29;

    pub(in crate::prefix::scanner) const CONTENT: u32 = 1;
    pub(super) const TEXT: u32 = 2;
    pub(super) const OUTPUT: u32 = 4;
    /// `type`, of media.
    pub(super) const TYPE: u32 = 8;
    /// It was `text`.
    pub(in crate::prefix::scanner) const IS_TEXT: u32 = 16;
    /// The first of many.
    pub(super) const PART: u32 = 32;
    /// `role`, of a message.
    pub(in crate::prefix::scanner) const AUTHOR: u32 = 1 << 27;
    /// It was `user`.
    pub(in crate::prefix::scanner) const IS_USER: u32 = 1 << 28;
    pub(super) const SOURCE: u32 = 1 << 30;
    pub(super) const FILE: u32 = 1 << 31;
    /// Keys whose value is media when it is an object, and something else when it is a string. No key
    /// of the top-level object has these bits.
    pub(in crate::prefix::scanner) const OBJECTS_ONLY: u32 = SOURCE | FILE;
}

/// What a member of the top-level object is, and its bit in the object's seen ones.
pub(super) fn of_member(keys: &Keys, key: &[u8]) -> (Role, u32) {
    let is = |name: &&'static str| name.as_bytes() == key;
    if keys.model.as_bytes() == key {
        (Role::Model, seen::MODEL)
    } else if key == b"prompt_cache_key" {
        (Role::CacheKey, seen::CACHE_KEY)
    } else if keys.previous.is_some_and(|name| is(&name)) {
        (Role::Previous, seen::PREVIOUS)
    } else if keys.lead.iter().any(is) {
        (Role::Lead, seen::LEAD)
    } else if let Some(at) = keys.main.iter().position(is) {
        (Role::Main, seen::MAIN << at)
    } else if let Some(at) = keys.media.iter().position(is) {
        (Role::LeadMedia, seen::MEDIA << at)
    } else {
        (Role::Skip, 0)
    }
}

/// What a member of an object within a prompt is, and its bit. `within` is what the object is, and
/// `object` are the bits of its keys that have been seen.
///
/// Media parts are known by these keys, as OpenAI, Anthropic, vLLM and SGLang have them.
pub(super) fn of_part(within: Role, object: u32, key: &[u8]) -> (Role, u32) {
    let (text, media) = (within.text(), within.media());
    match key {
        b"content" => return (text, seen::CONTENT),
        b"text" => return (text, seen::TEXT),
        _ => {}
    }
    if within.is_media() {
        let part = |n: u32| (media, seen::PART << n);
        return match key {
            b"type" => (Role::Type, seen::TYPE),
            // A document of plain text is text.
            b"data" if object & seen::IS_TEXT != 0 => (text, seen::PART),
            b"data" => part(0),
            b"url" => part(1),
            b"file_data" => part(2),
            b"file_url" => part(3),
            b"file_id" => part(4),
            _ => (Role::Skip, 0),
        };
    }
    let part = |n: u32| (media, seen::PART << n);
    match key {
        b"output" => (text, seen::OUTPUT),
        b"image_url" => part(0),
        b"video_url" => part(1),
        b"audio_url" => part(2),
        b"input_audio" => part(3),
        b"file_data" => part(4),
        b"file_url" => part(5),
        b"file_id" => part(6),
        b"image_embeds" => part(7),
        b"video_embeds" => part(8),
        b"audio_embeds" => part(9),
        b"image" => part(10),
        b"video" => part(11),
        b"audio" => part(12),
        b"source" => (media, seen::SOURCE),
        b"file" => (media, seen::FILE),
        _ => (Role::Skip, 0),
    }
}
