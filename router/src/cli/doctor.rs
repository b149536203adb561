//! `atalho doctor`.

use std::{fmt::Write, process::ExitCode};

use clap::Args;

use super::host::{self, Finding};
use crate::kernel::{Kernel, Options as KernelOptions};

/// Say which engines work on this host, and why not where not.
///
/// Each engine is proven by carrying real bytes over loopback and comparing them. Run it as the
/// user that will run the gateway: what counts is what that user may do.
///
/// Exits with 0 if at least one engine works; with --require NAME, only if that one does.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Fail unless this engine works.
    #[arg(long, value_name = "ENGINE", value_parser = ["userspace", "sockmap"])]
    require: Option<String>,
}

/// What came of trying an engine.
struct Tried {
    name: &'static str,
    result: Result<String, String>,
}

pub(super) fn doctor(options: &Options) -> anyhow::Result<ExitCode> {
    let engines = [userspace(), sockmap()];
    super::print(&report(&engines, &host::findings()))?;
    let works = |engine: &Tried| {
        engine.result.is_ok() && options.require.as_deref().is_none_or(|name| name == engine.name)
    };
    Ok(if engines.iter().any(works) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn userspace() -> Tried {
    Tried { name: "userspace", result: Ok("works everywhere".into()) }
}

fn sockmap() -> Tried {
    let result = match Kernel::load(&KernelOptions::default()) {
        Ok(_) => Ok("the kernel programs load".into()),
        Err(error) => Err(error.to_string()),
    };
    Tried { name: "sockmap", result }
}

fn report(engines: &[Tried], host: &[Finding]) -> String {
    let mut out = String::from("engines\n");
    let mut line = |good: bool, name: &str, said: &str| {
        let _ = writeln!(out, "  {}  {name:<21} {said}", if good { "ok" } else { "no" });
    };
    for engine in engines {
        match &engine.result {
            Ok(said) => line(true, engine.name, said),
            Err(why) => line(false, engine.name, why),
        }
    }
    out.push_str("host\n");
    let mut line = |good: bool, name: &str, said: &str| {
        let _ = writeln!(out, "  {}  {name:<21} {said}", if good { "ok" } else { "no" });
    };
    for finding in host {
        line(finding.good, finding.name, &finding.said);
    }
    out
}
