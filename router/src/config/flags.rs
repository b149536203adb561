//! The configuration of a gateway that was started with flags alone.

use std::net::SocketAddr;

use super::{
    Config, ConfigError, EndpointConfig, EngineMode, InstanceConfig, InstanceUrl, Issue, Strategy,
    VariantConfig,
    addresses::{admin_conflict, overlap},
    sections::setting,
};

/// What the flags of `serve` say. `None` and empty lists keep the default.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Vec<SocketAddr>,
    /// `--backend`, at least one
    pub backends: Vec<String>,
    /// `--strategy`
    pub strategy: Option<Strategy>,
    /// `--prefix-length`
    pub prefix_length: Option<u64>,
    /// `--concurrency-threshold`
    pub concurrency_threshold: Option<u64>,
    /// `--engine`
    pub engine: Option<EngineMode>,
    /// `--admin`; `Some(None)` turns it off
    pub admin: Option<Option<SocketAddr>>,
    /// `--threads`
    pub threads: Option<u64>,
    /// `--access-log`
    pub access_log: bool,
}

/// Name of the endpoint and of the variant that flags describe.
const DEFAULT: &str = "default";

/// The configuration that `flags` stand for: one endpoint `default` with one variant `default`.
///
/// # Errors
/// When a flag's value is out of its range, or there is no backend; all such, not only the first.
pub fn from_flags(flags: &Flags) -> Result<Config, ConfigError> {
    let mut issues = Vec::new();
    let mut issue = |field: &str, message: String| {
        issues.push(Issue { at: None, field: field.into(), message });
    };
    let mut integer = |flag: &str, path: &str, value: Option<u64>| {
        let setting = setting(path);
        let default = || setting.default.and_then(|text| text.parse().ok()).unwrap_or_default();
        let Some(value) = value else { return default() };
        setting.kind.integer(value.into()).unwrap_or_else(|message| {
            issue(flag, message);
            default()
        })
    };
    let variant = "endpoint.variant";
    let prefix_length =
        integer("--prefix-length", &format!("{variant}.prefix_length"), flags.prefix_length);
    let concurrency_threshold = integer(
        "--concurrency-threshold",
        &format!("{variant}.concurrency_threshold"),
        flags.concurrency_threshold,
    );
    let threads = integer("--threads", "threads", flags.threads);

    let mut instances: Vec<InstanceConfig> = Vec::new();
    for backend in &flags.backends {
        match InstanceUrl::parse(backend) {
            Ok(url) if instances.iter().any(|known| known.url == url) => {
                issue("--backend", format!("{url} is there already: leave one out"));
            }
            Ok(url) => instances.push(InstanceConfig { url, weight: 1.0, drain: false }),
            Err(error) => issue("--backend", error.to_string()),
        }
    }
    if flags.backends.is_empty() {
        let advice = "is missing: name at least one instance, as --backend http://host:port";
        issue("--backend", advice.into());
    }
    for (index, address) in flags.listen.iter().enumerate() {
        if flags.listen[..index].contains(address) {
            issue("--listen", format!("{address} is there twice: leave one out"));
        } else if let Some(other) =
            flags.listen[..index].iter().find(|one| overlap(**one, *address))
        {
            issue("--listen", format!("{address} is covered by {other}: leave one out"));
        }
    }
    let default = Config::default();
    let listen = if flags.listen.is_empty() { &default.listen } else { &flags.listen };
    if let Some(conflict) = admin_conflict(flags.admin.unwrap_or(default.admin), listen) {
        issue("--admin", conflict);
    }
    if !issues.is_empty() {
        return Err(ConfigError { source_name: "command line".into(), issues });
    }

    let mut config = default;
    if !flags.listen.is_empty() {
        config.listen.clone_from(&flags.listen);
    }
    if let Some(admin) = flags.admin {
        config.admin = admin;
    }
    if let Some(mode) = flags.engine {
        config.engine.mode = mode;
    }
    config.threads = in_range(threads);
    config.access_log = flags.access_log;
    let variant = VariantConfig {
        strategy: flags.strategy.unwrap_or(Strategy::PrefixAware),
        prefix_length: in_range(prefix_length),
        concurrency_threshold: in_range(concurrency_threshold),
        instances,
        ..VariantConfig::named(DEFAULT)
    };
    config.endpoints = vec![EndpointConfig::new(DEFAULT, vec![variant])];
    Ok(config)
}

/// The ranges of the table fit the types of the configuration.
fn in_range<T: TryFrom<u64>>(n: u64) -> T {
    n.try_into().ok().expect("the table's ranges fit")
}
