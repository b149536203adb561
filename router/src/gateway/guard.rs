//! The packet filter in front of the listeners, where the configuration asks for one.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use router_ebpf::guard_rules::Limit;

use crate::{
    config::{Config, GuardMode},
    kernel::guard::{Guard, Mode, Rules},
    metrics::Metrics,
};

/// The guard, shared with the metrics page.
pub(super) struct Guarded(Option<Arc<Mutex<Guard>>>);

impl Guarded {
    /// Loads the guard, if the configuration asks for one. It is on no interface yet.
    ///
    /// # Errors
    /// When the kernel refuses it: who asked for a filter must not be served without it.
    pub(super) fn load(
        config: &Config,
        listeners: &[SocketAddr],
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        if config.guard.interfaces.is_empty() {
            return Ok(Self(None));
        }
        let guard = Guard::load(listeners, &rules(config));
        let guard = guard.context("cannot start the guard of `[guard]`")?;
        let guard = Arc::new(Mutex::new(guard));
        let counted = Arc::downgrade(&guard);
        metrics.on_render(move |metrics| {
            let Some(guard) = counted.upgrade() else { return };
            let counters = guard.lock().unwrap_or_else(PoisonError::into_inner).counters();
            match counters {
                Ok(counters) => {
                    for (rule, packets) in counters.by_rule() {
                        metrics.guard_packets(rule, packets);
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot read the guard's counters"),
            }
        });
        Ok(Self(Some(guard)))
    }

    /// Puts it on the configured interfaces, if any. `next` is the XDP program that sees what the guard lets
    /// through.
    ///
    /// # Errors
    /// When it cannot be put there.
    pub(super) fn attach(
        &self,
        config: &Config,
        next: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        let Some(guard) = &self.0 else { return Ok(()) };
        let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard
            .attach(&config.guard.interfaces, mode(config.guard.mode))
            .context("cannot start the guard of `[guard]`")?;
        for attached in guard.attached() {
            tracing::info!(
                interface = attached.interface,
                mode = attached.mode.as_str(),
                not_native = attached.fallback,
                "guarding the listeners' ports"
            );
        }
        if let Some(next) = next {
            match guard.go_on_with(next) {
                Ok(()) => tracing::info!("splicing behind the guard, in the driver"),
                Err(error) => tracing::warn!(%error, "splicing without XDP behind the guard"),
            }
        }
        Ok(())
    }

    /// Takes over the rules of a new configuration.
    ///
    /// # Errors
    /// When the kernel refuses them; the old ones stay.
    pub(super) fn replace(&self, config: &Config) -> anyhow::Result<()> {
        let Some(guard) = &self.0 else { return Ok(()) };
        let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.replace(&rules(config)).context("the guard keeps its rules")
    }
}

const fn mode(mode: GuardMode) -> Mode {
    match mode {
        GuardMode::Auto => Mode::Auto,
        GuardMode::Native => Mode::Native,
        GuardMode::Generic => Mode::Generic,
    }
}

fn rules(config: &Config) -> Rules {
    let guard = &config.guard;
    // A rate of zero stands for no limit. A burst below one would admit nobody.
    let limit = NonZeroU32::new(guard.new_connections_per_second)
        .map(|rate| Limit { rate, burst: NonZeroU32::new(guard.burst).unwrap_or(NonZeroU32::MIN) });
    Rules { allow: guard.allow.clone(), deny: guard.deny.clone(), limit }
}
