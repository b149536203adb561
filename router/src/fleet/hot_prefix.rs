//! Tells when one prefix takes more than its share of a variant's requests.

use std::{sync::Arc, time::Duration};

use super::{
    Fleet, Variant,
    prefix_shares::{Change, Window},
};
use crate::{config::HotPrefix, metrics::Metrics};

/// Watches the variants of the current fleet for ever. Must run inside a tokio runtime.
pub async fn watch(current: impl Fn() -> Arc<Fleet>, metrics: Arc<Metrics>) {
    loop {
        let HotPrefix { window, windows } = current().config().hot_prefix;
        if window.is_zero() {
            metrics.top_prefix_shares(std::iter::empty());
            // It may be turned on.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        tokio::time::sleep(window).await;
        let fleet = current();
        let mut shares = Vec::new();
        for endpoint in fleet.endpoints() {
            for variant in &endpoint.variants {
                let share = judge(&endpoint.name, variant, windows);
                shares.push(([&*endpoint.name, &*variant.name], share));
            }
        }
        metrics.top_prefix_shares(shares.into_iter());
    }
}

/// Ends a window of a variant, and tells what it showed.
fn judge(endpoint: &str, variant: &Variant, windows: u32) -> f64 {
    let reachable = variant.instances.iter().filter(|i| i.status().reachable()).count();
    let Window { share, key, change } = variant.prefixes.end_window(reachable, windows);
    let variant = &variant.name;
    match change {
        Some(Change::Hot) => tracing::warn!(
            endpoint,
            variant,
            share,
            key = format!("{key:016x}"),
            instances = reachable,
            "one prefix has more than its share of the requests, which makes its instance the \
             busiest: prompts that share a beginning longer than prefix_length look alike"
        ),
        Some(Change::Over) => {
            tracing::info!(endpoint, variant, share, "no prefix has more than its share any more");
        }
        None => {}
    }
    share
}
