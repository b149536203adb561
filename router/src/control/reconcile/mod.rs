//! Makes what is so what was asked for: gives hosts to the endpoints that wait for them, and says of
//! each how far it has come.
//!
//! `plan` is what a round decides, `hosts` who gets which host, `components` which of an endpoint's hosts have
//! copies of its inference components, `adapters` which of these load an adapter, `describe` what that is as the gateway's configuration, `look` how the hosts are that nobody has. What serves is changed before the
//! state says so: who reads `InService` can call at once, and a name that is gone is called no more.

mod adapters;
mod after;
mod components;
mod describe;
mod hosts;
mod look;
mod plan;
mod step;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

pub use self::describe::endpoints;
use self::{
    after::after,
    hosts::Looks,
    look::Looking,
    plan::plan,
    step::{Step, View},
};
use super::{Control, Resources, SettleError};
use crate::config::{Config, EndpointConfig};

/// Between two rounds while something is under way, or a host is missing.
const SOON: Duration = Duration::from_millis(500);

/// What the reconciler works on besides the control plane itself.
pub trait Serving {
    /// The configuration file at this moment.
    fn file(&self) -> impl Future<Output = Arc<Config>>;

    /// How requests ended of the endpoint's variants that are about to replace others: how many have,
    /// and how many of them failed.
    fn trials(&self, endpoint: &str) -> (u64, u64);

    /// How many copies of an adapter have been loaded by their servers, and why others have not, if that is known.
    fn loads(&self, endpoint: &str, adapter: &str) -> (usize, Option<String>);

    /// Has these endpoints serve, besides the file's.
    ///
    /// # Errors
    /// When there is no room for them; then nothing has changed.
    fn serve(&self, endpoints: Vec<EndpointConfig>) -> impl Future<Output = anyhow::Result<()>>;
}

/// Works for ever. `changed` wakes it when the file may have changed.
pub async fn run(control: Arc<Control>, serving: impl Serving, mut changed: watch::Receiver<()>) {
    let mut asked = control.watch();
    let mut file = serving.file().await;
    control.set_file(&file);
    let mut looking = Looking::new();
    loop {
        asked.mark_unchanged();
        changed.mark_unchanged();
        let current = serving.file().await;
        if !Arc::ptr_eq(&current, &file) {
            control.set_file(&current);
            file = current;
        }
        let waiting = match round(&control, &serving, &file, &mut looking).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::error!("control: {error:#}; it is tried again");
                true
            }
        };
        tokio::select! {
            _ = asked.changed() => {}
            _ = changed.changed() => {}
            () = tokio::time::sleep(SOON), if waiting => {}
        }
    }
}

/// One look and what follows from it. Whether there is something to come back for.
async fn round(
    control: &Arc<Control>,
    serving: &impl Serving,
    file: &Config,
    looking: &mut Looking,
) -> anyhow::Result<bool> {
    let resources = control.resources();
    let wanted = plan::wanted(&resources, &file.host_pools);
    let mut waiting = !wanted.is_empty();
    let looks = looking.at(&wanted, &file.health).await;
    let steps = steps(&resources, file, &looks, serving);
    let next = after(&resources, &steps);
    serving.serve(endpoints(&next, &file.host_pools)).await?;
    for step in steps {
        report(&step);
        match settle(control, step).await {
            Ok(()) => {}
            // Somebody asked for something else meanwhile.
            Err(SettleError::Superseded(_)) => waiting = true,
            Err(error) => return Err(error.into()),
        }
    }
    let resources = control.resources();
    let endpoints = resources.endpoints.values().any(|it| it.status.in_progress());
    let components = resources.components.values().any(|it| it.status.in_progress());
    Ok(waiting || endpoints || components)
}

fn steps(resources: &Resources, file: &Config, looks: &Looks, serving: &impl Serving) -> Vec<Step> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    plan(&View {
        resources,
        pools: &file.host_pools,
        looks,
        trials: &|endpoint| serving.trials(endpoint),
        loads: &|endpoint, adapter| serving.loads(endpoint, adapter),
        ready_within: file.control.ready_within,
        now: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    })
}

async fn settle(control: &Arc<Control>, step: Step) -> Result<(), SettleError> {
    let control = Arc::clone(control);
    let settled = tokio::task::spawn_blocking(move || match step {
        Step::Endpoint(name, generation, to) => control.settle(&name, generation, &to),
        Step::Component(name, generation, to) => control.settle_component(&name, generation, &to),
        Step::Gone(key, generation) => control.gone(&key, generation),
    });
    // It panics at most, and the log has its message.
    settled.await.unwrap_or(Ok(()))
}

fn report(step: &Step) {
    match step {
        Step::Component(name, _, to) => {
            let (status, copies) = (to.status.as_str(), to.places.len());
            match &to.failure {
                Some(why) => tracing::warn!(component = name, status, copies, "{why}"),
                None => tracing::info!(component = name, status, copies, "component settled"),
            }
        }
        Step::Endpoint(name, _, to) => match &to.failure {
            Some(why) => tracing::warn!(endpoint = name, status = to.status.as_str(), "{why}"),
            None => {
                tracing::info!(endpoint = name, status = to.status.as_str(), "endpoint settled")
            }
        },
        Step::Gone(key, _) => tracing::info!(resource = %key, "deleted"),
    }
}
