//! `[pool]`: idle connections to instances.

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[Setting {
    path: "pool.max_idle_per_instance",
    kind: Kind::Integer { min: 0, max: 65536, unit: "connections" },
    default: Some("128"),
    live: true,
    about: "Idle connections kept per instance and worker thread.",
}];

/// `[pool]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections kept per instance and worker thread.
    pub max_idle_per_instance: usize,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Pool {
    Pool { max_idle_per_instance: s.integer("max_idle_per_instance") }
}
