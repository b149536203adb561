//! Which engines this process can use, found out once at the start.

use std::sync::Arc;

use anyhow::bail;

use super::selftest;
use crate::{
    config::{Config, EngineMode},
    kernel::{Kernel, LoadError, Options},
    metrics::Metrics,
};

/// Loads the kernel programs and proves them, where the configuration asks for them.
///
/// # Errors
/// When the configuration insists on an engine that does not work here.
pub fn kernel(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Arc<Kernel>>> {
    metrics.engine("userspace").available(Ok(()));
    let sockmap = metrics.engine("sockmap");
    if config.engine.mode == EngineMode::Userspace {
        sockmap.available(Err("disabled"));
        return Ok(None);
    }
    let (reason, message) = match Kernel::load(&Options::default()) {
        Ok(kernel) => match selftest::sockmap(&kernel) {
            Ok(took) => {
                tracing::debug!(?took, "the sockmap engine passed its self-test");
                sockmap.available(Ok(()));
                return Ok(Some(kernel));
            }
            Err(error) => ("self_test_failed", error.to_string()),
        },
        Err(error) => (slug(&error), error.to_string()),
    };
    sockmap.available(Err(reason));
    if config.engine.mode == EngineMode::Sockmap {
        bail!(
            "the sockmap engine does not work here: {message}. Use `--engine auto` to relay in \
             user space instead; `atalho doctor` says more."
        );
    }
    tracing::warn!(reason = %message, "relaying in user space: the sockmap engine does not work here");
    Ok(None)
}

/// The name of a reason in metrics.
const fn slug(error: &LoadError) -> &'static str {
    match error {
        LoadError::NotBuilt => "not_built",
        LoadError::TooOld(_) => "kernel_too_old",
        LoadError::NoTypes(_) => "no_kernel_types",
        LoadError::Permission(_) => "no_permission",
        LoadError::Refused { .. } => "refused",
    }
}
