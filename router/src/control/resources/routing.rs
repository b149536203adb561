//! `RoutingConfig`, as the API has it.

use serde_json::{Value, json};

use super::VariantSpec;
use crate::config::Strategy;

/// `RoutingConfig` of a variant.
pub fn routing_config(spec: &VariantSpec) -> Value {
    let strategy = match spec.strategy {
        Strategy::PrefixAware => "PREFIX_AWARE",
        Strategy::LeastOutstandingRequests => "LEAST_OUTSTANDING_REQUESTS",
        Strategy::Random => "RANDOM",
    };
    let mut config = json!({ "RoutingStrategy": strategy });
    if let Some((length, threshold)) = spec.prefix_length.zip(spec.concurrency_threshold) {
        config["PrefixAwareRoutingConfig"] =
            json!({ "PrefixLength": length, "ConcurrencyThreshold": threshold });
    }
    config
}
