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
    /// The parts of a request's key. An id in the header goes before `prompt_cache_key`, and a
    /// component in the path before the body's `model`.
    pub fn of(
        endpoint: &'a str,
        variant: &'a str,
        header_tenant: Option<&'a [u8]>,
        component: Option<&'a str>,
        prefix: &'a Prefix,
    ) -> Self {
        Self {
            endpoint,
            variant,
            tenant: header_tenant.or(prefix.cache_key.as_deref()),
            model: component.map(str::as_bytes).or(prefix.model.as_deref()),
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
