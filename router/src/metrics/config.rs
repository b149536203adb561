//! Handles about the configuration and its reloads.

use std::{
    sync::Mutex,
    time::{Duration, SystemTime},
};

use prometheus::{IntCounter, IntGauge};

use super::{families::Families, lock};

/// What is counted about the configuration, and what its last reload said.
#[derive(Debug)]
pub struct ConfigMetrics {
    reloads_ok: IntCounter,
    reloads_failed: IntCounter,
    generation: IntGauge,
    applied_at: IntGauge,
    last_successful: IntGauge,
    last_at: IntGauge,
    last: Mutex<Option<LastReload>>,
}

/// The last attempt to take over a changed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReload {
    /// When.
    pub at: SystemTime,
    /// Whether all of it is in effect, as far as that is possible without a restart.
    pub successful: bool,
    /// What is wrong with it, or what it leaves out, one thing in each line; often nothing.
    pub message: String,
}

impl ConfigMetrics {
    pub(super) fn new(families: &Families) -> ConfigMetrics {
        let reloads = |result| families.config_reloads.with_label_values(&[result]);
        ConfigMetrics {
            reloads_ok: reloads("ok"),
            reloads_failed: reloads("failed"),
            generation: families.config_generation.clone(),
            applied_at: families.config_applied_at.clone(),
            last_successful: families.config_last_successful.clone(),
            last_at: families.config_last_at.clone(),
            last: Mutex::default(),
        }
    }

    /// The first configuration has taken effect.
    pub fn started(&self) {
        let now = unix_time();
        self.generation.set(1);
        self.applied_at.set(now);
        self.last_successful.set(1);
        self.last_at.set(now);
    }

    /// A reload has taken effect. `message` says what it left out, if anything.
    pub fn reloaded(&self, message: String) {
        self.reloads_ok.inc();
        self.generation.inc();
        self.applied_at.set(unix_time());
        self.ended(true, message);
    }

    /// A reload was refused, and the configuration stayed as it was. `message` says why.
    pub fn refused(&self, message: String) {
        self.reloads_failed.inc();
        self.ended(false, message);
    }

    /// The reload that has just taken effect has not done so in all. `message` says what is missing.
    pub fn incomplete(&self, message: String) {
        self.ended(false, message);
    }

    /// The file holds again what is in effect.
    pub fn restored(&self) {
        self.ended(true, String::new());
    }

    fn ended(&self, successful: bool, message: String) {
        self.last_successful.set(i64::from(successful));
        self.last_at.set(unix_time());
        *lock(&self.last) = Some(LastReload { at: SystemTime::now(), successful, message });
    }

    /// Counts up with every configuration that took effect; 1 is the one of the start.
    pub fn generation(&self) -> i64 {
        self.generation.get()
    }

    /// When the running configuration took effect, to the second.
    pub fn applied_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.applied_at.get().unsigned_abs())
    }

    /// Reloads that were refused since the start.
    pub fn failed(&self) -> u64 {
        self.reloads_failed.get()
    }

    /// The last attempt to take over a changed file; `None` before the first.
    pub fn last_reload(&self) -> Option<LastReload> {
        lock(&self.last).clone()
    }
}

/// Seconds since 1970.
fn unix_time() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
