//! `[hot_prefix]`: when a prefix is asked for more than is good.

use std::time::Duration;

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, ms},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "hot_prefix.window",
        kind: Kind::Duration { min: ms(100), max: DAY, zero: Some("do not look") },
        default: Some(r#""1m""#),
        live: true,
        about: "Requests of so long are looked at together. When one prefix has more of them than an \
                even share of the variant's instances (with four, more than a quarter), its home is \
                the busiest; `atalho_top_prefix_share` has the number.",
    },
    Setting {
        path: "hot_prefix.windows",
        kind: Kind::Integer { min: 1, max: 1000, unit: "windows" },
        default: Some("3"),
        live: true,
        about: "After so many of them in a row the log says so, once until it is over.",
    },
];

/// `[hot_prefix]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotPrefix {
    /// How long requests are looked at together; zero for not at all.
    pub window: Duration,
    /// Windows in a row after which the log says so.
    pub windows: u32,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> HotPrefix {
    HotPrefix { window: s.duration("window"), windows: s.integer("windows") }
}
