//! The prefix by the plainest means: the whole body as a tree of `serde_json`, read afterwards.
//!
//! What the scanner must agree with wherever the body is valid JSON. Used by tests and fuzzing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use xxhash_rust::xxh3::xxh3_128;

use super::{BOUNDARY, MAX_LEVELS, MAX_NAME, MEDIA, MEDIA_UNITS, Prefix, PrefixEnd, PrefixKind};
use crate::api::{Api, Keys, Prompt};

/// A JSON value that keeps the order of keys, and keys that come twice.
enum Tree {
    Null,
    Other,
    Id(String),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Tree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Id(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Id(value.to_string()))
            }
            fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Tree, E> {
                // Its spelling is lost, and the scanner goes by the spelling.
                Err(E::custom("a number that is no integer"))
            }
            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Tree::Array(elements))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Tree::Object(members))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// One unit of a prompt.
#[derive(Clone)]
enum Unit {
    Character(char),
    Id(String),
    Media(u128),
}

impl Unit {
    /// How much it takes of the prefix length.
    fn takes(&self) -> usize {
        if matches!(self, Self::Media(_)) { MEDIA_UNITS } else { 1 }
    }
}

/// What is done with the strings of a value.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Text,
    Media,
}

/// The prompt's units, each with the number of the piece it belongs to.
struct Walk {
    units: Vec<(usize, Unit)>,
    pieces: usize,
    numbers: bool,
    /// The number of the message that ended the prefix.
    user_at: Option<usize>,
}

impl Walk {
    /// Messages, up to the first of the user that has something in it.
    fn opening(&mut self, messages: &[Tree]) {
        self.pieces += 1;
        for (at, message) in messages.iter().enumerate() {
            let before = self.units.len();
            self.value(message, Of::Text, 2, true);
            let Tree::Object(members) = message else { continue };
            let author =
                members.iter().find(|(key, value)| key == "role" && !matches!(value, Tree::Null));
            let user = matches!(author, Some((_, Tree::Text(author))) if author == "user");
            if user && self.units.len() > before {
                self.user_at = Some(at);
                return;
            }
        }
    }

    fn value(&mut self, value: &Tree, of: Of, level: usize, in_array: bool) {
        match value {
            Tree::Text(text) => {
                self.pieces += 1;
                let piece = self.pieces;
                match of {
                    Of::Text => {
                        self.units.extend(text.chars().map(|c| (piece, Unit::Character(c))));
                    }
                    Of::Media if text.is_empty() => {}
                    Of::Media => self.units.push((piece, Unit::Media(xxh3_128(text.as_bytes())))),
                }
            }
            Tree::Id(id) if in_array && self.numbers && of == Of::Text => {
                self.units.push((self.pieces, Unit::Id(id.clone())));
            }
            Tree::Array(elements) if level < MAX_LEVELS => {
                self.pieces += 1;
                for element in elements {
                    self.value(element, of, level + 1, true);
                }
            }
            Tree::Object(members) if level < MAX_LEVELS => {
                let mut seen = Vec::new();
                let mut plain = false;
                for (key, value) in members {
                    if matches!(value, Tree::Null) || seen.contains(&key) {
                        continue;
                    }
                    seen.push(key);
                    let of = match (of, key.as_str(), value) {
                        (_, "content" | "text", _) | (Of::Text, "output", _) => Of::Text,
                        (Of::Media, "type", Tree::Text(kind)) => {
                            plain = kind == "text";
                            continue;
                        }
                        (Of::Media, "data", _) if plain => Of::Text,
                        (Of::Media, "data" | "url", _) => Of::Media,
                        (_, "file_data" | "file_url" | "file_id", _) => Of::Media,
                        (Of::Text, "image" | "image_url" | "image_embeds", _) => Of::Media,
                        (Of::Text, "video" | "video_url" | "video_embeds", _) => Of::Media,
                        (Of::Text, "audio" | "audio_url" | "audio_embeds", _) => Of::Media,
                        (Of::Text, "input_audio", _) => Of::Media,
                        (Of::Text, "source" | "file", Tree::Text(_)) => continue,
                        (Of::Text, "source" | "file", _) => Of::Media,
                        _ => continue,
                    };
                    self.value(value, of, level + 1, false);
                }
            }
            _ => {}
        }
    }
}

/// The prefix of `body`; `None` when it is not valid JSON (or holds numbers that are no integers),
/// where there is nothing to compare with.
pub fn prefix(api: Api, prefix_length: usize, end: PrefixEnd, body: &[u8]) -> Option<Prefix> {
    let bytes = |body: &[u8]| {
        let text = body[..body.len().min(prefix_length)].to_vec();
        (text.len(), text, PrefixKind::Body)
    };
    let keys = match &api.info().prompt {
        Prompt::Json(keys) => keys,
        Prompt::None => &super::NO_PROMPT,
        Prompt::Bytes => {
            let (units, text, kind) = bytes(body);
            return Some(Prefix {
                units,
                text,
                kind,
                opening: false,
                model: None,
                cache_key: None,
                previous: None,
            });
        }
    };
    let json = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let tree: Tree = serde_json::from_slice(json).ok()?;
    let Tree::Object(members) = tree else {
        let (units, text, kind) = bytes(body);
        let (opening, model, cache_key, previous) = (false, None, None, None);
        return Some(Prefix { units, text, kind, opening, model, cache_key, previous });
    };
    let first = |key: &str| {
        members.iter().find(|(k, v)| k == key && !matches!(v, Tree::Null)).map(|(_, v)| v)
    };
    let name = |key: &str| match first(key) {
        Some(Tree::Text(text)) => Some(text.as_bytes()[..text.len().min(MAX_NAME)].to_vec()),
        _ => None,
    };
    let mut walk = Walk { units: Vec::new(), pieces: 0, numbers: false, user_at: None };
    let Keys { lead, main, media, model, previous: follows, ids: api_has_ids, roles } = *keys;
    let by_message = roles && end == PrefixEnd::FirstUserMessage;
    // The names of what leads are names of one thing; of the others each counts, in the order of the
    // document, and once.
    let mut present = members.iter().filter(|(_, value)| !matches!(value, Tree::Null));
    if let Some((_, value)) = present.find(|(key, _)| lead.contains(&key.as_str())) {
        walk.value(value, Of::Text, 1, false);
    }
    let mut leading = 0;
    for (keys, of) in [(media, Of::Media), (main, Of::Text)] {
        leading = walk.units.len();
        walk.numbers = of == Of::Text && api_has_ids;
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in &members {
            let counts = keys.contains(&key.as_str()) && !seen.contains(&key.as_str());
            if counts && !matches!(value, Tree::Null) {
                seen.push(key);
                match value {
                    Tree::Array(messages) if by_message => walk.opening(messages),
                    _ => walk.value(value, of, 1, false),
                }
            }
        }
    }
    // Numbers are ids in what does not lead only, and where no text has led.
    let rest = walk.units.split_off(leading);
    let kind = |units: &[(usize, Unit)]| {
        let mut all = units.iter().map(|(_, unit)| unit);
        all.find(|unit| !matches!(unit, Unit::Media(_))).map(|unit| matches!(unit, Unit::Id(_)))
    };
    let rest = if kind(&walk.units).is_some() && kind(&rest) == Some(true) { vec![] } else { rest };
    let ids = kind(&rest) == Some(true);
    let mut taken = 0;
    let units: Vec<_> = walk
        .units
        .into_iter()
        .chain(rest)
        .filter(|(_, unit)| matches!(unit, Unit::Media(_)) || matches!(unit, Unit::Id(_)) == ids)
        .take_while(|(_, unit)| {
            let room = taken < prefix_length;
            taken += unit.takes();
            room
        })
        .collect();
    let mut text = Vec::new();
    let mut last = None;
    let mut utf8 = [0; 4];
    for (piece, unit) in &units {
        if last.is_some_and(|last| last != *piece) {
            text.push(BOUNDARY);
        }
        last = Some(*piece);
        match unit {
            Unit::Character(c) => {
                // `serde_json` writes other control characters as `\u00XX`, a DEL as it is.
                let escaped = serde_json::to_string(c).ok()?;
                let inner = &escaped[1..escaped.len() - 1];
                let kept = if inner.starts_with("\\u") { c.encode_utf8(&mut utf8) } else { inner };
                text.extend_from_slice(kept.as_bytes());
            }
            Unit::Id(id) => text.extend_from_slice(format!("{id},").as_bytes()),
            Unit::Media(hash) => {
                text.push(MEDIA);
                text.extend_from_slice(format!("{hash:032x}").as_bytes());
            }
        }
    }
    // Media alone is of no kind, whatever comes behind it.
    let ids = ids && units.iter().any(|(_, unit)| matches!(unit, Unit::Id(_)));
    let total: usize = units.iter().map(|(_, unit)| unit.takes()).sum();
    let (units, text, kind) = match total.min(prefix_length) {
        0 => bytes(body.trim_ascii_end()),
        n => (n, text, if ids { PrefixKind::TokenIds } else { PrefixKind::Text }),
    };
    // Where the length ends it, it is not the message that does.
    let opening = walk.user_at.is_some() && total < prefix_length;
    let model = name(model);
    let (cache_key, previous) = (name("prompt_cache_key"), follows.and_then(name));
    Some(Prefix { text, units, kind, opening, model, cache_key, previous })
}
