//! The prefix key: one number that says where a request is at home.

use xxhash_rust::xxh3::Xxh3;

use super::scanner::{Prefix, PrefixKind};

pub use crate::routing::PrefixKey;

/// What makes up a prefix key.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    /// The endpoint's name.
    pub endpoint: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The tenant id, from the header or from `prompt_cache_key`.
    pub tenant: Option<&'a [u8]>,
    /// The model or adapter.
    pub model: Option<&'a [u8]>,
    /// What the prefix was made of.
    pub kind: PrefixKind,
    /// The prefix.
    pub prefix: &'a [u8],
}

impl<'a> KeyParts<'a> {
    /// The parts of a request's key. An id in the header goes before `prompt_cache_key`, and a model
    /// or component that the path names before the body's `model`.
    pub fn of(
        endpoint: &'a str,
        variant: &'a str,
        header_tenant: Option<&'a [u8]>,
        named_model: Option<&'a str>,
        prefix: &'a Prefix,
    ) -> Self {
        Self {
            endpoint,
            variant,
            tenant: header_tenant.or(prefix.cache_key.as_deref()),
            model: named_model.map(str::as_bytes).or(prefix.model.as_deref()),
            kind: prefix.kind,
            prefix: &prefix.text,
        }
    }
}

/// The key of these parts, the same on every host and in every release.
///
/// xxh3-64 over the parts, each behind its length, so that no two different lists of parts are the
/// same bytes. A part that is absent differs from an empty one.
pub fn key(parts: &KeyParts<'_>) -> PrefixKey {
    let mut hash = Xxh3::new();
    let mut part = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(u64::MAX, |b| b.len() as u64);
        hash.update(&length.to_le_bytes());
        hash.update(bytes.unwrap_or_default());
    };
    part(Some(parts.endpoint.as_bytes()));
    part(Some(parts.variant.as_bytes()));
    part(parts.tenant);
    part(parts.model);
    part(Some(match parts.kind {
        PrefixKind::Text => b"text",
        PrefixKind::TokenIds => b"token_ids",
        PrefixKind::Body => b"body",
    }));
    part(Some(parts.prefix));
    PrefixKey(hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::Api, prefix::Scanner};

    const PARTS: KeyParts<'static> = KeyParts {
        endpoint: "chat",
        variant: "blue",
        tenant: None,
        model: Some(b"llama"),
        kind: PrefixKind::Text,
        prefix: b"once upon a time",
    };

    #[test]
    fn keys_are_the_same_on_every_host_and_in_every_release() {
        // Computed with another implementation of xxh3.
        assert_eq!(key(&PARTS), PrefixKey(14_637_463_882_168_257_808));
        let long = vec![b'x'; 4096];
        assert_eq!(
            key(&KeyParts { prefix: &long, ..PARTS }),
            PrefixKey(17_608_661_434_226_385_259)
        );
    }

    /// The key of a body, sent to endpoint `chat` and its variant `main`.
    fn key_of(api: Api, tenant: Option<&str>, prefix_length: usize, body: &str) -> PrefixKey {
        let tenant = tenant.map(str::as_bytes);
        let mut scanner = Scanner::new(api, prefix_length);
        scanner.feed(body.as_bytes());
        key(&KeyParts::of("chat", "main", tenant, None, &scanner.finish()))
    }

    /// A key that changes sends every conversation to another instance. Computed with another
    /// implementation of xxh3, from the prefix written out by hand.
    #[test]
    fn keys_of_whole_bodies_stay_as_they_are() {
        type Case = (Api, Option<&'static str>, usize, &'static str, u64);
        let cases: [Case; 6] = [
            (
                Api::ChatCompletions,
                None,
                4096,
                r#"{"model":"m","messages":[{"role":"system","content":"You are helpful.\n"},
                    {"role":"user","content":[{"type":"text","text":"Why is the sky \"blue\"? \u00e9"}]}]}"#,
                709_021_803_544_391_389,
            ),
            (
                Api::Messages,
                None,
                4096,
                r#"{"messages":[{"role":"user","content":"Q"}],"system":"S","model":"m"}"#,
                16_350_593_848_366_531_973,
            ),
            (
                Api::Completions,
                Some("t"),
                3,
                r#"{"model":"m","prompt":[1,2,3,4]}"#,
                17_160_201_127_676_374_224,
            ),
            (Api::ChatCompletions, None, 4096, r#"{"x":1}"#, 3_202_540_004_330_075_330),
            (Api::Invocations, None, 4096, r#"{"inputs":"hello"}"#, 15_183_535_158_980_667_025),
            // Media fills the rest of the prefix.
            (
                Api::ChatCompletions,
                None,
                4096,
                r#"{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":[
                    {"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},
                    {"type":"text","text":"What is this?"}]}]}"#,
                383_923_376_578_551_644,
            ),
        ];
        for (api, tenant, prefix_length, body, expected) in cases {
            assert_eq!(key_of(api, tenant, prefix_length, body), PrefixKey(expected), "{body}");
        }
    }

    #[test]
    fn every_part_counts() {
        let variations = [
            PARTS,
            KeyParts { endpoint: "cha", variant: "tblue", ..PARTS },
            KeyParts { endpoint: "", variant: "chatblue", ..PARTS },
            KeyParts { variant: "green", ..PARTS },
            KeyParts { tenant: Some(b""), ..PARTS },
            KeyParts { tenant: Some(b"a"), ..PARTS },
            KeyParts { tenant: Some(b"b"), ..PARTS },
            KeyParts { model: None, ..PARTS },
            KeyParts { model: Some(b""), ..PARTS },
            KeyParts { tenant: Some(b"llama"), model: None, ..PARTS },
            KeyParts { model: Some(b"llamaonce"), prefix: b" upon a time", ..PARTS },
            KeyParts { kind: PrefixKind::Body, ..PARTS },
            KeyParts { kind: PrefixKind::TokenIds, ..PARTS },
            KeyParts { prefix: b"once upon a tim", ..PARTS },
            KeyParts { prefix: b"", ..PARTS },
        ];
        let keys: std::collections::HashSet<_> = variations.iter().map(key).collect();
        assert_eq!(keys.len(), variations.len());
    }
}
