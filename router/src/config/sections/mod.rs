//! The sections of a configuration file. Each has a file with its table of settings, what it holds
//! once it has been read, and how it is read.

mod control;
mod cors;
mod endpoint;
mod engine;
mod global;
mod guard;
mod health;
mod host_pool;
mod hot_prefix;
mod limits;
mod log;
mod models;
mod path;
mod pool;
mod prefix;
mod proxies;
mod scrape;
mod timeouts;

pub use self::{
    control::ControlConfig,
    cors::CorsConfig,
    endpoint::{
        AdapterConfig, ComponentConfig, CopyConfig, EndpointConfig, InstanceConfig, VariantConfig,
    },
    engine::{Engine, EngineMode, XdpMode},
    global::{Config, NewTrace},
    guard::{Guard, GuardMode},
    health::Health,
    host_pool::{AdapterCalls, Copies, HostPool},
    hot_prefix::HotPrefix,
    limits::Limits,
    log::{Log, LogFormat, LogLevel},
    models::Models,
    pool::Pool,
    prefix::{Prefix, PrefixEnd},
    proxies::Proxies,
    scrape::Scrape,
    timeouts::Timeouts,
};
pub(super) use global::read;

use super::setting::Setting;

/// The tables of all sections, in the order of the documentation.
pub(super) const SECTIONS: &[&[Setting]] = &[
    global::SETTINGS,
    engine::SETTINGS,
    limits::SETTINGS,
    timeouts::SETTINGS,
    pool::SETTINGS,
    health::SETTINGS,
    models::SETTINGS,
    hot_prefix::SETTINGS,
    scrape::SETTINGS,
    log::SETTINGS,
    guard::SETTINGS,
    proxies::SETTINGS,
    cors::SETTINGS,
    control::SETTINGS,
    host_pool::SETTINGS,
    path::SETTINGS,
    prefix::SETTINGS,
    endpoint::SETTINGS,
];

/// All settings, in the order of the documentation.
///
/// The reader takes defaults and ranges from these tables, and `docs/configuration.md` is generated
/// from them, so that neither can differ from the other.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().copied().flatten()
}

/// The setting at `path`.
///
/// # Panics
/// When there is none: the reader asked for a setting that is not in a table.
pub(super) fn setting(path: &str) -> &'static Setting {
    settings()
        .find(|setting| setting.path == path)
        .unwrap_or_else(|| panic!("no setting {path} in the tables"))
}
