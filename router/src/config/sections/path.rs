//! `[[path]]`: paths that speak an API, besides those that are known.

use crate::{
    api::{Api, NAMES, Pattern},
    config::{
        section::Section,
        setting::{Kind, Setting},
    },
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "path.path",
        kind: Kind::Pattern,
        default: None,
        live: true,
        about: "A path that speaks one of the APIs, besides those that are known. `{name}` stands for \
                any one segment, `{name...}` at the end for one or more, `{model}` for the model. It \
                is sent on as it is.",
    },
    Setting {
        path: "path.api",
        kind: Kind::Word(&NAMES),
        default: None,
        live: true,
        about: "The API that it speaks, see [prefix.md](prefix.md#which-path-speaks-which-api): where \
                a body has its prompt and its model, and what errors look like.",
    },
];

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Option<(Pattern, Api)> {
    let pattern = s.required("path", |text| {
        text.parse::<Pattern>().map_err(|error| format!("`{text}` {error}"))
    });
    let api = s.required("api", |text| {
        let known = Api::of_name(text).filter(|api| *api != Api::Other);
        known.ok_or_else(|| format!("`{text}` is no API: write one of {}", NAMES.join(", ")))
    });
    Some((pattern?, api?))
}
