//! `[models]`: which models the instances serve.

use std::time::Duration;

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, ms, secs},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "models.interval",
        kind: Kind::Duration { min: ms(50), max: DAY, zero: Some("never") },
        default: Some(r#""10s""#),
        live: true,
        about: "Between two looks at an instance's `/v1/models`. Where instances list different \
                models, a request goes to those that list its model, and `/v1/...` to the endpoint \
                that does. An instance without such a page, or that shows it to nobody without a \
                key, takes what no other one lists. Where all lists are the same, nothing depends \
                on them.",
    },
    Setting {
        path: "models.cache",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: Some("ask each time") },
        default: Some(r#""5s""#),
        live: true,
        about: "How long an answer to `GET /v1/models` is given again to clients with the same \
                credentials before the instances are asked anew.",
    },
];

/// `[models]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models {
    /// Between two looks at an instance's list; zero for never.
    pub interval: Duration,
    /// How long an answer to clients is given again; zero for not at all.
    pub cache: Duration,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Models {
    Models { interval: s.duration("interval"), cache: s.duration("cache") }
}
