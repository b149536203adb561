//! Metrics under the names that vLLM uses, so that what scrapes a vLLM can scrape this.

use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

use super::scheduler::{Phase, Scheduler};

/// All metrics of one simulated host.
pub struct Metrics {
    registry: Registry,
    running: Gauge,
    waiting: Gauge,
    usage: Gauge,
    queries: Counter,
    hits: Counter,
    evicted: Counter,
    /// Prompt tokens of accepted requests.
    pub prompt_tokens: IntCounter,
    /// Tokens generated.
    pub generated_tokens: IntCounter,
    /// Seconds from acceptance to the first token.
    pub first_token: Histogram,
    /// Seconds from acceptance to the last token.
    pub latency: Histogram,
    /// Requests answered in full.
    pub finished: IntCounter,
    /// Connections that are open.
    pub connections: IntGauge,
    requests: IntCounterVec,
    cancelled: IntCounterVec,
}

impl Metrics {
    /// Metrics of a host that serves `model`.
    pub fn new(model: &str) -> Self {
        let registry = Registry::new();
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("model_name", model);
        // The names are constants and differ, so neither creation nor registration can fail.
        macro_rules! register {
            ($metric:expr) => {{
                let metric = $metric.expect("a valid metric name");
                registry.register(Box::new(metric.clone())).expect("a name used once");
                metric
            }};
        }
        let gauge = |name, help| Gauge::with_opts(opts(name, help));
        let counter = |name, help| Counter::with_opts(opts(name, help));
        let seconds = |name: &str, help: &str| {
            Histogram::with_opts(
                HistogramOpts::new(name, help).const_label("model_name", model).buckets(vec![
                    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5,
                    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
                ]),
            )
        };
        Self {
            running: register!(gauge("vllm:num_requests_running", "Requests in the batch.")),
            waiting: register!(gauge("vllm:num_requests_waiting", "Requests in the queue.")),
            usage: register!(gauge(
                "vllm:kv_cache_usage_perc",
                "Share of the KV cache that running requests hold, 0 to 1."
            )),
            queries: register!(counter(
                "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache."
            )),
            hits: register!(counter(
                "vllm:prefix_cache_hits_total",
                "Prompt tokens found in the prefix cache."
            )),
            evicted: register!(counter(
                "sim_cache_blocks_evicted_total",
                "Blocks thrown out of the KV cache to make room."
            )),
            prompt_tokens: register!(IntCounter::with_opts(opts(
                "vllm:prompt_tokens_total",
                "Prompt tokens of accepted requests."
            ))),
            generated_tokens: register!(IntCounter::with_opts(opts(
                "vllm:generation_tokens_total",
                "Tokens generated."
            ))),
            first_token: register!(seconds(
                "vllm:time_to_first_token_seconds",
                "From acceptance to the first token."
            )),
            latency: register!(seconds(
                "vllm:e2e_request_latency_seconds",
                "From acceptance to the last token."
            )),
            finished: register!(IntCounter::with_opts(opts(
                "vllm:request_success_total",
                "Requests answered in full."
            ))),
            connections: register!(IntGauge::with_opts(opts(
                "sim_connections_open",
                "Connections that are open."
            ))),
            requests: register!(IntCounterVec::new(
                opts("sim_requests_total", "Requests accepted, by API."),
                &["api"]
            )),
            cancelled: register!(IntCounterVec::new(
                opts(
                    "sim_requests_cancelled_total",
                    "Requests whose client left or which a fault cut off, by where they stood."
                ),
                &["phase"]
            )),
            registry,
        }
    }

    /// A request for `api` was accepted.
    pub fn accepted(&self, api: &str) {
        self.requests.with_label_values(&[api]).inc();
    }

    /// A client left while its request stood in `phase`, or, without one, before it had taken all
    /// that was generated for it.
    pub fn cancelled(&self, phase: Option<Phase>) {
        let phase = match phase {
            Some(Phase::Queue) => "queue",
            Some(Phase::Prefill) => "prefill",
            Some(Phase::Decode) => "decode",
            None => "delivery",
        };
        self.cancelled.with_label_values(&[phase]).inc();
    }

    /// Requests cancelled so far, wherever they stood.
    pub fn cancelled_total(&self) -> u64 {
        ["queue", "prefill", "decode", "delivery"]
            .iter()
            .map(|phase| self.cancelled.with_label_values(&[*phase]).get())
            .sum()
    }

    /// Takes over what the scheduler counts itself.
    pub fn observe(&self, scheduler: &Scheduler) {
        self.running.set(scheduler.running() as f64);
        self.waiting.set(scheduler.waiting() as f64);
        let cache = scheduler.cache();
        self.usage.set(cache.pinned() as f64 / cache.capacity() as f64);
        let (queries, hits) = scheduler.prefix_tokens();
        let raise =
            |counter: &Counter, to: u64| counter.inc_by((to as f64 - counter.get()).max(0.0));
        raise(&self.queries, queries);
        raise(&self.hits, hits);
        raise(&self.evicted, cache.evicted());
    }

    /// The exposition text.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut out)
            .expect("writing to memory does not fail");
        out
    }
}
