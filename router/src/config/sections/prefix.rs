//! `[prefix]`: what of a prompt counts.

use std::sync::Arc;

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "prefix.end",
        kind: Kind::Choice(&["length", "first_user_message"]),
        default: Some(r#""length""#),
        live: true,
        about: "Where the prefix of a chat ends: at `prefix_length`, as in SageMaker, or already with the first \
                message of the user if that comes before. Then all turns of a conversation have the prefix of \
                the first one, however short they are. See \
                [prefix.md](prefix.md#the-end-of-the-first-user-message).",
    },
    Setting {
        path: "prefix.skip_lines",
        kind: Kind::Beginnings,
        default: Some(
            r#"["x-anthropic-billing-header:", "current date and time:", "current time:"]"#,
        ),
        live: true,
        about: "Lines of a prompt that begin like one of these, whatever the case, do not count in the \
                prefix. For what changes with each request in front of a prompt: Claude Code's first \
                system block is such a line, and some agents write the time.",
    },
];

/// Where the prefix of a chat ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PrefixEnd {
    /// At the variant's `prefix_length`.
    #[default]
    Length,
    /// With the first message of the user, if that comes before.
    FirstUserMessage,
}

/// `[prefix]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Where the prefix of a chat ends.
    pub end: PrefixEnd,
    /// Beginnings of lines that are left out, in lower case, quotes and backslashes escaped as in JSON.
    pub skip_lines: Arc<[Box<[u8]>]>,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Prefix {
    let lines = s.items("skip_lines", |text| {
        let fits = (1..=MAX_LENGTH).contains(&text.len()) && !text.chars().any(char::is_control);
        let escaped = text.to_ascii_lowercase().replace('\\', r"\\").replace('"', r#"\""#);
        fits.then(|| escaped.into_bytes().into_boxed_slice()).ok_or_else(|| {
            format!("`{text}` will not do: write 1 to {MAX_LENGTH} bytes of one line")
        })
    });
    let ends = [("length", PrefixEnd::Length), ("first_user_message", PrefixEnd::FirstUserMessage)];
    Prefix { end: s.choice("end", &ends), skip_lines: lines.into() }
}

/// Bytes of a line's beginning: as many are held back of a line, at most.
const MAX_LENGTH: usize = 256;
