//! What is in force, and the one way in which it is replaced.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::fixed::keep_fixed;
use crate::{
    config::{Config, ConfigError, EndpointConfig},
    fleet::{self, BuildError, Counters, Fleet},
    metrics::Metrics,
};

/// How long a change waits for the addresses of new host names.
const RESOLVE: Duration = Duration::from_secs(2);

/// A configuration that was taken over.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Reloaded {
    /// What is in force now, endpoints of the control API included.
    pub(in crate::gateway) config: Arc<Config>,
    /// Settings that the file changes but that stay as they are until a restart.
    pub(in crate::gateway) ignored: Vec<&'static str>,
}

/// Why a configuration was not taken over.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ReloadError {
    /// The file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is right, but there is no room for its fleet.
    #[error(transparent)]
    Fleet(#[from] BuildError),
}

/// What is in force: what the configuration file says, and the endpoints that the control API adds.
pub(in crate::gateway) struct InForce<'a> {
    fleet: &'a ArcSwap<Fleet>,
    counters: &'a Counters,
    pub(super) metrics: &'a Metrics,
    /// One change at a time: each is made of what the one before it left.
    parts: Mutex<Parts>,
}

/// What a configuration is made of.
pub(in crate::gateway) struct Parts {
    /// What the file says.
    pub(in crate::gateway) file: Arc<Config>,
    /// What the control API adds.
    pub(in crate::gateway) added: Vec<EndpointConfig>,
}

impl Parts {
    /// The whole configuration.
    pub(in crate::gateway) fn composed(&self) -> Arc<Config> {
        composed(&self.file, &self.added)
    }
}

impl<'a> InForce<'a> {
    /// The fleet is that of these parts.
    pub(in crate::gateway) fn new(
        fleet: &'a ArcSwap<Fleet>,
        parts: Parts,
        counters: &'a Counters,
        metrics: &'a Metrics,
    ) -> Self {
        Self { fleet, counters, metrics, parts: Mutex::new(parts) }
    }

    /// Takes over what the file says now. Without `force`, `None` when that is in force already.
    ///
    /// # Errors
    /// When its fleet has no room. Nothing has changed then.
    pub(super) async fn take_over_file(
        &self,
        mut config: Config,
        force: bool,
    ) -> Result<Option<Reloaded>, ReloadError> {
        let mut parts = self.parts.lock().await;
        if !force && config == *parts.file {
            return Ok(None);
        }
        let ignored = keep_fixed(&mut config, &parts.file);
        let file = Arc::new(config);
        let config = self.replace(&file, &parts.added).await?;
        parts.file = file;
        Ok(Some(Reloaded { config, ignored }))
    }

    /// Takes over the endpoints of the control API. One with the name of an endpoint of the file is
    /// left out. `false` when they are in force already.
    ///
    /// # Errors
    /// When their fleet has no room. Nothing has changed then.
    pub(in crate::gateway) async fn take_over_endpoints(
        &self,
        added: Vec<EndpointConfig>,
    ) -> Result<bool, BuildError> {
        let mut parts = self.parts.lock().await;
        if added == parts.added {
            return Ok(false);
        }
        self.replace(&parts.file, &added).await?;
        parts.added = added;
        Ok(true)
    }

    /// Lets nothing change until the result is dropped.
    pub(in crate::gateway) async fn freeze(&self) -> impl Sized + '_ {
        self.parts.lock().await
    }

    /// What the file says.
    pub(in crate::gateway) async fn file(&self) -> Arc<Config> {
        Arc::clone(&self.parts.lock().await.file)
    }

    /// How requests ended of the endpoint's variants that are about to replace others.
    pub(in crate::gateway) fn trials(&self, endpoint: &str) -> (u64, u64) {
        let fleet = self.fleet.load();
        let variants = fleet.endpoint(endpoint).into_iter().flat_map(|it| &it.variants);
        let trials = variants.filter_map(|variant| variant.trial.as_ref()).map(|it| it.counts());
        trials.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    }

    /// How many copies of an adapter have been loaded, and why another one has not.
    pub(in crate::gateway) fn loads(
        &self,
        endpoint: &str,
        adapter: &str,
    ) -> (usize, Option<String>) {
        let fleet = self.fleet.load();
        let copies = fleet.endpoint(endpoint).and_then(|it| it.components.get(adapter));
        let copies = copies.map_or(&[][..], |it| &it.instances);
        let loaded = copies.iter().filter(|copy| !copy.status().loading()).count();
        let failure = copies.iter().find_map(|copy| {
            let why = copy.adapter_failure().filter(|_| copy.status().loading())?;
            Some(format!("{}: {why}", copy.url))
        });
        (loaded, failure)
    }

    async fn replace(
        &self,
        file: &Arc<Config>,
        added: &[EndpointConfig],
    ) -> Result<Arc<Config>, BuildError> {
        let config = composed(file, added);
        let old = self.fleet.load_full();
        let new = Fleet::build(&config, Some(&old), self.counters, self.metrics)?;
        drop(old);
        fleet::resolve_new(&new, RESOLVE).await;
        Arc::new(new).replace(self.fleet);
        Ok(config)
    }
}

/// The whole configuration. The file's endpoints come first, so that requests that name none keep
/// theirs.
fn composed(file: &Arc<Config>, added: &[EndpointConfig]) -> Arc<Config> {
    let is_new =
        |endpoint: &&EndpointConfig| file.endpoints.iter().all(|e| e.name != endpoint.name);
    let added: Vec<_> = added.iter().filter(is_new).cloned().collect();
    if added.is_empty() {
        return Arc::clone(file);
    }
    let mut config = Config::clone(file);
    config.endpoints.extend(added);
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Strategy, fleet::testing};

    fn endpoint(name: &str, host: u8) -> EndpointConfig {
        let mut config = testing::config(Strategy::PrefixAware, 10, &[1.0]);
        let mut endpoint = config.endpoints.remove(0);
        endpoint.name = name.into();
        endpoint.variants[0].instances[0].url =
            format!("http://10.0.0.{host}:8000").parse().expect("valid");
        endpoint
    }

    fn file(endpoints: Vec<EndpointConfig>) -> Config {
        Config { endpoints, ..Config::default() }
    }

    #[tokio::test]
    async fn file_and_control_api_keep_each_others_endpoints() {
        let (counters, metrics) = (Counters::heap(5), Metrics::new());
        let config = Arc::new(file(vec![endpoint("a", 1)]));
        let fleet = Fleet::build(&config, None, &counters, &metrics).expect("room");
        let fleet = ArcSwap::from_pointee(fleet);
        let names = || -> Vec<_> {
            fleet.load().endpoints().iter().map(|endpoint| endpoint.name.clone()).collect()
        };
        let parts = Parts { file: Arc::clone(&config), added: Vec::new() };
        let in_force = InForce::new(&fleet, parts, &counters, &metrics);
        let made = vec![endpoint("b", 2), endpoint("c", 3)];
        assert!(in_force.take_over_endpoints(made.clone()).await.expect("room"));
        assert!(!in_force.take_over_endpoints(made).await.expect("room"), "nothing new");
        assert_eq!(names(), ["a", "b", "c"]);
        let b = Arc::clone(fleet.load().instances().nth(1).expect("three").2);

        // A reload that changes nothing is none, whatever was added.
        let same = in_force.take_over_file(Config::clone(&config), false).await.expect("room");
        assert!(same.is_none());
        let changed = Config { access_log: true, ..file(vec![endpoint("d", 4), endpoint("c", 1)]) };
        let reloaded = in_force.take_over_file(changed.clone(), false).await.expect("room");
        assert_eq!(reloaded.expect("changed").config.endpoints.len(), 3);
        // The file comes first, and goes before.
        assert_eq!(names(), ["d", "c", "b"]);
        assert!(fleet.load().config().access_log);
        let instance = |n| Arc::clone(fleet.load().instances().nth(n).expect("three").2);
        assert_eq!(instance(1).url, "http://10.0.0.1:8000");
        assert!(Arc::ptr_eq(&b, &instance(2)), "untouched by all that");
        assert_eq!(*in_force.file().await, changed);

        assert!(in_force.take_over_endpoints(Vec::new()).await.expect("room"));
        assert_eq!(names(), ["d", "c"]);
        // No room: as it was.
        let many = (10..15).map(|host| endpoint(&format!("e{host}"), host)).collect();
        in_force.take_over_endpoints(many).await.expect_err("five slots");
        assert_eq!(names(), ["d", "c"]);
        assert!(in_force.take_over_endpoints(vec![endpoint("b", 2)]).await.expect("room"));
        assert_eq!(names(), ["d", "c", "b"]);
        assert!(Arc::ptr_eq(&b, &instance(2)), "somebody is still there: as busy as it was");
    }
}
