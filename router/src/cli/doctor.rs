//! `atalho doctor`.

use std::{net::ToSocketAddrs, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;

use super::host::{self, Finding};
use crate::{
    config::{self, Config},
    engine::selftest,
    kernel::{
        sockmap::{self, SockmapObject},
        splice::{self, Attachment, Drivers, Skipped, SpliceObject},
    },
};

/// Say which engines work on this host, and why not where not.
///
/// Each engine is proven by carrying real bytes over loopback and comparing them. Run it as the
/// user that will run the gateway: what counts is what that user may do. With --config, a health
/// request to each instance is spliced as well, over the interface that leads there.
///
/// Exits with 0 if at least one engine works; with --require NAME, only if that one does.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Fail unless this engine works.
    #[arg(long, value_name = "ENGINE", value_parser = ["userspace", "sockmap", "splice", "xdp"])]
    require: Option<String>,
    /// Splice a health request to each instance of this configuration as well, over the real
    /// interfaces.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What came of trying an engine.
struct Tried {
    name: &'static str,
    result: Result<String, String>,
}

pub(super) fn doctor(options: &Options) -> anyhow::Result<ExitCode> {
    let config = options.config.as_deref().map(config::load).transpose()?;
    let mut paths = Vec::new();
    let [splice, xdp] = splice(config.as_ref(), &mut paths);
    let engines = [userspace(), sockmap(), splice, xdp];
    let mut report = report(&engines, &host::findings());
    if !paths.is_empty() {
        report += "splice, by interface and instance\n";
        report += &paths.iter().map(line).collect::<String>();
    }
    super::print(&report)?;
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
    let loaded =
        SockmapObject::load(&sockmap::Options::default()).map_err(|error| error.to_string());
    let result = loaded
        .and_then(|kernel| selftest::sockmap(&kernel).map_err(|error| error.to_string()))
        .map(carried);
    Tried { name: "sockmap", result }
}

/// The engine, and its program in drivers, which is put on none of them here. Adds what is to be said of
/// interfaces and instances to `paths`.
fn splice(config: Option<&Config>, paths: &mut Vec<Finding>) -> [Tried; 2] {
    let selection = config.map(|config| splice::Selection {
        only: config.engine.interfaces.clone(),
        except: config.engine.except_interfaces.clone(),
    });
    let options = splice::Options {
        xdp: Drivers::All,
        selection: selection.unwrap_or_default(),
        ..splice::Options::default()
    };
    let loaded = SpliceObject::load(&options).map_err(|error| error.to_string());
    let xdp = loaded.as_ref().map_err(String::clone).and_then(|programs| {
        programs.has_xdp()?;
        let took = selftest::splice_xdp(programs).map_err(|error| error.to_string())?;
        Ok(format!("forwarded test frames, in {:.1} ms", took.as_secs_f64() * 1e3))
    });
    let result = loaded.and_then(|programs| {
        let how = match programs.attachment() {
            Attachment::Tcx => "TCX",
            Attachment::Clsact => "clsact",
        };
        for (name, why) in programs.chosen() {
            let said = format!("has the programs ({how}): {why}");
            paths.push(Finding { good: true, name: name.into(), said });
        }
        for (name, good, said) in programs.drivers() {
            paths.push(Finding { good, name: name.into(), said });
        }
        for Skipped { name, why, wanted } in programs.skipped() {
            paths.push(Finding {
                good: wanted,
                name: name.into(),
                said: format!("left out: {why}"),
            });
        }
        for pattern in programs.unmatched() {
            let said = "engine.interfaces names it, and no interface is called so".to_owned();
            paths.push(Finding { good: false, name: pattern.into(), said });
        }
        let took = selftest::splice(&programs).map_err(|error| error.to_string())?;
        paths.extend(config.into_iter().flat_map(|config| instances(config, &programs)));
        programs.end_self_tests().map_err(|error| error.to_string())?;
        Ok(match &*programs.attached() {
            [] => format!("{}; on no interface", carried(took)),
            names => format!("{}; on {}", carried(took), names.join(", ")),
        })
    });
    [Tried { name: "splice", result }, Tried { name: "xdp", result: xdp }]
}

/// Splices a request to each instance.
fn instances(config: &Config, programs: &Arc<SpliceObject>) -> Vec<Finding> {
    let variants = config.endpoints.iter().flat_map(|endpoint| &endpoint.variants);
    let mut found = Vec::new();
    for instance in variants.flat_map(|variant| &variant.instances) {
        let name = instance.url.as_str();
        if found.iter().any(|known: &Finding| known.name == name) {
            continue;
        }
        let authority = instance.url.authority();
        let request = format!("GET {} HTTP/1.1\r\nHost: {authority}\r\n\r\n", config.health.path);
        let address = authority.to_socket_addrs().map(|mut all| all.next());
        let spliced = match address {
            Ok(Some(address)) => {
                selftest::splice_to(programs, address, &request).map_err(|error| error.to_string())
            }
            Ok(None) => Err("the host name has no address".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let (good, said) = match spliced {
            Ok((status, interface)) => {
                (true, format!("spliced a request over {interface}; it answered {status}"))
            }
            Err(error) => (false, error),
        };
        found.push(Finding { good, name: name.to_owned().into(), said });
    }
    found
}

fn carried(took: Duration) -> String {
    format!("carried test bodies over loopback unchanged, in {:.1} ms", took.as_secs_f64() * 1e3)
}

fn report(engines: &[Tried], host: &[Finding]) -> String {
    let mut out = String::from("engines\n");
    for engine in engines {
        let (Ok(said) | Err(said)) = engine.result.clone();
        let (good, name) = (engine.result.is_ok(), engine.name.into());
        out += &line(&Finding { good, name, said });
    }
    out += "host\n";
    out += &host.iter().map(line).collect::<String>();
    out
}

fn line(finding: &Finding) -> String {
    let good = if finding.good { "ok" } else { "no" };
    format!("  {good}  {:<21} {}\n", finding.name, finding.said)
}
