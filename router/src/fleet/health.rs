//! The control thread's care for instances: health checks, name look-ups, their metrics pages.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{
    Fleet, Instance, InstanceId,
    health_state::{Change, Check},
    probe::{self, Get, ProbeError},
    resolve::resolve,
};
use crate::{
    config::{Config, Health, Scrape},
    metrics::{PAGE_BYTES, PrefixCache},
};

/// Longest answer to a health check that is read, in bytes; the status is what counts.
const CHECK_BYTES: usize = 1 << 20;
/// For one read of a metrics page.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// Looks after the instances of the current fleet until `fleets` is closed. Each change of `fleets`
/// says that [`Fleet::replace`] has been called, and `current` gives the fleet. Runs within a
/// `LocalSet`.
pub async fn run(current: impl Fn() -> Arc<Fleet>, mut fleets: watch::Receiver<()>) {
    let mut tasks = JoinSet::new();
    let mut cared: HashMap<InstanceId, AbortHandle> = HashMap::new();
    let mut settings = Settings::of(current().config());
    loop {
        let fleet = current();
        let wanted = Settings::of(fleet.config());
        if wanted != settings {
            // All begin anew. What is known about the instances stays with them.
            cared.drain().for_each(|(_, task)| task.abort());
            settings = wanted;
        }
        let mut before = std::mem::take(&mut cared);
        for (_, _, instance) in fleet.instances() {
            let task = before
                .remove(&instance.id)
                .unwrap_or_else(|| tasks.spawn_local(care(Arc::clone(instance), settings.clone())));
            cared.insert(instance.id, task);
        }
        before.into_values().for_each(|task| task.abort());
        // Whoever holds a fleet keeps its removed instances.
        drop(fleet);
        while tasks.try_join_next().is_some() {}
        if fleets.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Clone, PartialEq)]
struct Settings {
    health: Arc<Health>,
    scrape: Scrape,
}

impl Settings {
    fn of(config: &Config) -> Self {
        Self { health: Arc::new(config.health.clone()), scrape: config.scrape.clone() }
    }
}

async fn care(instance: Arc<Instance>, settings: Settings) {
    let Settings { health, scrape } = settings;
    let checks = async {
        if health.active {
            every(&instance, health.interval, async || check(&instance, &health).await).await;
        }
    };
    let lookups = async {
        if instance.named() {
            every(&instance, health.resolve, async || resolve(&instance).await).await;
        }
    };
    let scrapes = async {
        if !scrape.interval.is_zero() {
            every(&instance, scrape.interval, async || read_metrics(&instance, &scrape).await)
                .await;
        }
    };
    tokio::join!(checks, lookups, scrapes);
}

/// Does something at once, and then again and again, `interval` from start to start. Each instance
/// has its own place in the interval, by its URL, so that a large fleet is not asked all at once.
async fn every(instance: &Instance, interval: Duration, what: impl AsyncFn()) {
    let mut next = Instant::now() + place(instance.seed, interval);
    loop {
        what().await;
        sleep_until(next).await;
        // What took longer than the interval is not made up for.
        next = (next + interval).max(Instant::now());
    }
}

/// Where in the interval an instance's second time is: from half of it to the whole.
fn place(seed: u64, interval: Duration) -> Duration {
    interval.mul_f64(0.5 + (seed >> 32) as f64 / 2.0_f64.powi(33))
}

/// Asks an instance for its health, once.
pub(super) async fn check(instance: &Instance, health: &Health) {
    let addresses = instance.addresses();
    let request = Get {
        authority: &instance.authority,
        path: &health.path,
        headers: &[],
        time_limit: health.timeout,
        size_limit: CHECK_BYTES,
    };
    let (check, why) = match probe::get(&addresses, &request).await {
        // The name's look-up is what has to succeed first.
        Err(ProbeError::Unresolved) => return,
        Err(error) if error.unreachable() => (Check::Unreachable, error.to_string()),
        Err(error) => (Check::Bad, error.to_string()),
        Ok(answer) if answer.status >= 500 => (Check::Bad, format!("status {}", answer.status)),
        Ok(_) => (Check::Good, String::new()),
    };
    instance.metrics.checked(check == Check::Good);
    match instance.note_check(check) {
        Some(Change::Down) => {
            tracing::warn!(instance = instance.url, why, "instance down: its health checks fail");
        }
        Some(Change::Up) => tracing::info!(instance = instance.url, "instance up again"),
        None if check != Check::Good => {
            tracing::debug!(instance = instance.url, why, "health check failed");
        }
        None => {}
    }
}

/// Reads what an instance's metrics page says about its prefix cache. An instance without such a
/// page is nothing to complain about.
async fn read_metrics(instance: &Instance, scrape: &Scrape) {
    let addresses = instance.addresses();
    let request = Get {
        authority: &instance.authority,
        path: &scrape.path,
        headers: &[],
        time_limit: SCRAPE_LIMIT,
        size_limit: PAGE_BYTES,
    };
    match probe::get(&addresses, &request).await {
        Ok(page) if page.status == 200 => {
            let seen = PrefixCache::parse(&String::from_utf8_lossy(&page.body));
            if !seen.is_empty() {
                instance.metrics.prefix_cache(&seen);
            }
        }
        Ok(page) => {
            let status = page.status;
            tracing::debug!(instance = instance.url, status, "no metrics page");
        }
        Err(error) => tracing::debug!(instance = instance.url, %error, "no metrics page"),
    }
}
