//! `atalho check`.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;

use crate::{
    config::{self, Config},
    fleet::{Counters, Fleet},
    metrics::Metrics,
};

/// Check a configuration file; nothing is started or changed.
///
/// Prints what the file describes and what is unusual about it, or would not work on this host, and
/// exits with 0; or prints every mistake with its line, and exits with 1.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// The file (TOML); `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn check(options: &Options) -> anyhow::Result<ExitCode> {
    let (name, config) = if options.file.as_os_str() == "-" {
        let config =
            config::standard_input().and_then(|text| config::parse(config::STANDARD_INPUT, &text));
        (config::STANDARD_INPUT.to_owned(), config)
    } else {
        (options.file.display().to_string(), config::load(&options.file))
    };
    let config = match config {
        Ok(config) => Arc::new(config),
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    // As many instances as a gateway could count.
    Fleet::build(&config, None, &Counters::heap(u32::from(u16::MAX)), &Metrics::new())?;
    super::print(&report(&name, &config))?;
    Ok(ExitCode::SUCCESS)
}

fn report(file: &str, config: &Config) -> String {
    let mut out = format!("{file}: good\n");
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    let admin = config.admin.map_or("off".into(), |address| address.to_string());
    let _ = writeln!(out, "listens on {}; admin pages: {admin}", listen.join(", "));
    for endpoint in &config.endpoints {
        for variant in &endpoint.variants {
            let _ = writeln!(
                out,
                "{}/{}: {}, prefix length {}, concurrency threshold {}, {}",
                endpoint.name,
                variant.name,
                variant.strategy,
                variant.prefix_length,
                variant.concurrency_threshold,
                super::counted(variant.instances.len(), "instance"),
            );
        }
    }
    for note in notes(config) {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// What is allowed and often not meant.
fn notes(config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    if config.endpoints.is_empty() {
        notes.push("there is no endpoint: every request will be answered with 404".into());
    }
    for endpoint in &config.endpoints {
        for variant in &endpoint.variants {
            let place = format!("{}/{}", endpoint.name, variant.name);
            let serving = variant.instances.iter().filter(|instance| !instance.drain).count();
            if serving == 0 {
                notes.push(format!("{place} has no instance that takes requests"));
            } else if serving == 1 && variant.strategy == crate::config::Strategy::PrefixAware {
                notes
                    .push(format!("{place} has one instance: there is nothing to route by prefix"));
            }
        }
    }
    for interface in &config.guard.interfaces {
        // An interface of another host may be meant.
        if !Path::new("/sys/class/net").join(interface).exists() {
            notes.push(format!(
                "this host has no interface `{interface}` (`guard.interfaces`): a gateway would \
                 refuse to start here"
            ));
        }
    }
    if let Some(admin) = config.admin.filter(|address| !address.ip().is_loopback()) {
        notes.push(format!(
            "the admin pages on {admin} have no authentication and are open beyond this host"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_unusual() {
        let text = "admin = \"0.0.0.0:9901\"\n[[endpoint]]\nname = \"a\"\n\
                    [[endpoint.variant]]\nname = \"v\"\n\
                    [[endpoint.variant.instance]]\nurl = \"http://10.0.0.1:8000\"\n";
        let config = config::parse("f.toml", text).expect("a valid configuration");
        let report = report("f.toml", &config);
        assert!(report.contains("a/v: prefix-aware, prefix length 4096"), "{report}");
        assert!(report.contains("threshold 10, 1 instance\n"), "{report}");
        assert!(report.contains("note: a/v has one instance"), "{report}");
        assert!(report.contains("note: the admin pages on 0.0.0.0:9901"), "{report}");
        assert!(!report.contains("interface"), "{report}");
        let text = format!("{text}[guard]\ninterfaces = [\"lo\", \"nothing0\"]\n");
        let config = config::parse("f.toml", &text).expect("a valid configuration");
        let report = super::report("f.toml", &config);
        assert!(report.contains("note: this host has no interface `nothing0`"), "{report}");
        assert!(!report.contains("interface `lo`"), "{report}");
    }
}
