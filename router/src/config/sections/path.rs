//! `[[path]]`: paths that are reachable, besides those of the APIs that are known.

use crate::{
    api::{Api, NAMES, OwnPath, Pattern},
    config::{
        section::Section,
        setting::{Kind, METHODS, Setting},
    },
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "path.path",
        kind: Kind::Pattern,
        default: None,
        live: true,
        about: "A path that clients can reach, besides those of the APIs that are known. `{name}` \
                stands for any one segment, `{name...}` at the end for one or more, `{model}` for the \
                model. It is sent on as it is.",
    },
    Setting {
        path: "path.api",
        kind: Kind::Choice(&NAMES),
        default: Some(r#""other""#),
        live: true,
        about: "The API that it speaks, see [prefix.md](prefix.md#which-path-speaks-which-api): where \
                a body has its prompt and its model, and what errors look like. `other` has no \
                prompt: the least loaded instance gets it.",
    },
    Setting {
        path: "path.methods",
        kind: Kind::Methods,
        default: Some("[]"),
        live: true,
        about: "Methods that it takes; HEAD goes with GET, and OPTIONS with any. Empty: those of the \
                API, and any with `other`.",
    },
];

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Option<OwnPath> {
    let pattern = s.required("path", |text| {
        text.parse::<Pattern>().map_err(|error| format!("`{text}` {error}"))
    });
    let api = s.choice("api", &Api::ALL.map(|api| (api.as_str(), api)));
    let methods = s.items("methods", |text| {
        let known = METHODS.iter().find(|method| method.as_str() == text);
        let names = || METHODS.map(|method| method.as_str()).join(", ");
        known.copied().ok_or_else(|| format!("`{text}` is no method: write {}", names()))
    });
    Some(OwnPath { pattern: pattern?, api, methods })
}
