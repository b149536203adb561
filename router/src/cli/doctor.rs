//! `atalho doctor`.

use std::{process::ExitCode, time::Duration};

use clap::Args;

use super::host::{self, Finding};
use crate::{
    engine::selftest,
    kernel::{
        Kernel, Options as KernelOptions,
        splice::{self, Programs},
    },
};

/// Say which engines work on this host, and why not where not.
///
/// Each engine is proven by carrying real bytes over loopback and comparing them. Run it as the
/// user that will run the gateway: what counts is what that user may do.
///
/// Exits with 0 if at least one engine works; with --require NAME, only if that one does.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Fail unless this engine works.
    #[arg(long, value_name = "ENGINE", value_parser = ["userspace", "sockmap", "splice"])]
    require: Option<String>,
}

/// What came of trying an engine.
struct Tried {
    name: &'static str,
    result: Result<String, String>,
}

pub(super) fn doctor(options: &Options) -> anyhow::Result<ExitCode> {
    let engines = [userspace(), sockmap(), splice()];
    super::print(&report(&engines, &host::findings()))?;
    let works = |engine: &Tried| {
        engine.result.is_ok() && options.require.as_deref().is_none_or(|name| name == engine.name)
    };
    Ok(if engines.iter().any(works) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn userspace() -> Tried {
    let result = selftest::userspace().map(carried).map_err(|error| error.to_string());
    Tried { name: "userspace", result }
}

fn sockmap() -> Tried {
    let loaded = Kernel::load(&KernelOptions::default()).map_err(|error| error.to_string());
    let result = loaded
        .and_then(|kernel| selftest::sockmap(&kernel).map_err(|error| error.to_string()))
        .map(carried);
    Tried { name: "sockmap", result }
}

fn splice() -> Tried {
    let loaded = Programs::load(&splice::Options::default()).map_err(|error| error.to_string());
    let result = loaded.and_then(|programs| {
        let took = selftest::splice(&programs).map_err(|error| error.to_string())?;
        Ok(format!("{}; on {}", carried(took), programs.attached().join(", ")))
    });
    Tried { name: "splice", result }
}

fn carried(took: Duration) -> String {
    format!("carried test bodies over loopback unchanged, in {:.1} ms", took.as_secs_f64() * 1e3)
}

fn report(engines: &[Tried], host: &[Finding]) -> String {
    let line = |good: bool, name: &str, said: &str| {
        format!("  {}  {name:<21} {said}\n", if good { "ok" } else { "no" })
    };
    let mut out = String::from("engines\n");
    for engine in engines {
        let (Ok(said) | Err(said)) = &engine.result;
        out += &line(engine.result.is_ok(), engine.name, said);
    }
    out += "host\n";
    for finding in host {
        out += &line(finding.good, finding.name, &finding.said);
    }
    out
}
