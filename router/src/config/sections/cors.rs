//! `[cors]`: which web pages may read answers.

use crate::{
    config::{
        section::Section,
        setting::{Kind, Setting},
    },
    http::cors::Origin,
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[Setting {
    path: "cors.origins",
    kind: Kind::Origins,
    default: Some("[]"),
    live: true,
    about: "Origins of web pages whose scripts may call the API and read its answers, errors included. \
            The gateway then answers preflights, and replaces what instances say about it. `[\"*\"]` is \
            every page. Empty: it is left to the instances, whose fields and preflights pass through.",
}];

/// `[cors]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsConfig {
    /// Origins whose scripts may read answers. Empty: up to the instances.
    pub origins: Vec<Origin>,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> CorsConfig {
    CorsConfig {
        origins: s.items("origins", |text| {
            text.parse::<Origin>().map_err(|error| format!("`{text}` {error}"))
        }),
    }
}
