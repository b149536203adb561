//! The control thread's care for instances: health checks, name look-ups, their models, their metrics
//! pages.

use std::{cell::Cell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{Change, Check};
use crate::fleet::{
    Fleet, Instance, InstanceId, ListingRounds,
    models::{Known, ModelList},
    probe::{self, Get, ProbeError},
    resolve::resolve,
};
use crate::{
    config::{Config, Health, Models, Scrape},
    metrics::{PAGE_BYTES, PrefixCache},
};

/// Longest answer to a health check that is read, in bytes; the status is what counts.
const CHECK_BYTES: usize = 1 << 20;
/// For one read of a metrics page.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);
/// For one read of a list of models.
const MODELS_LIMIT: Duration = Duration::from_secs(2);
/// Longest list of models that is read, in bytes.
const MODELS_BYTES: usize = 4 << 20;
/// Models of an instance that a log line names.
const SHOWN: usize = 16;

/// Looks after the instances of the current fleet until `fleets` is closed. Each change of `fleets`
/// says that [`Fleet::replace`] has been called, and `current` gives the fleet. Runs within a
/// `LocalSet`.
pub async fn run(current: impl Fn() -> Arc<Fleet>, mut fleets: watch::Receiver<()>) {
    let mut tasks = JoinSet::new();
    let mut cared: HashMap<InstanceId, AbortHandle> = HashMap::new();
    let mut settings = Settings::of(current().config());
    let listed = Rc::new(Listed::default());
    let rounds = Arc::clone(current().rounds());
    tasks.spawn_local({
        let rounds = Arc::clone(&rounds);
        async move { rounds.begin().await }
    });
    loop {
        let fleet = current();
        let wanted = Settings::of(fleet.config());
        if wanted != settings {
            // All begin anew. What is known about the instances stays with them.
            cared.drain().for_each(|(_, task)| task.abort());
            settings = wanted;
        }
        let mut before = std::mem::take(&mut cared);
        for instance in fleet.servers() {
            let task = before.remove(&instance.id).unwrap_or_else(|| {
                let (instance, settings) = (Arc::clone(instance), settings.clone());
                let asking = Asking { rounds: Arc::clone(&rounds), listed: Rc::clone(&listed) };
                tasks.spawn_local(care(instance, settings, asking))
            });
            cared.insert(instance.id, task);
        }
        before.into_values().for_each(|task| task.abort());
        // Whoever holds a fleet keeps its removed instances.
        drop(fleet);
        while tasks.try_join_next().is_some() {}
        loop {
            tokio::select! {
                changed = fleets.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = listed.wake.notified() => {
                    let (fleet, changed) = (current(), listed.changed.take());
                    if changed {
                        fleet.compare_models();
                    }
                    rounds.tell(fleet.complete_round(), changed);
                }
            }
        }
    }
}

#[derive(Clone, PartialEq)]
struct Settings {
    health: Arc<Health>,
    models: Models,
    scrape: Scrape,
}

impl Settings {
    fn of(config: &Config) -> Self {
        let (health, models) = (Arc::new(config.health.clone()), config.models.clone());
        Self { health, models, scrape: config.scrape.clone() }
    }
}

/// What an instance's care has to do with its models.
struct Asking {
    rounds: Arc<ListingRounds>,
    listed: Rc<Listed>,
}

/// Says that an instance was asked for its models.
#[derive(Default)]
struct Listed {
    wake: Notify,
    /// Whether something about them is new.
    changed: Cell<bool>,
}

async fn care(instance: Arc<Instance>, settings: Settings, asking: Asking) {
    let Settings { health, models, scrape } = settings;
    // One that comes up may serve other models than before.
    let up = Notify::new();
    let checks = async {
        if health.active {
            every(&instance, health.interval, async || {
                if check(&instance, &health).await == Some(Change::Up) {
                    up.notify_one();
                }
            })
            .await;
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
    let lists = async {
        if !models.interval.is_zero() {
            let Asking { rounds, listed } = &asking;
            let sooner = async || {
                tokio::select! {
                    () = rounds.after(instance.listed_in()) => {}
                    () = up.notified() => {}
                }
            };
            every_or(&instance, models.interval, sooner, async || {
                let round = rounds.current();
                if instance.set_models(round, list_models(&instance).await) {
                    listed.changed.set(true);
                }
                listed.wake.notify_one();
            })
            .await;
        }
    };
    tokio::join!(checks, lookups, scrapes, lists);
}

/// Does something at once, and then again and again, `interval` from start to start. Each instance
/// has its own place in the interval, by its URL, so that a large fleet is not asked all at once.
async fn every(instance: &Instance, interval: Duration, what: impl AsyncFn()) {
    every_or(instance, interval, std::future::pending, what).await;
}

/// As [`every`], and also when `sooner` says so.
async fn every_or(
    instance: &Instance,
    interval: Duration,
    sooner: impl AsyncFn(),
    what: impl AsyncFn(),
) {
    let mut next = Instant::now() + place(instance.seed, interval);
    loop {
        what().await;
        tokio::select! {
            () = sleep_until(next) => {}
            () = sooner() => continue,
        }
        next += interval;
        let now = Instant::now();
        if next < now {
            // What took longer than the interval is not made up for.
            next = now + interval;
        }
    }
}

/// Where in the interval an instance's second time is: from half of it to the whole.
fn place(seed: u64, interval: Duration) -> Duration {
    interval.mul_f64(0.5 + (seed >> 32) as f64 / 2.0_f64.powi(33))
}

/// Asks an instance for its health, once, and says what that has changed.
pub(super) async fn check(instance: &Instance, health: &Health) -> Option<Change> {
    let (addresses, own) = (instance.addresses(), instance.health_path());
    let request = Get {
        authority: &instance.authority,
        path: own.as_deref().unwrap_or(&health.path),
        headers: &[],
        time_limit: health.timeout,
        size_limit: CHECK_BYTES,
    };
    let (check, why) = match probe::get(&addresses, &request).await {
        // The name's look-up is what has to succeed first.
        Err(ProbeError::Unresolved) => return None,
        Err(error) if error.unreachable() => {
            if error.refused() {
                instance.note_refused();
            }
            (Check::Unreachable, error.to_string())
        }
        Err(error @ ProbeError::Timeout(_)) => (Check::Slow, error.to_string()),
        Err(error) => (Check::Bad, error.to_string()),
        Ok(answer) if answer.status >= 500 => (Check::Bad, format!("status {}", answer.status)),
        Ok(_) => (Check::Good, String::new()),
    };
    instance.metrics.checked(check == Check::Good);
    let change = instance.note_check(check, &why);
    match change {
        Some(Change::Down) => {
            tracing::warn!(instance = instance.url, why, "instance down: its health checks fail");
        }
        Some(Change::Up) => tracing::info!(instance = instance.url, "instance up again"),
        None if check != Check::Good => {
            tracing::debug!(instance = instance.url, why, "health check failed");
        }
        None => {}
    }
    change
}

/// Asks an instance which models it serves. `None` when it does not answer: what it has listed holds
/// then, because that is no reason to send it what it does not serve.
async fn list_models(instance: &Instance) -> Option<Known> {
    let addresses = instance.addresses();
    let request = Get {
        authority: &instance.authority,
        path: "/v1/models",
        headers: &[],
        time_limit: MODELS_LIMIT,
        size_limit: MODELS_BYTES,
    };
    let known = match probe::get(&addresses, &request).await {
        Ok(answer) if answer.status == 200 => ModelList::parse(&answer.body).map(Arc::new),
        // It has no such page, or shows it to nobody without a key.
        Ok(answer) if (400..500).contains(&answer.status) && answer.status != 429 => None,
        Ok(_) | Err(_) => return None,
    };
    if known != instance.models() {
        let models = known.as_deref().map_or("not known".to_owned(), shown);
        tracing::info!(instance = instance.url, models, "models of the instance");
    }
    Some(known)
}

/// The names in a list, the first ones of many.
fn shown(list: &ModelList) -> String {
    let names: Vec<_> = list.ids().take(SHOWN).collect();
    let more = list.ids().count() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    names.join(", ") + &more
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Config, EndpointConfig},
        fleet::{Counters, testing},
        metrics::Metrics,
    };
    use arc_swap::ArcSwap;
    use std::cell::Cell;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        task::LocalSet,
    };

    /// An instance that answers health checks one at a time, as the test says.
    struct Server(TcpListener);

    impl Server {
        async fn start() -> Self {
            Self(TcpListener::bind("127.0.0.1:0").await.expect("loopback"))
        }

        fn url(&self) -> String {
            format!("http://{}", self.0.local_addr().expect("bound"))
        }

        /// Takes the next check's connection, and reads its request.
        async fn asked(&self) -> TcpStream {
            let (mut stream, _) = self.0.accept().await.expect("a check");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut head).await.expect("a request"), 0);
            }
            assert!(head.starts_with(b"GET /health HTTP/1.1\r\n"));
            stream
        }

        /// Answers the next check.
        async fn answer(&self, status: u16) {
            let mut stream = self.asked().await;
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await.expect("the check waits");
        }
    }

    fn config(urls: &[String], interval: u64) -> Config {
        let mut config =
            testing::config(crate::config::Strategy::Random, 1, &vec![1.0; urls.len()]);
        for (instance, url) in config.endpoints[0].variants[0].instances.iter_mut().zip(urls) {
            instance.url = url.parse().expect("a valid URL");
        }
        config.health.interval = Duration::from_millis(interval);
        config.health.timeout = Duration::from_secs(10);
        config.scrape.interval = Duration::ZERO;
        config.models.interval = Duration::ZERO;
        config
    }

    #[tokio::test]
    async fn one_check_says_what_the_instance_answers() {
        let server = Server::start().await;
        let config = config(&[server.url()], 1000);
        let health = config.health.clone();
        let fleet = testing::fleet(config);
        let instance = fleet.instances().next().expect("one").2;
        let one = async |status| {
            tokio::join!(check(instance, &health), server.answer(status));
            instance.status().as_str()
        };
        // Anything but a 5xx is a sign of life.
        for status in [200, 204, 301, 401, 404, 429] {
            assert_eq!(one(status).await, "up");
        }
        assert_eq!([one(500).await, one(503).await, one(500).await], ["up", "up", "down"]);
        assert_eq!([one(200).await, one(200).await], ["down", "up"]);
    }

    #[tokio::test]
    async fn a_check_that_gets_no_answer_in_time_is_a_bad_one() {
        let server = Server::start().await;
        let config = config(&[server.url()], 1000);
        let health = Health { timeout: Duration::from_millis(5), fall: 3, ..config.health.clone() };
        let fleet = testing::fleet(config);
        let instance = fleet.instances().next().expect("one").2;
        for expected in ["up", "up", "down"] {
            let mut stream = None;
            tokio::join!(check(instance, &health), async { stream = Some(server.asked().await) });
            assert_eq!(instance.status().as_str(), expected);
        }
    }

    #[tokio::test]
    async fn an_instance_dies_and_comes_back_and_the_loop_follows_reloads() {
        let (first, second) = (Server::start().await, Server::start().await);
        let counters = Counters::heap(8);
        let metrics = Metrics::new();
        let build = |config: Config, previous: Option<&Fleet>| {
            let fleet = Fleet::build(&Arc::new(config), previous, &counters, &metrics);
            Arc::new(fleet.expect("enough counters"))
        };
        let current = Arc::new(ArcSwap::new(build(config(&[first.url()], 10), None)));
        let (changed, fleets) = watch::channel(());
        let local = LocalSet::new();
        let get = {
            let current = Arc::clone(&current);
            move || current.load_full()
        };
        local.spawn_local(run(get, fleets));
        let test = async {
            let instance = Arc::clone(current.load().instances().next().expect("one").2);
            // The check after the nth begins when the nth has been noted.
            for _ in 0..2 {
                first.answer(200).await;
            }
            for _ in 0..3 {
                assert!(instance.available());
                first.answer(500).await;
            }
            first.answer(200).await;
            assert_eq!(instance.status().as_str(), "down");
            first.answer(200).await;
            first.answer(200).await;
            assert_eq!(instance.status().as_str(), "up");

            // A reload brings the second one in, and leaves the first one's care as it is.
            let both = config(&[first.url(), second.url()], 10);
            build(both, Some(&current.load())).replace(&current);
            changed.send_replace(());
            second.answer(200).await;
            first.answer(200).await;

            // A reload that takes the first one out ends its checks.
            let only = config(&[second.url()], 10);
            build(only, Some(&current.load())).replace(&current);
            changed.send_replace(());
            second.answer(200).await;
            assert_eq!(instance.status().as_str(), "removed");
            let more = Cell::new(0);
            tokio::select! {
                () = async { loop { first.asked().await; more.set(more.get() + 1); } } => {}
                () = async { for _ in 0..20 { second.answer(200).await; } } => {}
            }
            assert!(more.get() <= 1, "at most the check that was under way");
            drop(instance);

            // Checks turned off: what they had found is forgotten.
            let instance = Arc::clone(current.load().instances().next().expect("one").2);
            testing::down(&instance);
            let mut off = config(&[second.url()], 10);
            off.health.active = false;
            build(off, Some(&current.load())).replace(&current);
            changed.send_replace(());
            assert!(instance.available());
            drop(changed);
        };
        local.run_until(test).await;
        // With no more changes to come, the loop ends, and all its tasks with it.
        local.await;
    }

    #[tokio::test]
    async fn a_fleet_without_instances_or_endpoints_is_looked_after_too() {
        for endpoints in [vec![], vec![EndpointConfig::new("e", vec![])]] {
            let fleet = Arc::new(testing::fleet(Config { endpoints, ..Config::default() }));
            let (changed, fleets) = watch::channel(());
            drop(changed);
            LocalSet::new().run_until(run(move || Arc::clone(&fleet), fleets)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_the_instance_s_own_and_do_not_drift() {
        let fleet = testing::fleet(testing::config(crate::config::Strategy::Random, 1, &[1.0; 8]));
        let interval = Duration::from_secs(10);
        let mut places = Vec::new();
        for (_, _, instance) in fleet.instances() {
            let start = Instant::now();
            let times = std::cell::RefCell::new(Vec::new());
            let slow_once = Cell::new(true);
            let work = every(instance, interval, async || {
                times.borrow_mut().push(start.elapsed());
                if times.borrow().len() == 3 && slow_once.replace(false) {
                    tokio::time::sleep(Duration::from_secs(35)).await;
                }
            });
            let _ = tokio::time::timeout(Duration::from_secs(80), work).await;
            let times = times.into_inner();
            assert_eq!(times[0], Duration::ZERO);
            let place = times[1];
            assert!((interval / 2..=interval).contains(&place), "{place:?}");
            // The third one takes 35 s. The fourth follows at once, the fifth 10 s later.
            let close = |a: Duration, b: Duration| a.abs_diff(b) < Duration::from_millis(5);
            let expected = [10, 45, 55].map(|after| place + Duration::from_secs(after));
            for (time, expected) in times[2..].iter().zip(expected) {
                assert!(close(*time, expected), "{times:?}");
            }
            places.push(place);
        }
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8, "not all at once");
    }
}
