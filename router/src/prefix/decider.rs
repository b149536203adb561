//! What a request's body says about where it goes: one way for the gateway and for `explain`.

use super::{
    Prefix, Scanner, SkipLines,
    decode::{DecodeError, Decoder},
};
use crate::{
    api::{Api, Target},
    config::{self, PrefixEnd},
    http::head::list_tokens,
};

/// What is known before the first byte of a body.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The API that the request speaks.
    pub api: Api,
    /// Units of the prefix.
    pub prefix_length: usize,
    /// Bytes of the body that are looked at, as they come and decoded.
    pub decision_bytes: usize,
    /// Lines of text that are left out.
    pub skip: &'a SkipLines,
    /// Where the prefix of a chat ends.
    pub end: PrefixEnd,
    /// Whether the head names the model, so that the body's does not matter.
    pub model: bool,
    /// Whether the head names the tenant, so that the body's does not matter.
    pub tenant: bool,
}

impl<'a> Known<'a> {
    /// What the head of a request tells, and the limits of its variant and of the gateway.
    pub fn new(
        target: &Target<'_>,
        tenant: Option<&str>,
        prefix_length: usize,
        decision_bytes: usize,
        prefix: &'a config::Prefix,
    ) -> Self {
        let (model, tenant) = (target.named_model().is_some(), tenant.is_some());
        let (skip, end) = (&prefix.skip_lines, prefix.end);
        Self { api: target.api, prefix_length, decision_bytes, skip, end, model, tenant }
    }
}

/// Why a decision was made with less than a body might have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shortfall {
    /// It is longer than `limits.decision_bytes`, and what was looked for had not been found by then.
    DecisionBytes,
    /// Its content coding is not known.
    UnknownCoding,
    /// It is not of the content coding that it is said to be of.
    CorruptCoding,
    /// More comes out of its content coding than of any prompt.
    Expansion,
    /// It is not the JSON object that its API has.
    NotJson,
}

impl Shortfall {
    /// All of them, for tables of metrics.
    pub const ALL: [Self; 5] = [
        Self::DecisionBytes,
        Self::UnknownCoding,
        Self::CorruptCoding,
        Self::Expansion,
        Self::NotJson,
    ];

    /// The name used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DecisionBytes => "decision_bytes",
            Self::UnknownCoding => "unknown_coding",
            Self::CorruptCoding => "corrupt_coding",
            Self::Expansion => "expansion",
            Self::NotJson => "not_json",
        }
    }

    /// Whether a body was coded in a way that kept its prompt from being read.
    pub fn is_of_coding(self) -> bool {
        matches!(self, Self::UnknownCoding | Self::CorruptCoding | Self::Expansion)
    }
}

/// What a body told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The prefix, and what else the body says about where it goes.
    pub prefix: Prefix,
    /// Why that may be less than all.
    pub shortfall: Option<Shortfall>,
    /// Whether a prefix can decide: not when the body could not be decoded as far as its prefix goes.
    pub has_prefix: bool,
}

/// Reads a body in pieces, as far as the decision needs.
#[derive(Debug)]
pub struct Decider {
    scanner: Scanner,
    decoder: Option<Decoder>,
    prefix_length: usize,
    /// Bytes that may still be looked at.
    left: usize,
    enough: bool,
    cut: bool,
}

impl Decider {
    /// For the body of a request with these header fields (name, value).
    pub fn new<'a>(known: Known<'_>, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let codings = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"content-encoding"))
            .flat_map(|(_, value)| list_tokens(value));
        let mut scanner = Scanner::new(known.api, known.prefix_length);
        scanner.ignore(known.model, known.tenant);
        scanner.skip_lines(known.skip);
        scanner.end_at(known.end);
        Self {
            scanner,
            decoder: Decoder::new(codings, known.decision_bytes as u64),
            prefix_length: known.prefix_length,
            left: known.decision_bytes,
            enough: false,
            cut: false,
        }
    }

    /// Takes the next bytes of the payload; `true` means that no more are needed, or of use.
    ///
    /// What is found does not depend on how the body was cut, and more bytes change nothing.
    pub fn feed(&mut self, payload: &[u8]) -> bool {
        if self.enough {
            return true;
        }
        let (within, beyond) = payload.split_at(payload.len().min(self.left));
        self.left -= within.len();
        let scanner = &mut self.scanner;
        self.enough = match &mut self.decoder {
            None => !within.is_empty() && scanner.feed(within),
            Some(decoder) => !decoder.feed(within, &mut |bytes| scanner.feed(bytes)),
        };
        if !self.enough && !beyond.is_empty() {
            self.enough = true;
            self.cut = true;
        }
        self.enough
    }

    /// What was found in what was fed.
    pub fn finish(mut self) -> Findings {
        if let Some(decoder) = &mut self.decoder
            && !self.enough
        {
            let scanner = &mut self.scanner;
            let mut enough = false;
            decoder.end(&mut |bytes| {
                enough = scanner.feed(bytes);
                enough
            });
            self.enough = enough || decoder.failed().is_some();
        }
        let failed = self.decoder.as_ref().and_then(Decoder::failed);
        let not_json = self.scanner.is_malformed(!self.enough);
        let prefix = self.scanner.finish();
        let shortfall = match failed {
            Some(DecodeError::Unknown) => Some(Shortfall::UnknownCoding),
            Some(DecodeError::Corrupt) => Some(Shortfall::CorruptCoding),
            Some(DecodeError::Expansion) => Some(Shortfall::Expansion),
            Some(DecodeError::Limit) => Some(Shortfall::DecisionBytes),
            None if self.cut => Some(Shortfall::DecisionBytes),
            None => not_json.then_some(Shortfall::NotJson),
        };
        // A part of a prompt would do, but of a coded body it may be none.
        let unread = match shortfall {
            Some(shortfall) if shortfall.is_of_coding() => prefix.units < self.prefix_length,
            Some(_) => self.decoder.is_some() && prefix.units == 0,
            None => false,
        };
        let has_prefix = !unread;
        Findings { prefix, shortfall, has_prefix }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::prefix::properties;

    fn known() -> Known<'static> {
        static NONE: LazyLock<SkipLines> = LazyLock::new(|| [].into());
        Known {
            api: Api::ChatCompletions,
            prefix_length: 8,
            decision_bytes: 1000,
            skip: &NONE,
            end: PrefixEnd::Length,
            model: false,
            tenant: false,
        }
    }

    fn found(known: Known<'_>, coding: &str, body: &[u8]) -> Findings {
        let fields = [(&b"Content-Encoding"[..], coding.as_bytes())];
        let mut decider = Decider::new(known, fields.into_iter());
        decider.feed(body);
        decider.finish()
    }

    #[test]
    fn what_is_left_out_is_said() {
        let body = br#"{"messages":[{"content":"0123456789"}],"model":"m"}"#;
        let exact = Known { decision_bytes: body.len(), ..known() };
        let all = found(exact, "", body);
        assert_eq!((all.shortfall, all.has_prefix), (None, true));
        assert_eq!(all.prefix.model.as_deref(), Some(&b"m"[..]));
        let less = found(Known { decision_bytes: body.len() - 1, ..known() }, "", body);
        assert_eq!((less.shortfall, less.has_prefix), (Some(Shortfall::DecisionBytes), true));
        let short = found(Known { decision_bytes: body.len() - 5, ..known() }, "", body);
        assert_eq!((short.prefix.model, short.prefix.text), (None, b"01234567".to_vec()));
        // What was not needed is not missed.
        let all_known = Known { decision_bytes: 40, model: true, tenant: true, ..known() };
        assert_eq!(found(all_known, "", body).shortfall, None);
        assert_eq!(found(known(), "", &body[..20]).shortfall, Some(Shortfall::NotJson));
        assert_eq!(found(known(), "", b"").shortfall, None);
        let unknown = found(known(), "lzw", body);
        assert_eq!(
            (unknown.shortfall, unknown.has_prefix),
            (Some(Shortfall::UnknownCoding), false)
        );
        let corrupt = found(known(), "gzip", body);
        assert_eq!(
            (corrupt.shortfall, corrupt.has_prefix),
            (Some(Shortfall::CorruptCoding), false)
        );
    }

    proptest! {
        #[test]
        fn any_cut_finds_the_same(
            body in proptest::collection::vec(any::<u8>(), 0..3000),
            json in "\\{\"messages\":\\[\\{\"content\":\"[a-z]{0,40}\"\\}\\],\"model\":\"[a-z]{1,3}\"\\}",
            random: bool,
            coding in proptest::sample::select(&["", "gzip", "deflate", "br", "zstd", "gzip, br"][..]),
            decision_bytes in 0usize..3000,
            sizes in proptest::collection::vec(1usize..1500, 1..9),
        ) {
            let body = if random { body } else { json.into_bytes() };
            properties::decide(coding, Known { decision_bytes, ..known() }, &sizes, &body);
        }
    }
}
