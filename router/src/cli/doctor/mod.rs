//! `atalho doctor`.

mod host;
mod instances;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use serde::Serialize;

use crate::{
    config::{self, Config},
    engine::{selftest, startup},
    kernel::{
        sockmap::{self, SockmapObject},
        splice::{self, Attachment, Drivers, Skipped, SpliceObject},
    },
};
use host::Finding;

/// Say which engines work on this host, and why not where not.
///
/// Each engine is proven by carrying real bytes over loopback and comparing them. Run it as the
/// user that will run the gateway: what counts is what that user may do. With --config, each
/// instance is asked for its health, and a health request is spliced to it as well, over the
/// interface that leads there.
///
/// Exits with 0 if at least one engine works, with --require NAME that one (for splice, to each
/// instance), and with --config each instance answers; else with 1.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Fail unless this engine works.
    #[arg(long, value_name = "ENGINE", value_parser = ["userspace", "sockmap", "splice", "xdp"])]
    require: Option<String>,
    /// Ask the instances of this configuration as well.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// All that was found.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Whether nothing is wrong that was asked about.
    ok: bool,
    engines: Vec<Finding>,
    host: Vec<Finding>,
    /// Interfaces that splice uses, or why it does not.
    interfaces: Vec<Finding>,
    /// Whether the instances answer.
    instances: Vec<Finding>,
    /// Whether requests to them can be spliced.
    spliced: Vec<Finding>,
}

pub(super) fn doctor(options: &Options) -> anyhow::Result<ExitCode> {
    let config = options.config.as_deref().map(config::load).transpose()?;
    let mut report = Report { host: host::findings(), ..Report::default() };
    if let Some(config) = &config {
        report.instances = instances::asked(config)?;
    }
    let [splice, xdp] = splice(config.as_ref(), &mut report);
    report.engines = vec![userspace(), sockmap(), splice, xdp];
    report.ok = report.is_ok(options.require.as_deref());
    super::print(&match options.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.text(),
    })?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn engine(name: &'static str, result: Result<String, String>) -> Finding {
    let good = result.is_ok();
    let (Ok(said) | Err(said)) = result;
    Finding { good, name: name.into(), said }
}

fn userspace() -> Finding {
    engine("userspace", selftest::userspace().map(carried).map_err(|error| error.to_string()))
}

fn sockmap() -> Finding {
    let loaded =
        SockmapObject::load(&sockmap::Options::default()).map_err(|error| error.to_string());
    let result = loaded
        .and_then(|kernel| selftest::sockmap(&kernel).map_err(|error| error.to_string()))
        .map(carried);
    engine("sockmap", result)
}

/// The engine, and its program in drivers, which is put on none of them here. Adds what is to be said of
/// interfaces and instances.
fn splice(config: Option<&Config>, report: &mut Report) -> [Finding; 2] {
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
        report.interfaces = interfaces(&programs);
        let took = selftest::splice(&programs).map_err(|error| error.to_string())?;
        if let Some(config) = config {
            report.spliced = instances::spliced(config, &programs);
        }
        if programs.loses_local_resets() {
            let said = startup::LOCAL_FIREWALL.to_owned();
            report.interfaces.push(Finding { good: false, name: "lo".into(), said });
        }
        programs.end_self_tests().map_err(|error| error.to_string())?;
        Ok(match &*programs.attached() {
            [] => format!("{}; on no interface", carried(took)),
            names => format!("{}; on {}", carried(took), names.join(", ")),
        })
    });
    [engine("splice", result), engine("xdp", xdp)]
}

/// Which interfaces have the programs and which have not, and why.
fn interfaces(programs: &SpliceObject) -> Vec<Finding> {
    let how = match programs.attachment() {
        Attachment::Tcx => "TCX",
        Attachment::Clsact => "clsact",
    };
    let mut found = Vec::new();
    for (name, why) in programs.chosen() {
        let said = format!("has the programs ({how}): {why}");
        found.push(Finding { good: true, name: name.into(), said });
    }
    for (name, good, said) in programs.drivers() {
        found.push(Finding { good, name: name.into(), said });
    }
    for Skipped { name, why, wanted } in programs.skipped() {
        let said = format!("left out: {why}");
        found.push(Finding { good: wanted, name: name.into(), said });
    }
    for pattern in programs.unmatched() {
        let said = "engine.interfaces names it, and no interface is called so".to_owned();
        found.push(Finding { good: false, name: pattern.into(), said });
    }
    found
}

fn carried(took: Duration) -> String {
    format!("carried test bodies over loopback unchanged, in {:.1} ms", took.as_secs_f64() * 1e3)
}

impl Report {
    fn is_ok(&self, required: Option<&str>) -> bool {
        let good = |found: &Finding| found.good;
        let works =
            |engine: &Finding| engine.good && required.is_none_or(|name| engine.name == name);
        let splice = required != Some("splice") || self.spliced.iter().all(good);
        self.engines.iter().any(works) && self.instances.iter().all(good) && splice
    }

    fn text(&self) -> String {
        let parts = [
            ("engines", &self.engines),
            ("host", &self.host),
            ("splice, by interface", &self.interfaces),
            ("instances", &self.instances),
            ("splice, by instance", &self.spliced),
        ];
        let mut out = String::new();
        for (title, findings) in parts.iter().filter(|(_, findings)| !findings.is_empty()) {
            out += title;
            out.push('\n');
            out += &findings.iter().map(line).collect::<String>();
        }
        out
    }
}

fn line(finding: &Finding) -> String {
    let good = if finding.good { "ok" } else { "no" };
    format!("  {good}  {:<21} {}\n", finding.name, finding.said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, good: bool) -> Finding {
        Finding { good, name: name.into(), said: String::new() }
    }

    #[test]
    fn one_engine_is_enough_and_each_instance_must_answer() {
        let engines = vec![found("userspace", true), found("splice", false)];
        let report = Report { engines, ..Report::default() };
        assert!(report.is_ok(None) && report.is_ok(Some("userspace")));
        assert!(!report.is_ok(Some("splice")));
        let dead = Report { instances: vec![found("a", true), found("b", false)], ..report };
        assert!(!dead.is_ok(None));
    }

    #[test]
    fn who_requires_splice_requires_it_to_each_instance() {
        let engines = vec![found("userspace", true), found("splice", true)];
        let spliced = vec![found("a", false)];
        let report = Report { engines, spliced, ..Report::default() };
        assert!(report.is_ok(None), "it is relayed in user space then");
        assert!(!report.is_ok(Some("splice")));
    }
}
