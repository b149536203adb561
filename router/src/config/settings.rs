//! Every setting: its kind, default, range, and what it is for.
//!
//! The reader takes defaults and ranges from this table, and `docs/configuration.md` is generated
//! from it, so that neither can differ from the other.

use std::time::Duration;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its place, as `section.key`; list sections appear by their name alone.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The default, written as in TOML; `None` when the setting may be absent or must be given, as
    /// `kind` says.
    pub default: Option<&'static str>,
    /// Whether a running gateway takes over a change.
    pub live: bool,
    /// What it is for.
    pub about: &'static str,
}

/// What values a setting takes.
#[derive(Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number of `unit`.
    Integer {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// As [`Kind::Integer`], but may be absent.
    OptionalInteger {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// Bytes: a number, or a string with KiB, MiB or GiB.
    Size {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A string such as `"250ms"`, `"3s"`, `"5m"`, `"1h"`.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
        /// Whether `"0s"` is taken as well, and what it means then.
        zero: Option<&'static str>,
    },
    /// One of some words.
    Choice(&'static [&'static str]),
    /// An address and port.
    AddressOrOff,
    /// A list of addresses with ports, at least one.
    Addresses,
    /// A list of IP addresses and networks.
    Networks,
    /// A list of network interface names.
    Interfaces,
    /// An absolute path of a URL.
    Path,
    /// A name: up to 63 letters, digits and inner hyphens; must be given, and once only.
    Name,
    /// `http://host[:port]`; must be given, and once only per variant.
    Url,
    /// A relative share: finite, above zero.
    Weight,
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: Duration = secs(24 * 60 * 60);

/// Strategy names, see [`crate::fleet::Strategy`].
pub const STRATEGIES: &[&str] = &["prefix-aware", "least-outstanding-requests", "random"];

/// All settings, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
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
        path: "engine.mode",
        kind: Kind::Choice(&["auto", "sockmap", "splice", "userspace"]),
        default: Some(r#""auto""#),
        live: false,
        about: "What carries body bytes. `auto`: `splice` where the start-up self-test passed, \
                else user space. `splice` passes the packets by the gateway's sockets wherever it \
                can; `sockmap` lets the kernel move the bytes between them; both insist, and \
                refuse to start where they do not work. `userspace` never uses the kernel's \
                engines, and is the switch to turn them off.",
    },
    Setting {
        path: "engine.xdp",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: Some(r#""auto""#),
        live: false,
        about: "Whether `splice` forwards packets in network drivers as well (native XDP), before the \
                kernel makes socket buffers of them. `on`: in all drivers that can, if it passes a \
                self-test. `auto`: only in those on which it was measured to be better whatever the \
                traffic, which is none so far: not on veth, and no network card has been measured. \
                `atalho doctor` tells what the interfaces of this host could do.",
    },
    Setting {
        path: "engine.steer_from_bytes",
        kind: Kind::Size { min: 0, max: GIB },
        default: Some(r#""64KiB""#),
        live: false,
        about: "Where its length is known, the kernel gets a body only when at least this much \
                of it is left: the hand-over has a cost of its own, which a short body does not \
                earn back. Without a length, `sockmap` gets it once this much of it has passed.",
    },
    Setting {
        path: "engine.steer_from_reads",
        kind: Kind::Integer { min: 0, max: 1_000_000, unit: "reads" },
        default: Some("4"),
        live: false,
        about: "A body of unknown length is spliced once it came in this many reads. A read finds a \
                token most often, and a hand-over is earned back after some eight tokens.",
    },
    Setting {
        path: "engine.learn_reads",
        kind: Kind::Bool,
        default: Some("true"),
        live: false,
        about: "Whether `auto` learns, for each variant and API, how long answers of unknown length \
                are, and splices them from the read on that costs least: those that are too short \
                never, those that are long enough from their first read on. `steer_from_reads` applies \
                until 16 were seen, to request bodies, and to `splice`.",
    },
    Setting {
        path: "engine.backlog_bytes",
        kind: Kind::Size { min: 64 * KIB, max: 64 * MIB },
        default: Some(r#""1MiB""#),
        live: false,
        about: "Bytes that the kernel may hold for a slow receiver, per direction, before the \
                direction falls back to user space and its back-pressure.",
    },
    Setting {
        path: "limits.head_bytes",
        kind: Kind::Size { min: 4 * KIB, max: MIB },
        default: Some(r#""64KiB""#),
        live: true,
        about: "Longest head of a request or response. A longer request head is answered with 431.",
    },
    Setting {
        path: "limits.headers",
        kind: Kind::Integer { min: 16, max: 1024, unit: "fields" },
        default: Some("256"),
        live: true,
        about: "Most header fields of one head. More are answered with 431.",
    },
    Setting {
        path: "limits.body_bytes",
        kind: Kind::Size { min: KIB, max: 1024 * GIB },
        default: Some(r#""100MiB""#),
        live: true,
        about: "Longest request body. A longer one is answered with 413, before it is read when \
                its length is announced.",
    },
    Setting {
        path: "limits.decision_bytes",
        kind: Kind::Size { min: 64 * KIB, max: GIB },
        default: Some(r#""8MiB""#),
        live: true,
        about: "Body bytes held while looking for what the choice needs (`model` may come after \
                `messages`). Past it, the choice is made with what was found; the body still \
                passes whole.",
    },
    Setting {
        path: "timeouts.head",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""30s""#),
        live: true,
        about: "From the first byte of a request to the end of its head.",
    },
    Setting {
        path: "timeouts.body_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""60s""#),
        live: true,
        about: "Longest pause within a request body. There is no limit on its total time.",
    },
    Setting {
        path: "timeouts.connect",
        kind: Kind::Duration { min: ms(1), max: secs(600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "To open a connection to an instance. On expiry the request goes to the next one.",
    },
    Setting {
        path: "timeouts.first_byte",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""10m""#),
        live: true,
        about: "From the end of the request to the first byte of the response. Long, because the \
                prefill of a long prompt, or a queue in front of it, sends nothing for minutes.",
    },
    Setting {
        path: "timeouts.stream_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""5m""#),
        live: true,
        about: "Longest pause within a response. There is no limit on a stream's total time.",
    },
    Setting {
        path: "timeouts.client_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""120s""#),
        live: true,
        about: "How long a client connection may wait for its next request. Longer than clients \
                keep idle connections (90 s is common), so that it is the client who closes: the \
                other way round a request can meet a close.",
    },
    Setting {
        path: "timeouts.pool_idle",
        kind: Kind::Duration { min: ms(1), max: secs(3600), zero: None },
        default: Some(r#""3s""#),
        live: true,
        about: "How long an idle connection to an instance is kept. Shorter than the instances \
                do (5 s is common), for the same reason.",
    },
    Setting {
        path: "timeouts.drain",
        kind: Kind::Duration { min: ms(1), max: DAY, zero: Some("stop at once") },
        default: Some(r#""5m""#),
        live: true,
        about: "How long open exchanges may go on after the signal to stop. Make it longer than \
                your longest stream, and shorter than what kills the process (in Kubernetes \
                `terminationGracePeriodSeconds`).",
    },
    Setting {
        path: "pool.max_idle_per_instance",
        kind: Kind::Integer { min: 0, max: 65536, unit: "connections" },
        default: Some("128"),
        live: true,
        about: "Idle connections kept per instance and worker thread.",
    },
    Setting {
        path: "health.active",
        kind: Kind::Bool,
        default: Some("true"),
        live: true,
        about: "Whether instances are asked for their health. Failed requests count in any case, \
                see `health.eject_after`.",
    },
    Setting {
        path: "health.path",
        kind: Kind::Path,
        default: Some(r#""/health""#),
        live: true,
        about: "Path of the check. Any answer with a status below 500 is good: a server without \
                this path answers 404 and is alive all the same.",
    },
    Setting {
        path: "health.interval",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "Between the starts of two checks of one instance. The first comes at once, the \
                checks of different instances are spread over the interval.",
    },
    Setting {
        path: "health.timeout",
        kind: Kind::Duration { min: ms(1), max: secs(600), zero: None },
        default: Some(r#""2s""#),
        live: true,
        about: "For one check, with connecting. At most `health.interval`.",
    },
    Setting {
        path: "health.rise",
        kind: Kind::Integer { min: 1, max: 1000, unit: "checks" },
        default: Some("2"),
        live: true,
        about: "Good checks in a row that bring an instance back. One that has never answered \
                needs only one.",
    },
    Setting {
        path: "health.fall",
        kind: Kind::Integer { min: 1, max: 1000, unit: "checks" },
        default: Some("3"),
        live: true,
        about: "Bad checks in a row that take an instance out. An instance that has never \
                answered is out after the first refused connection.",
    },
    Setting {
        path: "health.eject_after",
        kind: Kind::Integer { min: 0, max: 1000, unit: "requests" },
        default: Some("5"),
        live: true,
        about: "Requests in a row that failed by the instance's fault (no connection, a reset, a \
                5xx answer) and eject it for a while. A client's own mistake (4xx) never counts. \
                0 turns ejection off.",
    },
    Setting {
        path: "health.eject_for",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "Length of the first ejection. Each further one is twice as long, until requests \
                succeed again.",
    },
    Setting {
        path: "health.eject_max",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""60s""#),
        live: true,
        about: "Longest ejection. At least `health.eject_for`.",
    },
    Setting {
        path: "health.resolve",
        kind: Kind::Duration { min: ms(100), max: DAY, zero: None },
        default: Some(r#""30s""#),
        live: true,
        about: "Between two look-ups of an instance's host name. A failed look-up keeps the \
                addresses that were known.",
    },
    Setting {
        path: "scrape.interval",
        kind: Kind::Duration { min: ms(100), max: DAY, zero: Some("never") },
        default: Some(r#""15s""#),
        live: true,
        about: "Between two reads of an instance's own metrics, from which the gateway's page \
                shows prefix-cache hits per instance.",
    },
    Setting {
        path: "scrape.path",
        kind: Kind::Path,
        default: Some(r#""/metrics""#),
        live: true,
        about: "Path of the instances' metrics page.",
    },
    Setting {
        path: "log.format",
        kind: Kind::Choice(&["text", "json"]),
        default: Some(r#""text""#),
        live: false,
        about: "How log lines are written: for people, or one JSON object per line.",
    },
    Setting {
        path: "log.level",
        kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        default: Some(r#""info""#),
        live: false,
        about: "The least severe level that is written.",
    },
    Setting {
        path: "guard.interfaces",
        kind: Kind::Interfaces,
        default: Some("[]"),
        live: false,
        about: "Network interfaces on which packets to the listeners are filtered before the \
                network stack sees them (XDP; needs root). Empty turns the guard off.",
    },
    Setting {
        path: "guard.mode",
        kind: Kind::Choice(&["auto", "native", "generic"]),
        default: Some(r#""auto""#),
        live: false,
        about: "Where the filter sits: in the driver (`native`), after it (`generic`, works \
                everywhere, slower), or in the driver where that works (`auto`).",
    },
    Setting {
        path: "guard.allow",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "When not empty, only these sources reach the listeners.",
    },
    Setting {
        path: "guard.deny",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "Sources that never reach the listeners, also when `allow` has them.",
    },
    Setting {
        path: "guard.new_connections_per_second",
        kind: Kind::Integer { min: 0, max: 1_000_000, unit: "connections/s" },
        default: Some("0"),
        live: true,
        about: "New connections per second from one source address. 0 is no limit.",
    },
    Setting {
        path: "guard.burst",
        kind: Kind::Integer { min: 1, max: 1_000_000, unit: "connections" },
        default: Some("100"),
        live: true,
        about: "New connections that one source may open at once after a quiet time.",
    },
    Setting {
        path: "endpoint.name",
        kind: Kind::Name,
        default: None,
        live: true,
        about: "Name in `/endpoints/{name}/...`. The first endpoint of the file also serves \
                requests that name none, such as `/v1/chat/completions`.",
    },
    Setting {
        path: "endpoint.variant.name",
        kind: Kind::Name,
        default: None,
        live: true,
        about: "Name that a client may ask for in `X-Amzn-SageMaker-Target-Variant`, unique in \
                its endpoint.",
    },
    Setting {
        path: "endpoint.variant.weight",
        kind: Kind::Weight,
        default: Some("1"),
        live: true,
        about: "Share of the endpoint's requests, relative to its other variants.",
    },
    Setting {
        path: "endpoint.variant.strategy",
        kind: Kind::Choice(STRATEGIES),
        default: Some(r#""prefix-aware""#),
        live: true,
        about: "How an instance is chosen: by the start of the prompt, by the fewest requests in \
                flight, or at random. The names of the SageMaker API (`PREFIX_AWARE`, ...) are \
                taken as well.",
    },
    Setting {
        path: "endpoint.variant.prefix_length",
        kind: Kind::Integer { min: 1024, max: 65536, unit: "characters or bytes" },
        default: Some("4096"),
        live: true,
        about: "How much of the start of a request decides where it goes: characters of message \
                text on the JSON APIs, body bytes on `/invocations`. See above how to choose it.",
    },
    Setting {
        path: "endpoint.variant.concurrency_threshold",
        kind: Kind::Integer { min: 1, max: 1024, unit: "requests" },
        default: Some("10"),
        live: true,
        about: "Requests in flight at an instance from which further ones of its prefixes go to a \
                less busy instance. See above how to choose it.",
    },
    Setting {
        path: "endpoint.variant.max_in_flight",
        kind: Kind::OptionalInteger { min: 1, max: u32::MAX as u64, unit: "requests" },
        default: None,
        live: true,
        about: "Requests in flight that no instance of the variant ever exceeds, whatever the \
                strategy. When all are there, a request is answered with 429. Absent: no limit. \
                At least `concurrency_threshold` with `prefix-aware`.",
    },
    Setting {
        path: "endpoint.variant.instance.url",
        kind: Kind::Url,
        default: None,
        live: true,
        about: "Where the inference server listens. Its normal form alone decides which prefixes \
                it gets, so write it the same on every gateway host.",
    },
    Setting {
        path: "endpoint.variant.instance.weight",
        kind: Kind::Weight,
        default: Some("1"),
        live: true,
        about: "Share of prefixes and requests, relative to the variant's other instances: 2 for a \
                host that serves twice as much.",
    },
    Setting {
        path: "endpoint.variant.instance.drain",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether the instance takes no new requests, while its open ones end. Set it before \
                you take a host down.",
    },
];

/// The setting at `path`.
///
/// # Panics
/// When there is none: the reader asked for a setting that is not in the table.
pub(super) fn setting(path: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|setting| setting.path == path)
        .unwrap_or_else(|| panic!("no setting {path} in the table"))
}
