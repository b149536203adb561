//! Which engines this process can use, found out once at the start.

use std::sync::Arc;

use anyhow::bail;

use super::{Loaded, selftest};
use crate::{
    config::{Config, EngineMode, XdpMode},
    kernel::{
        LoadError,
        sockmap::{self, SockmapObject},
        splice::{self, Attachment, Drivers, Selection, SpliceObject},
    },
    metrics::Metrics,
};

/// Loads the kernel programs and proves them, where the configuration asks for them.
///
/// # Errors
/// When the configuration insists on an engine that does not work here.
pub fn kernel(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Loaded>> {
    metrics.engine("userspace").available(Ok(()));
    let mode = config.engine.mode;
    let sockmap = (mode == EngineMode::Sockmap).then(self::sockmap);
    let splice = matches!(mode, EngineMode::Auto | EngineMode::Splice)
        .then(|| self::splice(config, metrics));
    let mut works = None;
    for (name, tried) in [("sockmap", sockmap), ("splice", splice)] {
        let metrics = metrics.engine(name);
        metrics.expect_fallbacks(super::outcome::fallbacks());
        let (reason, message) = match tried {
            None => {
                metrics.available(Err("disabled"));
                continue;
            }
            Some(Ok(loaded)) => {
                metrics.available(Ok(()));
                works = Some(loaded);
                continue;
            }
            Some(Err(failed)) => failed,
        };
        metrics.available(Err(reason));
        if mode != EngineMode::Auto {
            bail!(
                "the {name} engine does not work here: {message}. Use `--engine auto` to relay in \
                 user space instead; `atalho doctor` says more."
            );
        }
        tracing::warn!(
            reason = %message,
            "relaying in user space: the {name} engine does not work here"
        );
    }
    Ok(works)
}

/// An engine that works, or why it does not: for metrics, and for people.
type Tried = Result<Loaded, (&'static str, String)>;

fn sockmap() -> Tried {
    let object = SockmapObject::load(&sockmap::Options::default()).map_err(refused)?;
    let took = selftest::sockmap(&object).map_err(failed)?;
    tracing::debug!(?took, "the sockmap engine passed its self-test");
    Ok(Loaded::Sockmap(object))
}

fn splice(config: &Config, metrics: &Metrics) -> Tried {
    let guarded = config.guard.interfaces.clone();
    let options = splice::Options {
        xdp: match config.engine.xdp {
            XdpMode::Auto => Drivers::Measured,
            XdpMode::On => Drivers::All,
            XdpMode::Off => Drivers::None,
        },
        guarded,
        selection: Selection {
            only: config.engine.interfaces.clone(),
            except: config.engine.except_interfaces.clone(),
        },
        attachment: attachment(),
        ..splice::Options::default()
    };
    let programs = SpliceObject::load(&options).map_err(refused)?;
    let took = selftest::splice(&programs).map_err(failed)?;
    tracing::debug!(?took, "the splice engine passed its self-test");
    if programs.loses_local_resets() {
        tracing::warn!("{LOCAL_FIREWALL}");
    }
    metrics.engine("xdp").available(xdp(&programs));
    if let Err(error) = programs.end_self_tests() {
        tracing::warn!(%error, "loopback keeps the programs that the self-test needed");
    }
    super::splice::log_interfaces(&programs);
    let counted = Arc::downgrade(&programs);
    metrics.on_render(move |metrics| {
        if let Some(programs) = counted.upgrade() {
            metrics.xdp_packets(programs.forwarded_by_xdp());
            let (native, fallback) = programs.xdp_interfaces();
            metrics.xdp_interfaces(native, fallback);
        }
    });
    Ok(Loaded::Splice(programs))
}

/// What a firewall does to peers on this host, for people.
pub const LOCAL_FIREWALL: &str = "peers on this host are left to user space: a firewall rule such as `ct state \
                                  invalid drop`, for packets that leave, keeps resets from them";

/// Splices in drivers as well, where that is asked for and passes its self-test. An error is a name for
/// metrics.
fn xdp(programs: &Arc<SpliceObject>) -> Result<(), &'static str> {
    let (reason, why) = match programs.has_xdp() {
        Ok(false) => return Err("disabled"),
        Err(why) => ("refused", why.to_owned()),
        Ok(true) => match selftest::splice_xdp(programs) {
            Ok(took) => {
                tracing::debug!(?took, "splicing in drivers passed its self-test");
                super::splice::log_drivers(programs.start_xdp());
                return Ok(());
            }
            Err(failure) => ("self_test_failed", failure.to_string()),
        },
    };
    tracing::warn!(reason = %why, "splicing without XDP: it does not work here");
    Err(reason)
}

/// Has the splice engine's programs attached as kernels before Linux 6.6 do, for tests.
const FILTERS: &str = "ATALHO_TC_FILTERS";

fn attachment() -> Option<Attachment> {
    std::env::var_os(FILTERS).map(|_| Attachment::Clsact)
}

fn refused(error: LoadError) -> (&'static str, String) {
    (slug(&error), error.to_string())
}

fn failed(error: selftest::Failure) -> (&'static str, String) {
    ("self_test_failed", error.to_string())
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
