//! Every metric family: name, help, labels. The help texts are the documentation.

use std::collections::{HashMap, HashSet};

use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
    core::{Collector, MetricVec, MetricVecBuilder},
};

use super::InstanceName;

/// Labels of an instance's series. Plain `instance` and `endpoint` are taken: Prometheus and its
/// Kubernetes operator give every series labels of these names, which say where the page was read,
/// and rename those of the page itself to `exported_instance` and `exported_endpoint`.
const INSTANCE: [&str; 3] = ["endpoint_name", "variant", "instance_url"];

/// Seconds. A first token takes from milliseconds (all of the prompt cached) to minutes (a prefill
/// of hundreds of thousands of tokens).
const FIRST_BYTE_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0];

/// Seconds. A stream of tokens may last for an hour.
const DURATION_BUCKETS: &[f64] =
    &[0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// Seconds. The gateway works in microseconds; anything past a millisecond is worth seeing.
const ADDED_BUCKETS: &[f64] = &[
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005,
    0.01, 0.05, 0.25, 1.0,
];

/// All families, registered.
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) outcomes: IntCounterVec,
    pub(super) responses: IntCounterVec,
    pub(super) errors: IntCounterVec,
    pub(super) shortfalls: IntCounterVec,
    pub(super) copies: IntCounterVec,
    pub(super) in_flight: IntGaugeVec,
    pub(super) available: IntGaugeVec,
    pub(super) draining: IntGaugeVec,
    pub(super) health_checks: IntCounterVec,
    pub(super) response_head: HistogramVec,
    pub(super) first_byte: HistogramVec,
    pub(super) duration: HistogramVec,
    pub(super) decision: HistogramVec,
    pub(super) added: HistogramVec,
    pub(super) pool_idle: IntGaugeVec,
    pub(super) pool_connections: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) cache_hits: IntCounterVec,
    pub(super) cache_queries: IntCounterVec,
    pub(super) cache_hit_ratio: GaugeVec,
    pub(super) body_bytes: IntCounterVec,
    pub(super) handovers: IntCounterVec,
    pub(super) fallbacks: IntCounterVec,
    pub(super) learned_reads: IntGaugeVec,
    pub(super) top_prefix_share: GaugeVec,
    pub(super) engine_available: IntGaugeVec,
    pub(super) guard_packets: IntCounterVec,
    pub(super) xdp_packets: IntCounter,
    pub(super) xdp_interfaces: IntGaugeVec,
    pub(super) client_connections: IntCounter,
    pub(super) client_connections_open: IntGauge,
    pub(super) config_reloads: IntCounterVec,
    pub(super) config_generation: IntGauge,
    pub(super) config_applied_at: IntGauge,
    pub(super) config_last_successful: IntGauge,
    pub(super) config_last_at: IntGauge,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Families {
        let of = Maker { registry };
        let build = of.register(Gauge::with_opts(
            Opts::new("atalho_build_info", "Always 1; the version of the gateway is the label.")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        ));
        build.set(1.0);
        Families {
            requests: of.counters(
                "atalho_requests_total",
                "Requests assigned to an instance, by why it was chosen: home (first in the \
                 ranking of the request's prefix), overflow (home was at its concurrency \
                 threshold, or had said that it is overloaded), saturated (every instance was at \
                 its threshold, so the least loaded one), failover \
                 (home was unavailable or just failed), last_resort (no instance was well, so any), \
                 least_outstanding and random (the strategies without a prefix), single (fewer \
                 than two instances could serve), stored (it keeps the response that the request \
                 names). A request that is sent again elsewhere counts at \
                 both.",
                &with(&INSTANCE, "reason"),
            ),
            outcomes: of.counters(
                "atalho_exchanges_total",
                "Exchanges that ended after an instance was chosen, by outcome: ok (the whole \
                 response reached the client, whatever its status), client_gone (the client left \
                 first), upstream_aborted (the instance broke off inside its response; the client's \
                 connection was aborted too), upstream_closed (it closed the connection before it \
                 answered, as when it crashes), connect_error (it could not be reached), \
                 timeout_connect, timeout_first_byte, timeout_idle (a body stood still for too \
                 long), bad_response (the instance's \
                 answer was not HTTP/1.1 that can be passed on), bad_request (the client's body \
                 broke its own framing), shutdown (cut at the end of the drain time), instance_down \
                 (health checks found the instance down before a byte of a body came), \
                 instance_closed (the response stood still while the instance's port was closed).",
                &with(&INSTANCE, "outcome"),
            ),
            responses: of.counters(
                "atalho_responses_total",
                "Responses of instances whose head was passed on, by class of status: 1xx to 5xx.",
                &with(&INSTANCE, "class"),
            ),
            errors: of.counters(
                "atalho_errors_total",
                "Error replies that the gateway itself made, by status and reason (the same slug \
                 as in the reply's x-atalho-error header). The endpoint is empty when the request \
                 was refused before its endpoint was known.",
                &["endpoint_name", "status", "reason"],
            ),
            copies: of.counters(
                "atalho_shadow_copies_total",
                "Copies of requests for shadow variants: answered to the end (whatever was answered), \
                 failed, or not made because the body was too_large or not at hand, or there were \
                 too_many under way.",
                &["endpoint_name", "outcome"],
            ),
            shortfalls: of.counters(
                "atalho_decision_shortfalls_total",
                "Requests whose instance was chosen with less than their body might have told: it was \
                 longer than limits.decision_bytes, or could not be decoded (unknown_coding, \
                 corrupt_coding, expansion), or was not_json.",
                &["endpoint_name", "why"],
            ),
            in_flight: of.gauges(
                "atalho_in_flight_requests",
                "Requests assigned to the instance whose response has not ended. This is the \
                 number that the concurrency threshold is compared with.",
                &INSTANCE,
            ),
            available: of.gauges(
                "atalho_instance_available",
                "1 while requests may be sent to the instance, 0 while it is down, ejected, \
                 unresolved or draining.",
                &INSTANCE,
            ),
            draining: of.gauges(
                "atalho_instance_draining",
                "1 while the configuration drains the instance: no new requests, running ones end.",
                &INSTANCE,
            ),
            health_checks: of.counters(
                "atalho_health_checks_total",
                "Active health checks of the instance, by result: ok or failed.",
                &with(&INSTANCE, "result"),
            ),
            response_head: of.histograms(
                "atalho_time_to_response_head_seconds",
                "From the last byte of the request sent to the instance until the head of its \
                 response had been read. Many servers (vLLM) send the head before they begin to \
                 work.",
                &INSTANCE,
                FIRST_BYTE_BUCKETS,
            ),
            first_byte: of.histograms(
                "atalho_time_to_first_byte_seconds",
                "From the last byte of the request sent to the instance until the first byte of \
                 its response's body had been read. With streamed=\"true\" (bodies of unknown \
                 length) this is the time to the first token: queueing and prefill. With \
                 streamed=\"false\" it is most of the whole. Responses without a body do not count, \
                 nor those that were handed over to the kernel before their first byte \
                 (engine.hand_over_from_reads or engine.hand_over_from_bytes is 0).",
                &with(&INSTANCE, "streamed"),
                FIRST_BYTE_BUCKETS,
            ),
            duration: of.histograms(
                "atalho_exchange_duration_seconds",
                "From the request's head having been read until the exchange ended.",
                &INSTANCE,
                DURATION_BUCKETS,
            ),
            decision: of.histograms(
                "atalho_decision_seconds",
                "Time spent on deciding where a request goes: parsing its head, scanning its body \
                 for the prefix, ranking and taking an in-flight ticket. Waiting for the client's \
                 bytes is not in it.",
                &["endpoint_name"],
                ADDED_BUCKETS,
            ),
            added: of.histograms(
                "atalho_gateway_added_seconds",
                "Time the gateway added to a request: from having read enough of it to decide \
                 until the rewritten head was sent to the instance (a new connection's set-up \
                 included), plus from having read the response's head until it was sent on.",
                &["endpoint_name"],
                ADDED_BUCKETS,
            ),
            pool_idle: of.gauges(
                "atalho_pool_idle_connections",
                "Connections to the instance that wait for their next request, over all worker \
                 threads.",
                &INSTANCE,
            ),
            pool_connections: of.counters(
                "atalho_pool_connections_total",
                "Connections to the instance by event: opened, reused (taken from the pool), \
                 expired (idle for longer than pool_idle), closed_by_peer (found closed while \
                 idle), discarded (could not be used again after its exchange).",
                &with(&INSTANCE, "event"),
            ),
            retries: of.counters(
                "atalho_retries_total",
                "Requests sent again because the connection to this instance failed before the \
                 first byte of a response: stale (a pooled connection had been closed), connect \
                 (it could not be reached), down (it was found down while the request waited).",
                &with(&INSTANCE, "reason"),
            ),
            cache_hits: of.counters(
                "atalho_instance_prefix_cache_hit_tokens_total",
                "Prompt tokens the instance found in its prefix cache, read from the instance's \
                 own metrics (vLLM: vllm:prefix_cache_hits_total, SGLang: \
                 sglang:cached_tokens_total). Absent where the instance does not export it.",
                &INSTANCE,
            ),
            cache_queries: of.counters(
                "atalho_instance_prefix_cache_query_tokens_total",
                "Prompt tokens the instance looked up in its prefix cache, read from the \
                 instance's own metrics (vLLM: vllm:prefix_cache_queries_total, SGLang: \
                 sglang:prompt_tokens_total). hit_tokens over query_tokens is what prefix-aware \
                 routing is for.",
                &INSTANCE,
            ),
            cache_hit_ratio: of.float_gauges(
                "atalho_instance_prefix_cache_hit_ratio",
                "The hit ratio, 0 to 1, that the instance itself reports as a gauge (SGLang: \
                 sglang:cache_hit_rate).",
                &INSTANCE,
            ),
            body_bytes: of.counters(
                "atalho_body_bytes_total",
                "Body bytes carried, framing included, by what carried them (userspace: read and \
                 written by the gateway; sockmap: moved between its sockets by the kernel; splice: \
                 forwarded by the kernel as packets, whether by tc or by XDP, which \
                 atalho_xdp_packets_total counts) and direction (request, response). Counted when \
                 an engine finishes with a body or hands it on, so a long stream shows at its end.",
                &["engine", "direction"],
            ),
            handovers: of.counters(
                "atalho_handovers_total",
                "Bodies whose rest was handed over to a kernel engine.",
                &["engine", "direction"],
            ),
            fallbacks: of.counters(
                "atalho_fallbacks_total",
                "Times that a kernel engine (sockmap, splice) handed a body back, or did not take it, \
                 by reason. User space carried it on; no byte is lost by it.",
                &["engine", "reason"],
            ),
            learned_reads: of.gauges(
                "atalho_learned_reads",
                "Reads from which on `auto` hands a response of unknown length over to the kernel, as \
                 learned from how long such responses have been. Absent while fewer than 16 were seen.",
                &["endpoint_name", "variant", "api"],
            ),
            top_prefix_share: of.float_gauges(
                "atalho_top_prefix_share",
                "Share, 0 to 1, of a variant's requests that had the most frequent prefix in the \
                 last window (hot_prefix.window); 0 while there were fewer than 100. All requests of a \
                 prefix have one home: above an even share of the instances it is the busiest.",
                &["endpoint_name", "variant"],
            ),
            engine_available: of.gauges(
                "atalho_engine_available",
                "1 while the engine may be used, 0 while it may not. The reason says why: ok, or \
                 what failed (`atalho doctor` prints it at length).",
                &["engine", "reason"],
            ),
            guard_packets: of.counters(
                "atalho_guard_packets_total",
                "Packets to the gateway's ports that the XDP guard judged, by rule.",
                &["rule"],
            ),
            xdp_packets: of.register(IntCounter::new(
                "atalho_xdp_packets_total",
                "Packets that the splice engine forwarded before they became socket buffers.",
            )),
            xdp_interfaces: of.gauges(
                "atalho_xdp_interfaces",
                "Interfaces on which the splice engine was to do so: native, or fallback where the \
                 driver or the kernel refused (the log says why).",
                &["state"],
            ),
            client_connections: of.register(IntCounter::new(
                "atalho_client_connections_total",
                "Client connections accepted.",
            )),
            client_connections_open: of.register(IntGauge::new(
                "atalho_client_connections_open",
                "Client connections open now.",
            )),
            config_reloads: of.counters(
                "atalho_config_reloads_total",
                "Attempts to take over a changed configuration: ok, or failed (the running one \
                 stays; the log says why, with file and line).",
                &["result"],
            ),
            config_generation: of.register(IntGauge::new(
                "atalho_config_generation",
                "Counts up with every configuration that took effect; 1 is the one of the start.",
            )),
            config_applied_at: of.register(IntGauge::new(
                "atalho_config_applied_timestamp_seconds",
                "When the running configuration took effect, in seconds since 1970.",
            )),
            config_last_successful: of.register(IntGauge::new(
                "atalho_config_last_reload_successful",
                "1 while the file's last change is in effect, 0 when it was refused or is only in \
                 effect in part: /status says why. 1 before the first change.",
            )),
            config_last_at: of.register(IntGauge::new(
                "atalho_config_last_reload_timestamp_seconds",
                "When the last change of the file was taken over or refused, in seconds since 1970; \
                 before the first, when the gateway started.",
            )),
        }
    }

    /// Removes every series of these instances, and forgets their names.
    pub(super) fn remove_instances(&self, gone: &mut HashSet<InstanceName>) {
        if gone.is_empty() {
            return;
        }
        remove_matching(&self.requests, gone);
        remove_matching(&self.outcomes, gone);
        remove_matching(&self.responses, gone);
        remove_matching(&self.health_checks, gone);
        remove_matching(&self.pool_connections, gone);
        remove_matching(&self.retries, gone);
        remove_matching(&self.in_flight, gone);
        remove_matching(&self.available, gone);
        remove_matching(&self.draining, gone);
        remove_matching(&self.response_head, gone);
        remove_matching(&self.first_byte, gone);
        remove_matching(&self.duration, gone);
        remove_matching(&self.pool_idle, gone);
        remove_matching(&self.cache_hits, gone);
        remove_matching(&self.cache_queries, gone);
        remove_matching(&self.cache_hit_ratio, gone);
        gone.clear();
    }
}

/// Counts an error reply. `endpoint` is a name of the configuration or empty.
///
/// A look-up by label, unlike what a served request costs: error replies may cost that much.
pub(super) fn count_error(
    errors: &IntCounterVec,
    endpoint: &str,
    status: u16,
    reason: &'static str,
) {
    errors.with_label_values(&[endpoint, &status.to_string(), reason]).inc();
}

/// Removes the series whose instance labels are those of one of `gone`, whatever their other labels.
fn remove_matching<B: MetricVecBuilder>(family: &MetricVec<B>, gone: &HashSet<InstanceName>)
where
    MetricVec<B>: Collector,
{
    for collected in family.collect() {
        for metric in collected.get_metric() {
            let pairs = metric.get_label();
            let value_of = |name: &str| {
                pairs.iter().find(|pair| pair.name() == name).map_or("", |pair| pair.value())
            };
            if gone.contains(&InstanceName::of(INSTANCE.map(value_of))) {
                let all: HashMap<&str, &str> =
                    pairs.iter().map(|pair| (pair.name(), pair.value())).collect();
                // Absent only if another thread removed it first, which is as good.
                let _ = family.remove(&all);
            }
        }
    }
}

fn with<'a>(labels: &[&'a str], last: &'a str) -> Vec<&'a str> {
    labels.iter().copied().chain([last]).collect()
}

/// Builds families and registers them. Names are constants: a mistake in one shows in every test
/// run, so it may panic.
struct Maker<'a> {
    registry: &'a Registry,
}

impl Maker<'_> {
    fn register<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let family = made.expect("a valid name and help text");
        self.registry.register(Box::new(family.clone())).expect("a name not used yet");
        family
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), labels))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels))
    }
}
