//! From TOML text to a [`Config`]: every value is checked, and every error is reported, not only
//! the first.

use std::{net::SocketAddr, num::NonZeroU32, path::Path};

use ipnet::IpNet;

use super::{
    Config, ConfigError, EndpointConfig, Engine, EngineMode, Guard, GuardMode, Health,
    InstanceConfig, Limits, Log, LogFormat, LogLevel, Pool, Scrape, Timeouts, VariantConfig,
    XdpMode,
    section::{Document, Section},
    value::duration_text,
};
use crate::fleet::{InstanceUrl, Strategy};

/// Reads the configuration file at `path`.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(&path.display().to_string(), &text(path)?)
}

/// The text of the file at `path`.
pub(super) fn text(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path)
        .map_err(|error| ConfigError::of_file(path, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::of_file(path, format!("is not UTF-8 at byte {at}: save it as UTF-8"))
    })
}

/// Reads a configuration from `text`; `source_name` is named in errors.
///
/// # Errors
/// When anything in it is wrong.
pub fn parse(source_name: &str, text: &str) -> Result<Config, ConfigError> {
    let document = Document::parse(text);
    let config = read(&document);
    if !document.root().has("endpoint") {
        document.issue(
            None,
            "endpoint",
            "there is none: add an [[endpoint]] with an [[endpoint.variant]] and its \
             [[endpoint.variant.instance]] entries",
        );
    }
    document.finish(source_name).map(|()| config)
}

impl Default for Config {
    fn default() -> Self {
        let document = Document::parse("");
        let config = read(&document);
        document.finish("defaults").expect("the defaults of the table are within its ranges");
        config
    }
}

fn read(document: &Document<'_>) -> Config {
    let root = document.root();
    let config = Config {
        listen: addresses(&root),
        admin: root.value("admin", |value| match value.text()? {
            "off" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!("`{text}` is no address with a port: write \"127.0.0.1:9901\" or \"off\"")
            }),
        }),
        threads: root.integer("threads"),
        response_headers: root.bool("response_headers"),
        half_closed_clients: root.bool("half_closed_clients"),
        access_log: root.bool("access_log"),
        engine: root.table("engine", engine),
        limits: root.table("limits", |s| Limits {
            head_bytes: s.size("head_bytes"),
            headers: s.integer("headers"),
            body_bytes: s.size("body_bytes"),
            decision_bytes: s.size("decision_bytes"),
        }),
        timeouts: root.table("timeouts", |s| Timeouts {
            head: s.duration("head"),
            body_idle: s.duration("body_idle"),
            connect: s.duration("connect"),
            first_byte: s.duration("first_byte"),
            stream_idle: s.duration("stream_idle"),
            client_idle: s.duration("client_idle"),
            pool_idle: s.duration("pool_idle"),
            drain: s.duration("drain"),
        }),
        pool: root
            .table("pool", |s| Pool { max_idle_per_instance: s.integer("max_idle_per_instance") }),
        health: root.table("health", health),
        scrape: root.table("scrape", |s| Scrape {
            interval: s.duration("interval"),
            path: path(s, "path"),
        }),
        log: root.table("log", |s| Log {
            format: s.choice("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
            level: s.choice(
                "level",
                &[
                    LogLevel::Error,
                    LogLevel::Warn,
                    LogLevel::Info,
                    LogLevel::Debug,
                    LogLevel::Trace,
                ]
                .map(|level| (level.as_str(), level)),
            ),
        }),
        guard: root.table("guard", guard),
        endpoints: root.list("endpoint", endpoint),
    };
    root.unique("endpoint", "name", |name| Some(name.to_owned()));
    root.finish();
    config
}

fn engine(s: &Section<'_, '_>) -> Engine {
    let modes = [EngineMode::Auto, EngineMode::Sockmap, EngineMode::Splice, EngineMode::Userspace];
    Engine {
        mode: s.choice("mode", &modes.map(|mode| (mode.as_str(), mode))),
        xdp: s
            .choice("xdp", &[("auto", XdpMode::Auto), ("on", XdpMode::On), ("off", XdpMode::Off)]),
        steer_from_bytes: s.size("steer_from_bytes"),
        steer_from_reads: s.integer("steer_from_reads"),
        learn_reads: s.bool("learn_reads"),
        backlog_bytes: s.size("backlog_bytes"),
    }
}

fn health(s: &Section<'_, '_>) -> Health {
    let health = Health {
        active: s.bool("active"),
        path: path(s, "path"),
        interval: s.duration("interval"),
        timeout: s.duration("timeout"),
        rise: s.integer("rise"),
        fall: s.integer("fall"),
        eject_after: s.integer("eject_after"),
        eject_for: s.duration("eject_for"),
        eject_max: s.duration("eject_max"),
        resolve: s.duration("resolve"),
    };
    if health.timeout > health.interval {
        let text = duration_text(health.interval);
        s.issue("timeout", format!("is longer than health.interval ({text}): make it shorter"));
    }
    if health.eject_max < health.eject_for {
        let text = duration_text(health.eject_for);
        s.issue("eject_max", format!("is shorter than health.eject_for ({text}): make it longer"));
    }
    health
}

fn guard(s: &Section<'_, '_>) -> Guard {
    let modes =
        [("auto", GuardMode::Auto), ("native", GuardMode::Native), ("generic", GuardMode::Generic)];
    Guard {
        interfaces: s.items("interfaces", |text| {
            // IFNAMSIZ is 16 with the final NUL.
            let ok = !text.is_empty()
                && text.len() < 16
                && !text.bytes().any(|b| b == b'/' || b.is_ascii_whitespace());
            ok.then(|| text.to_owned()).ok_or_else(|| {
                format!("`{text}` is no interface name: write one that `ip link` lists")
            })
        }),
        mode: s.choice("mode", &modes),
        allow: s.items("allow", network),
        deny: s.items("deny", network),
        new_connections_per_second: s.integer("new_connections_per_second"),
        burst: s.integer("burst"),
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(address.into());
    }
    let net: IpNet = text.parse().map_err(|_| {
        format!("`{text}` is no address or network: write \"10.0.0.7\" or \"10.0.0.0/8\"")
    })?;
    if net != net.trunc() {
        return Err(format!(
            "`{text}` has address bits after its prefix: write \"{}\"",
            net.trunc()
        ));
    }
    Ok(net)
}

fn addresses(root: &Section<'_, '_>) -> Vec<SocketAddr> {
    let list: Vec<SocketAddr> = root.items("listen", |text| {
        text.parse().map_err(|_| {
            format!("`{text}` is no address with a port: write \"0.0.0.0:8080\" or \"[::]:8080\"")
        })
    });
    if list.is_empty() {
        root.issue("listen", "is empty: name at least one address, or leave it out");
    }
    for (index, address) in list.iter().enumerate() {
        if list[..index].contains(address) {
            root.issue("listen", format!("has {address} twice: leave one out"));
        }
    }
    list
}

fn path(s: &Section<'_, '_>, key: &'static str) -> String {
    s.value(key, |value| {
        let text = value.text()?;
        let ok = text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        ok.then(|| text.to_owned()).ok_or_else(|| {
            format!("`{text}` is no path: begin with / and percent-encode other characters")
        })
    })
}

fn endpoint(s: &Section<'_, '_>) -> Option<EndpointConfig> {
    let name = s.required("name", name);
    let variants: Vec<VariantConfig> = s.list("variant", variant);
    if !s.has("variant") {
        s.issue("variant", "there is none: add an [[endpoint.variant]]");
    }
    s.unique("variant", "name", |name| Some(name.to_owned()));
    Some(EndpointConfig { name: name?, variants })
}

fn variant(s: &Section<'_, '_>) -> Option<VariantConfig> {
    let name = s.required("name", name);
    let strategy = s.value("strategy", |value| value.text()?.parse::<Strategy>());
    let concurrency_threshold = s.integer("concurrency_threshold");
    let max_in_flight: Option<u32> = s.optional_integer("max_in_flight");
    if strategy == Strategy::PrefixAware
        && max_in_flight.is_some_and(|max| max < concurrency_threshold)
    {
        s.issue(
            "max_in_flight",
            format!(
                "is below concurrency_threshold ({concurrency_threshold}): raise it, or lower \
                 the threshold"
            ),
        );
    }
    let instances: Vec<InstanceConfig> = s.list("instance", instance);
    s.unique("instance", "url", |url| InstanceUrl::parse(url).ok());
    Some(VariantConfig {
        weight: weight(s),
        prefix_length: s.integer("prefix_length"),
        name: name?,
        strategy,
        concurrency_threshold,
        max_in_flight: max_in_flight.and_then(NonZeroU32::new),
        instances,
    })
}

fn instance(s: &Section<'_, '_>) -> Option<InstanceConfig> {
    let url = s.required("url", |text| InstanceUrl::parse(text).map_err(|e| e.to_string()));
    let (weight, drain) = (weight(s), s.bool("drain"));
    Some(InstanceConfig { url: url?, weight, drain })
}

fn weight(s: &Section<'_, '_>) -> f64 {
    s.value("weight", |value| {
        let weight = value.number()?;
        // Beyond these bounds a share is zero or all for every practical purpose, and a product of
        // two of them could leave the range of the type.
        (1e-6..=1e6).contains(&weight).then_some(weight).ok_or_else(|| {
            format!("{weight} is no weight: write a number from 0.000001 to 1000000")
        })
    })
}

/// Endpoint and variant names follow SageMaker's rule, `^[a-zA-Z0-9](-*[a-zA-Z0-9])*`, up to 63.
fn name(text: &str) -> Result<String, String> {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let ok = bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    ok.then(|| text.to_owned()).ok_or_else(|| {
        format!("`{text}` is no name: use 1 to 63 letters, digits and hyphens between them")
    })
}
