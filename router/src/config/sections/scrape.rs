//! `[scrape]`: what is read from the instances' metrics pages.

use std::time::Duration;

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, ms},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "scrape.interval",
        kind: Kind::Duration { min: ms(100), max: DAY, zero: Some("never") },
        default: Some(r#""15s""#),
        live: true,
        about: "Between two reads of an instance's own metrics, from which the gateway's page \
                shows prefix-cache hits per instance.",
    },
    Setting {
        path: "scrape.path",
        kind: Kind::Path,
        default: Some(r#""/metrics""#),
        live: true,
        about: "Path of the instances' metrics page.",
    },
];

/// `[scrape]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// Between two reads of an instance's metrics; zero for never.
    pub interval: Duration,
    /// Path of the metrics page.
    pub path: String,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Scrape {
    Scrape { interval: s.duration("interval"), path: s.path("path") }
}
