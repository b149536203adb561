//! What a configuration holds, once it has been read and found valid.
//!
//! Units, defaults and ranges of each setting stand in one table, [`SETTINGS`](super::SETTINGS):
//! the reader, the documentation and the example file are all made from it or checked against it.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use ipnet::IpNet;

use crate::{fleet::Strategy, http};

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
    /// What is read from the instances' metrics pages.
    pub scrape: Scrape,
    /// The program's own log.
    pub log: Log,
    /// The packet filter in front of the listeners.
    pub guard: Guard,
    /// Named services, the default one first.
    pub endpoints: Vec<EndpointConfig>,
}

impl Config {
    /// What heads of messages may be like.
    pub fn head_limits(&self) -> http::Limits {
        let Limits { head_bytes, headers, body_bytes, .. } = self.limits;
        http::Limits { head_bytes, headers, body_bytes }
    }

    /// Worker threads to start: the setting, or one per processor that this process may use.
    pub fn worker_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            n => n,
        }
    }
}

/// `[engine]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which engine carries bodies.
    pub mode: EngineMode,
    /// Where `splice` forwards packets before they become socket buffers.
    pub xdp: XdpMode,
    /// Remaining body bytes from which a body is handed to the kernel.
    pub steer_from_bytes: u64,
    /// Reads of a body of unknown length after which it is spliced.
    pub steer_from_reads: u64,
    /// Whether `auto` learns that from the answers it carries.
    pub learn_reads: bool,
    /// Redirected bytes that may wait for a slow receiver, per direction.
    pub backlog_bytes: u32,
}

/// Which engine carries bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineMode {
    /// As `Splice` where it passed its self-test, else user space.
    Auto,
    /// Socket to socket wherever it can.
    Sockmap,
    /// Packets past the sockets wherever it can.
    Splice,
    /// Never the kernel.
    Userspace,
}

impl EngineMode {
    /// The name used in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sockmap => "sockmap",
            Self::Splice => "splice",
            Self::Userspace => "userspace",
        }
    }
}

/// Whether network drivers forward packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// Those on which it was measured to be better.
    Auto,
    /// All that can.
    On,
    /// None.
    Off,
}

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request or response head.
    pub head_bytes: usize,
    /// Header fields of a head.
    pub headers: usize,
    /// Bytes of a request body.
    pub body_bytes: u64,
    /// Body bytes that the gateway holds while it looks for what the choice needs.
    pub decision_bytes: usize,
}

/// `[timeouts]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// Between two reads of a request body.
    pub body_idle: Duration,
    /// To open a connection to an instance.
    pub connect: Duration,
    /// From the end of a request to the first byte of its response.
    pub first_byte: Duration,
    /// Between two reads of a response body.
    pub stream_idle: Duration,
    /// How long a client connection may wait for its next request.
    pub client_idle: Duration,
    /// How long an idle connection to an instance is kept.
    pub pool_idle: Duration,
    /// How long open exchanges may go on after the signal to stop.
    pub drain: Duration,
}

/// `[pool]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections kept per instance and worker thread.
    pub max_idle_per_instance: usize,
}

/// `[health]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether instances are asked for their health.
    pub active: bool,
    /// Path of the check, asked with GET.
    pub path: String,
    /// Between the starts of two checks of an instance.
    pub interval: Duration,
    /// For one check.
    pub timeout: Duration,
    /// Good checks in a row that bring an instance back.
    pub rise: u32,
    /// Bad checks in a row that take an instance out.
    pub fall: u32,
    /// Failed requests in a row that eject an instance; 0 for never.
    pub eject_after: u32,
    /// Length of the first ejection; each further one is twice as long.
    pub eject_for: Duration,
    /// Longest ejection.
    pub eject_max: Duration,
    /// Between two look-ups of an instance's host name.
    pub resolve: Duration,
}

/// `[scrape]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// Between two reads of an instance's metrics; zero for never.
    pub interval: Duration,
    /// Path of the metrics page.
    pub path: String,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line is written.
    pub format: LogFormat,
    /// The least severe level that is written.
    pub level: LogLevel,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Severity of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something is broken.
    Error,
    /// Something needs attention.
    Warn,
    /// Changes of state.
    Info,
    /// Decisions.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name used in configurations, which is also a `tracing` filter directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// `[guard]`: off while `interfaces` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Network interfaces that get the filter.
    pub interfaces: Vec<String>,
    /// Where the filter sits.
    pub mode: GuardMode,
    /// When not empty, only these sources may send packets to the listeners.
    pub allow: Vec<IpNet>,
    /// Sources whose packets are dropped, also when `allow` has them.
    pub deny: Vec<IpNet>,
    /// New connections per second and source address; 0 for no limit.
    pub new_connections_per_second: u32,
    /// New connections that a source may open at once after a quiet time.
    pub burst: u32,
}

/// Where the packet filter sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    /// In the driver when it can, else generic.
    Auto,
    /// In the driver.
    Native,
    /// After the driver.
    Generic,
}

/// `[[endpoint]]`
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// The name that clients call.
    pub name: String,
    /// Its variants, at least one.
    pub variants: Vec<VariantConfig>,
}

/// `[[endpoint.variant]]`
#[derive(Clone, Debug, PartialEq)]
pub struct VariantConfig {
    /// The name that clients may ask for.
    pub name: String,
    /// Share of the endpoint's requests, relative to the other variants.
    pub weight: f64,
    /// How an instance is chosen.
    pub strategy: Strategy,
    /// Units of a request that decide where it goes.
    pub prefix_length: usize,
    /// Requests in flight from which an instance takes no more by affinity.
    pub concurrency_threshold: u32,
    /// Requests in flight that an instance never exceeds; more are refused.
    pub max_in_flight: Option<NonZeroU32>,
    /// Its instances; may be empty.
    pub instances: Vec<InstanceConfig>,
}

/// `[[endpoint.variant.instance]]`
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceConfig {
    /// Where it serves.
    pub url: crate::fleet::InstanceUrl,
    /// Share of prefixes and requests, relative to the variant's other instances.
    pub weight: f64,
    /// Whether it takes no new requests while its open ones end.
    pub drain: bool,
}
