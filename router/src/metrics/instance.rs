//! Handles of one instance.

use std::{
    sync::{OnceLock, Weak},
    time::Duration,
};

use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

use super::{
    InstanceName, Metrics, REASONS,
    labelled::{ByLabel, Mirror},
    prefix_cache::PrefixCache,
};

/// How an exchange ended after an instance had been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The whole response reached the client, whatever its status.
    Ok,
    /// The client left first.
    ClientGone,
    /// The instance broke off inside its response.
    UpstreamAborted,
    /// The instance could not be reached.
    ConnectError,
    /// The instance closed or reset the connection before it answered.
    UpstreamClosed,
    /// No connection within the connect time.
    TimeoutConnect,
    /// No response within the first-byte time.
    TimeoutFirstByte,
    /// A body stood still for longer than its idle time.
    TimeoutIdle,
    /// The answer was not HTTP/1.1 that can be passed on.
    BadResponse,
    /// The client's body broke its own framing.
    BadRequest,
    /// Cut at the end of the drain time.
    Shutdown,
    /// Health checks found the instance down before a byte of the response's body came.
    InstanceDown,
    /// The response stood still while the instance's port was closed.
    InstanceClosed,
}

impl Outcome {
    /// Whether it is the instance's doing that the client has no whole response.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::ClientGone | Self::BadRequest | Self::Shutdown)
    }

    /// Every outcome, in the order of the discriminants.
    const ALL: [Outcome; 13] = [
        Outcome::Ok,
        Outcome::ClientGone,
        Outcome::UpstreamAborted,
        Outcome::ConnectError,
        Outcome::UpstreamClosed,
        Outcome::TimeoutConnect,
        Outcome::TimeoutFirstByte,
        Outcome::TimeoutIdle,
        Outcome::BadResponse,
        Outcome::BadRequest,
        Outcome::Shutdown,
        Outcome::InstanceDown,
        Outcome::InstanceClosed,
    ];

    /// As in the `outcome` label and in access lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ClientGone => "client_gone",
            Outcome::UpstreamAborted => "upstream_aborted",
            Outcome::ConnectError => "connect_error",
            Outcome::UpstreamClosed => "upstream_closed",
            Outcome::TimeoutConnect => "timeout_connect",
            Outcome::TimeoutFirstByte => "timeout_first_byte",
            Outcome::TimeoutIdle => "timeout_idle",
            Outcome::BadResponse => "bad_response",
            Outcome::BadRequest => "bad_request",
            Outcome::Shutdown => "shutdown",
            Outcome::InstanceDown => "instance_down",
            Outcome::InstanceClosed => "instance_closed",
        }
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What is counted per instance.
///
/// Methods that a request calls cost a few atomic operations and never allocate.
#[derive(Debug)]
pub struct InstanceMetrics {
    metrics: Weak<Metrics>,
    name: InstanceName,
    requests: ByLabel,
    outcomes: [IntCounter; Outcome::ALL.len()],
    responses: [IntCounter; CLASSES.len()],
    response_head: Histogram,
    /// Of bodies of known length, and of others.
    first_byte: [Histogram; 2],
    duration: Histogram,
    in_flight: IntGauge,
    available: IntGauge,
    draining: IntGauge,
    checks_ok: IntCounter,
    checks_failed: IntCounter,
    /// Of the connection pools, over all threads.
    pub pool: PoolMetrics,
    cache: OnceLock<CacheMirrors>,
    cache_ratio: OnceLock<Gauge>,
}

/// Handles about the connections to one instance.
#[derive(Debug)]
pub struct PoolMetrics {
    /// Connections that wait for their next request; add and subtract one.
    pub idle: IntGauge,
    /// Connections opened.
    pub opened: IntCounter,
    /// Requests that took a pooled connection.
    pub reused: IntCounter,
    /// Pooled connections closed because they were idle for too long.
    pub expired: IntCounter,
    /// Pooled connections that the instance closed while they were idle.
    pub closed_by_peer: IntCounter,
    /// Connections that could not be used again after their exchange.
    pub discarded: IntCounter,
    /// Requests sent again because a pooled connection turned out to be closed.
    pub retried_stale: IntCounter,
    /// Requests sent elsewhere because the instance could not be reached.
    pub retried_connect: IntCounter,
    /// Requests sent elsewhere because the instance was found down while they waited.
    pub retried_down: IntCounter,
}

#[derive(Debug)]
struct CacheMirrors {
    hits: Mirror,
    queries: Mirror,
}

impl InstanceMetrics {
    pub(super) fn new(metrics: &Metrics, name: InstanceName) -> InstanceMetrics {
        let families = &metrics.families;
        let labels = name.labels();
        let with = |last: &'static str| [labels[0], labels[1], labels[2], last];
        let pool_event = |event| families.pool_connections.with_label_values(&with(event));
        let retry = |reason| families.retries.with_label_values(&with(reason));
        let check = |result| families.health_checks.with_label_values(&with(result));
        InstanceMetrics {
            metrics: metrics.this.clone(),
            requests: ByLabel::new(&families.requests, &labels, &REASONS),
            outcomes: Outcome::ALL
                .map(|outcome| families.outcomes.with_label_values(&with(outcome.as_str()))),
            responses: CLASSES.map(|class| families.responses.with_label_values(&with(class))),
            response_head: families.response_head.with_label_values(&labels),
            first_byte: ["false", "true"]
                .map(|streamed| families.first_byte.with_label_values(&with(streamed))),
            duration: families.duration.with_label_values(&labels),
            in_flight: families.in_flight.with_label_values(&labels),
            available: families.available.with_label_values(&labels),
            draining: families.draining.with_label_values(&labels),
            checks_ok: check("ok"),
            checks_failed: check("failed"),
            pool: PoolMetrics {
                idle: families.pool_idle.with_label_values(&labels),
                opened: pool_event("opened"),
                reused: pool_event("reused"),
                expired: pool_event("expired"),
                closed_by_peer: pool_event("closed_by_peer"),
                discarded: pool_event("discarded"),
                retried_stale: retry("stale"),
                retried_connect: retry("connect"),
                retried_down: retry("down"),
            },
            cache: OnceLock::new(),
            cache_ratio: OnceLock::new(),
            name,
        }
    }

    /// A request was assigned to this instance; `reason` is one of [`REASONS`].
    pub fn chosen(&self, reason: &'static str) {
        self.requests.inc(reason);
    }

    /// The exchange ended, `duration` after the request's head had been read.
    pub fn ended(&self, outcome: Outcome, duration: Duration) {
        self.outcomes[outcome as usize].inc();
        self.duration.observe(duration.as_secs_f64());
    }

    /// The instance's response head arrived, `waited` after the request had been sent.
    pub fn responded(&self, status: u16, waited: Duration) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.inc();
        }
        self.response_head.observe(waited.as_secs_f64());
    }

    /// The first byte of the response's body arrived, `waited` after the request had been sent.
    /// `streamed` when its length was not known beforehand.
    pub fn body_began(&self, streamed: bool, waited: Duration) {
        self.first_byte[usize::from(streamed)].observe(waited.as_secs_f64());
    }

    /// An active health check ended.
    pub fn checked(&self, ok: bool) {
        if ok { &self.checks_ok } else { &self.checks_failed }.inc();
    }

    /// Sets the gauges that follow the fleet's own state; see [`Metrics::on_render`].
    pub fn state(&self, in_flight: u32, available: bool, draining: bool) {
        self.in_flight.set(i64::from(in_flight));
        self.available.set(i64::from(available));
        self.draining.set(i64::from(draining));
    }

    /// Takes over what the instance's own metrics page says about its prefix cache.
    pub fn prefix_cache(&self, seen: &PrefixCache) {
        let Some(metrics) = self.metrics.upgrade() else { return };
        let labels = self.name.labels();
        if let (Some(hits), Some(queries)) = (seen.hits, seen.queries) {
            let mirrors = self.cache.get_or_init(|| CacheMirrors {
                hits: Mirror::new(metrics.families.cache_hits.with_label_values(&labels)),
                queries: Mirror::new(metrics.families.cache_queries.with_label_values(&labels)),
            });
            mirrors.hits.set(hits);
            mirrors.queries.set(queries);
        }
        if let Some(ratio) = seen.ratio {
            self.cache_ratio
                .get_or_init(|| metrics.families.cache_hit_ratio.with_label_values(&labels))
                .set(ratio);
        }
    }
}

impl Drop for InstanceMetrics {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics.upgrade() {
            metrics.forget_instance(&self.name);
        }
    }
}
