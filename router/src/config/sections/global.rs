//! Settings at the top of the file, and the whole configuration.

use std::net::SocketAddr;

use super::{
    ControlConfig, CorsConfig, EndpointConfig, Engine, Guard, Health, HostPool, HotPrefix, Limits,
    Log, Models, Pool, Prefix, Proxies, Scrape, Timeouts, control, cors, endpoint, engine, guard,
    health, host_pool, hot_prefix, limits, log, models, path, pool, prefix, proxies, scrape,
    timeouts,
};
use crate::{
    api::{BasePath, Call, Paths},
    config::{
        InstanceUrl,
        addresses::{admin_conflict, overlap},
        section::{Document, Section},
        setting::{Kind, Setting},
    },
    http,
};

/// The settings outside of sections.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "listen",
        kind: Kind::Addresses,
        default: Some(r#"["0.0.0.0:8080"]"#),
        live: false,
        about: "Addresses that serve clients. `[::]:8080` serves IPv6 and IPv4.",
    },
    Setting {
        path: "admin",
        kind: Kind::AddressOrOff,
        default: Some(r#""127.0.0.1:9901""#),
        live: false,
        about: "Address of metrics, health and status. It has no authentication: keep it on \
                loopback or on a network of your own. `\"off\"` opens none.",
    },
    Setting {
        path: "threads",
        kind: Kind::Integer { min: 0, max: 1024, unit: "threads" },
        default: Some("0"),
        live: false,
        about: "Worker threads. 0 is one per processor that the process may use.",
    },
    Setting {
        path: "response_headers",
        kind: Kind::Bool,
        default: Some("true"),
        live: true,
        about: "Whether responses name the instance that served them and why it was chosen. Turn \
                it off when clients must not learn addresses of the fleet.",
    },
    Setting {
        path: "half_closed_clients",
        kind: Kind::Bool,
        default: Some("false"),
        live: false,
        about: "Whether a client that closed its sending side still gets its answer. By default \
                that counts as leaving, since a client that gave up looks the same, and the \
                instance's work is cancelled.",
    },
    Setting {
        path: "access_log",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether each request writes one log line.",
    },
    Setting {
        path: "base_paths",
        kind: Kind::BasePaths,
        default: Some(r#"["/openai"]"#),
        live: true,
        about: "Paths that may stand in front of an API's own, as in `/openai/v1/chat/completions`. They \
                are sent on with it, so name only what the instances serve their API under: to other \
                servers, such a path may mean what the base means (`/metrics/v1/...`).",
    },
    Setting {
        path: "traceparent",
        kind: Kind::Choice(&["sampled", "unsampled", "off"]),
        default: Some(r#""sampled""#),
        live: true,
        about: "What an instance gets in `traceparent` for a request that came without a valid one: a \
                new trace that it is asked to record, a new one that it is not, or none. By default, an \
                instance that traces at all records such requests, as it would without a gateway.",
    },
];

/// A whole configuration. [`Config::default`] has no endpoint; everything else at its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses that serve clients.
    pub listen: Vec<SocketAddr>,
    /// Address of metrics, health and status; `None` when turned off.
    pub admin: Option<SocketAddr>,
    /// Worker threads; 0 stands for one per processor, see [`Config::worker_threads`].
    pub threads: usize,
    /// Whether responses name the instance and the reason of the choice.
    pub response_headers: bool,
    /// Whether a client that closed its sending side still gets its answer.
    pub half_closed_clients: bool,
    /// Whether each request writes a log line.
    pub access_log: bool,
    /// Paths that may stand in front of an API's own.
    pub base_paths: Vec<BasePath>,
    /// What requests get that come without a trace.
    pub traceparent: NewTrace,
    /// What carries body bytes.
    pub engine: Engine,
    /// Sizes that a request may have.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Idle connections to instances.
    pub pool: Pool,
    /// How an instance's health is found out.
    pub health: Health,
    /// Which models the instances serve.
    pub models: Models,
    /// When a prefix is asked for more than is good.
    pub hot_prefix: HotPrefix,
    /// What is read from the instances' metrics pages.
    pub scrape: Scrape,
    /// The program's own log.
    pub log: Log,
    /// The packet filter in front of the listeners.
    pub guard: Guard,
    /// What stands between the clients and the gateway.
    pub proxies: Proxies,
    /// What is left out of account of a prompt.
    pub prefix: Prefix,
    /// Which web pages may read answers.
    pub cors: CorsConfig,
    /// The API by which endpoints are made and changed.
    pub control: ControlConfig,
    /// Hosts that such endpoints can be given.
    pub host_pools: Vec<HostPool>,
    /// Paths that speak an API.
    pub paths: Paths,
    /// Named services, the default one first.
    pub endpoints: Vec<EndpointConfig>,
}

/// What requests get in `traceparent` that come without a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTrace {
    /// A new trace, to be recorded.
    Sampled,
    /// A new trace, not to be recorded.
    Unsampled,
    /// Nothing.
    Off,
}

impl Config {
    /// What heads of messages may be like.
    pub fn head_limits(&self) -> http::Limits {
        let Limits { head_bytes, headers, body_bytes, .. } = self.limits;
        http::Limits { head_bytes, headers, body_bytes }
    }

    /// Bytes that the body of a request may have, of a call of SageMaker's runtime API or of another.
    pub fn body_limit(&self, call: Option<Call>) -> u64 {
        match call {
            Some(Call::Invoke | Call::Stream) => {
                self.limits.invoke_body_bytes.min(self.limits.body_bytes)
            }
            None => self.limits.body_bytes,
        }
    }

    /// Worker threads to start: the setting, or one per processor that this process may use.
    pub fn worker_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            n => n,
        }
    }
}

/// Reads a whole document: what is wrong is reported to it, and replaced by the default.
pub(in crate::config) fn read(document: &Document<'_>) -> Config {
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
        base_paths: root.items("base_paths", |text| {
            text.parse::<BasePath>().map_err(|error| format!("`{text}` {error}"))
        }),
        traceparent: root.choice(
            "traceparent",
            &[
                ("sampled", NewTrace::Sampled),
                ("unsampled", NewTrace::Unsampled),
                ("off", NewTrace::Off),
            ],
        ),
        engine: root.table("engine", engine::read),
        limits: root.table("limits", limits::read),
        timeouts: root.table("timeouts", timeouts::read),
        pool: root.table("pool", pool::read),
        health: root.table("health", health::read),
        models: root.table("models", models::read),
        hot_prefix: root.table("hot_prefix", hot_prefix::read),
        scrape: root.table("scrape", scrape::read),
        log: root.table("log", log::read),
        guard: root.table("guard", guard::read),
        proxies: root.table("proxies", proxies::read),
        prefix: root.table("prefix", prefix::read),
        cors: root.table("cors", cors::read),
        control: root.table("control", control::read),
        host_pools: root.list("host_pool", host_pool::read),
        paths: Paths::new(root.list("path", path::read)),
        endpoints: root.list("endpoint", endpoint::read),
    };
    if let Some(conflict) = admin_conflict(config.admin, &config.listen) {
        root.issue("admin", conflict);
    }
    control_conflicts(&root, &config);
    root.unique("path", "path", |path| Some(path.to_owned()));
    root.unique("endpoint", "name", |name| Some(name.to_owned()));
    root.finish();
    config
}

/// Reports what of the control API cannot go with the rest.
fn control_conflicts(root: &Section<'_, '_>, config: &Config) {
    if let Some(control) = config.control.listen {
        let others = config.listen.iter().copied().chain(config.admin);
        if let Some(other) = others.into_iter().find(|other| overlap(*other, control)) {
            root.issue(
                "control",
                format!("listens at {control}, which {other} covers: choose another port"),
            );
        }
    }
    let mut seen: Vec<(&InstanceUrl, usize)> = Vec::new();
    for (index, pool) in config.host_pools.iter().enumerate() {
        for host in &pool.hosts {
            if let Some((_, other)) = seen.iter().find(|(one, at)| *one == host && *at != index) {
                root.issue(
                    "host_pool",
                    format!("number {} has {host}, which number {} has too", index + 1, other + 1),
                );
            }
            seen.push((host, index));
        }
    }
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
        } else if let Some(other) = list[..index].iter().find(|other| overlap(**other, *address)) {
            root.issue("listen", format!("has {address}, which {other} covers: leave one out"));
        }
    }
    list
}
