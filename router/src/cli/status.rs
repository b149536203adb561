//! `atalho status`.

use std::{
    fmt::Write,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use clap::Args;

use super::fleet_flags::{AddressOrOff, address_or_off};
use crate::{
    admin::{
        moment::Time,
        status::{InstanceStatus, Status},
    },
    config,
    fleet::probe::{self, Get},
};

/// The address of a gateway without a word about it.
const DEFAULT: &str = "127.0.0.1:9901";
/// For connecting and reading the page.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// A fleet of ten thousand instances fits.
const SIZE_LIMIT: usize = 16 << 20;

/// Say how a running gateway and its fleet are, and what is wrong with whom, since when and why.
///
/// Reads the page /status of the gateway's admin address: that of --admin, or of the configuration
/// file, or 127.0.0.1:9901.
///
/// Exits with 0 if the gateway can serve clients and nothing is wrong, and with 1 otherwise: an
/// instance is down, ejected or unresolved, the last reload was refused, or the gateway is draining
/// or cannot be reached.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// The gateway's admin address. [default: 127.0.0.1:9901]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ATALHO_ADMIN",
        value_parser = address_or_off,
        conflicts_with = "config"
    )]
    admin: Option<AddressOrOff>,
    /// The gateway's configuration file, to read the admin address from.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the page as it is, in JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn status(options: &Options) -> anyhow::Result<ExitCode> {
    let address = address(options)?;
    let page = read(address)?;
    let status: Status = serde_json::from_slice(&page)
        .with_context(|| format!("what {address} shows on /status is not from this version"))?;
    if options.json {
        super::print(&String::from_utf8_lossy(&page))?;
    } else {
        super::print(&report(&status, SystemTime::now()))?;
    }
    Ok(if wrong(&status) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn address(options: &Options) -> anyhow::Result<SocketAddr> {
    let configured = match (&options.config, options.admin) {
        (Some(file), _) => config::load(file)?.admin,
        (None, Some(AddressOrOff(address))) => address,
        (None, None) => return Ok(DEFAULT.parse()?),
    };
    configured.context("the admin pages are off (`admin = \"off\"`): there is nothing to ask")
}

fn read(address: SocketAddr) -> anyhow::Result<Vec<u8>> {
    let authority = address.to_string();
    let request = Get {
        authority: &authority,
        path: "/status",
        headers: &[],
        time_limit: TIME_LIMIT,
        size_limit: SIZE_LIMIT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(probe::get(&[address], &request)).with_context(|| {
        format!("cannot ask {address}: is the gateway running, and is this its `admin` address?")
    })?;
    if answer.status != 200 {
        bail!("{address} answers /status with {}: it is no gateway's admin address", answer.status);
    }
    Ok(answer.body)
}

/// Whether anything needs somebody's attention. What is draining was told to.
fn wrong(status: &Status) -> bool {
    let refused = status.config.last_reload.as_ref().is_some_and(|last| !last.successful);
    !status.ready || refused || instances(status).any(ill)
}

fn instances(status: &Status) -> impl Iterator<Item = &InstanceStatus> {
    status.endpoints.iter().flat_map(|endpoint| {
        let variants = endpoint.variants.iter().flat_map(|variant| &variant.instances);
        variants.chain(endpoint.components.iter().flat_map(|component| &component.copies))
    })
}

fn ill(instance: &InstanceStatus) -> bool {
    !instance.available && instance.status != "draining"
}

fn report(status: &Status, now: SystemTime) -> String {
    let mut out = String::new();
    let ready = match &status.not_ready {
        Some(why) => format!("not ready ({why})"),
        None => "ready".to_owned(),
    };
    // Writing to memory cannot fail.
    let _ = writeln!(
        out,
        "gateway {}, {ready}; {} client connections",
        status.version, status.client_connections
    );
    configuration(&mut out, &status.config, now);
    let engines = status.engines.iter().map(|engine| format!("{} {}", engine.name, engine.reason));
    let _ = writeln!(out, "engines: {}", engines.collect::<Vec<_>>().join(", "));
    for endpoint in &status.endpoints {
        for variant in &endpoint.variants {
            let able = variant.instances.iter().filter(|instance| instance.available).count();
            let _ = writeln!(
                out,
                "{}/{}: {able} of {} can serve, {}",
                endpoint.name,
                variant.name,
                super::counted(variant.instances.len(), "instance"),
                variant.strategy,
            );
            list(&mut out, &variant.instances, now);
        }
        for component in &endpoint.components {
            let able = component.copies.iter().filter(|copy| copy.available).count();
            let _ = writeln!(
                out,
                "{}/{} component {}: {able} of {} copies can serve",
                endpoint.name,
                component.variant,
                component.name,
                component.copies.len(),
            );
            list(&mut out, &component.copies, now);
        }
    }
    if !status.leaving.is_empty() {
        out += "no longer configured, serving their last requests\n";
        list(&mut out, &status.leaving, now);
    }
    out
}

fn configuration(out: &mut String, config: &crate::admin::status::Config, now: SystemTime) {
    let since = age(config.applied_at, now);
    let _ = writeln!(out, "configuration: number {}, for {since}", config.generation);
    let Some(last) = &config.last_reload else { return };
    if !last.successful {
        let _ = writeln!(out, "  the last change, {} ago, is not in effect", age(last.at, now));
    }
    for message in &last.messages {
        let _ = writeln!(out, "  {message}");
    }
}

fn list(out: &mut String, instances: &[InstanceStatus], now: SystemTime) {
    let width = instances.iter().map(|instance| instance.url.len()).max().unwrap_or(0);
    for instance in instances {
        let InstanceStatus { status, url, in_flight, .. } = instance;
        let since = age(instance.since, now);
        let _ = write!(out, "  {status:<10}  {url:<width$}  {in_flight} in flight, for {since}");
        if let Some(until) = instance.ejected_until {
            let _ = write!(out, " and {} more", left(until, now));
        }
        if let Some(why) = &instance.why {
            let _ = write!(out, ": {why}");
        }
        out.push('\n');
    }
}

/// How long ago, in the two largest units.
fn age(then: Time, now: SystemTime) -> String {
    duration(now.duration_since(then.0).unwrap_or_default())
}

/// How long it takes until then.
fn left(then: Time, now: SystemTime) -> String {
    duration(then.0.duration_since(now).unwrap_or_default())
}

fn duration(time: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{
        "version": "1.2.3", "phase": "running", "ready": true,
        "config": {"generation": 3, "applied_at": "2025-01-01T00:00:00Z", "refused": 1},
        "client_connections": 7,
        "engines": [{"name": "splice", "available": false, "reason": "no_permission"},
                    {"name": "userspace", "available": true, "reason": "ok"}],
        "endpoints": [{"name": "chat", "variants": [{
            "name": "main", "weight": 1.0, "strategy": "prefix-aware", "prefix_length": 4096,
            "concurrency_threshold": 10, "instances": [
                {"url": "http://10.0.0.1:8000", "status": "up", "available": true,
                 "since": "2025-01-01T00:00:00Z", "in_flight": 4, "weight": 1.0, "addresses": []},
                {"url": "http://gpu:80", "status": "draining", "available": false,
                 "since": "2025-01-01T00:00:00Z", "in_flight": 0, "weight": 1.0, "addresses": []}
            ]}]}],
        "leaving": []
    }"#;

    fn page() -> Status {
        serde_json::from_str(PAGE).expect("a status page")
    }

    fn at(seconds: u64) -> SystemTime {
        // 2025-01-01T00:00:00Z.
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600 + seconds)
    }

    #[test]
    fn a_well_fleet_is_told_in_a_few_lines() {
        let status = page();
        assert!(!wrong(&status), "draining is on purpose");
        assert_eq!(
            report(&status, at(2 * 3600 + 65)),
            "gateway 1.2.3, ready; 7 client connections\n\
             configuration: number 3, for 2h 1m\n\
             engines: splice no_permission, userspace ok\n\
             chat/main: 1 of 2 instances can serve, prefix-aware\n\
             \x20 up          http://10.0.0.1:8000  4 in flight, for 2h 1m\n\
             \x20 draining    http://gpu:80         0 in flight, for 2h 1m\n"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_since_and_why() {
        let mut status = page();
        let instance = &mut status.endpoints[0].variants[0].instances[0];
        (instance.status, instance.available) = ("ejected".into(), false);
        instance.why = Some("its requests fail: connection lost".into());
        instance.ejected_until = Some(Time(at(12)));
        assert!(wrong(&status));
        let text = report(&status, at(5));
        let line = text.lines().find(|line| line.contains("ejected")).expect("a line");
        assert!(line.ends_with("for 5s and 7s more: its requests fail: connection lost"), "{line}");

        let mut status = page();
        let messages = vec!["a.toml:3:8: threads: is no number".to_owned()];
        status.config.last_reload =
            Some(crate::admin::status::LastReload { at: Time(at(0)), successful: false, messages });
        assert!(wrong(&status));
        let text = report(&status, at(90));
        assert!(
            text.contains("the last change, 1m 30s ago, is not in effect\n  a.toml:3"),
            "{text}"
        );

        let mut status = page();
        (status.ready, status.not_ready) = (false, Some("draining".into()));
        assert!(wrong(&status) && report(&status, at(0)).contains("not ready (draining)"));
    }
}
