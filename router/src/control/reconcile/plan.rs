//! What is to be done next: a pure function of what exists, of the pools and of how their hosts are.

use std::time::Duration;

use super::{
    after::after,
    components,
    describe::health_path,
    hosts::{Hosts, Looks, placed, placed_mut},
    step::{Look, Step, View, shortened},
};
use crate::{
    config::HostPool,
    control::{
        Deployment, Endpoint, EndpointStatus, Pending, Resources, Rollout, Settled, Wanted,
        resources::Key,
    },
};

/// What has come to pass, and what is to be done about it. Older endpoints are served first.
pub(super) fn plan(view: &View<'_>) -> Vec<Step> {
    let mut hosts = Hosts::new(view.pools, view.looks, taken(view.resources));
    let mut endpoints: Vec<&Endpoint> =
        view.resources.endpoints.values().map(AsRef::as_ref).collect();
    endpoints.sort_by_key(|endpoint| (endpoint.created, &endpoint.name));
    let steps = endpoints.into_iter().filter_map(|endpoint| step(view, &mut hosts, endpoint));
    let mut steps: Vec<_> = steps.collect();
    // They go where the endpoints are from now on.
    steps.extend(components::steps(view, &after(view.resources, &steps)));
    steps
}

/// Hosts that are worth a look, each with its own path for that, if it has one: those that could be given to somebody
/// who wants more than there is.
pub(super) fn wanted(resources: &Resources, pools: &[HostPool]) -> Vec<Look> {
    let looks = Looks::new();
    let hosts = Hosts::new(pools, &looks, taken(resources));
    let mut wanted: Vec<Look> = Vec::new();
    for endpoint in resources.endpoints.values() {
        let deployment = match &endpoint.pending {
            Some(pending) => Some(&pending.deployment),
            None => endpoint.serving.as_ref(),
        };
        let short = deployment
            .into_iter()
            .flat_map(placed)
            .filter(|variant| variant.hosts.len() < variant.count.desired as usize);
        for variant in short {
            let path = variant.model.as_ref().and_then(health_path);
            for host in hosts.free(&variant.spec) {
                if wanted.iter().all(|look| look.host != host) {
                    wanted.push(Look { host, path: path.clone() });
                }
            }
        }
    }
    wanted.extend(components::wanted(resources, pools));
    wanted
}

fn taken(resources: &Resources) -> impl Iterator<Item = &String> {
    resources.endpoints.values().flat_map(|endpoint| {
        let pending = endpoint.pending.as_ref().map(|pending| &pending.deployment);
        let deployments = endpoint.serving.iter().chain(pending);
        deployments.flat_map(placed).flat_map(|variant| &variant.hosts)
    })
}

fn step(view: &View<'_>, hosts: &mut Hosts<'_>, endpoint: &Endpoint) -> Option<Step> {
    let settled = match (endpoint.status, &endpoint.pending) {
        (EndpointStatus::Deleting, _) => {
            return Some(Step::Gone(Key::endpoint(&endpoint.name), endpoint.generation));
        }
        (EndpointStatus::Failed | EndpointStatus::OutOfService, _) => return None,
        (_, Some(pending)) if pending.shifted.is_some() => shift(view, endpoint, pending)?,
        (_, Some(pending)) => advance(view, hosts, endpoint, pending)?,
        (EndpointStatus::Updating, None) => resize(view, hosts, endpoint)?,
        (_, None) => mend(hosts, endpoint)?,
    };
    (settled != Settled::of(endpoint))
        .then(|| Step::Endpoint(endpoint.name.clone(), endpoint.generation, settled.into()))
}

/// A deployment that waits for its hosts gets them, or is given up.
fn advance(
    view: &View<'_>,
    hosts: &mut Hosts<'_>,
    endpoint: &Endpoint,
    pending: &Pending,
) -> Option<Settled> {
    let gradual = endpoint.serving.is_some() && pending.rollout != Rollout::all_at_once();
    let assigned = match &endpoint.serving {
        Some(serving) if gradual => hosts.assign_beside(&pending.deployment, serving),
        serving => hosts.assign(&pending.deployment, serving.as_ref()),
    };
    match assigned {
        Ok(mut deployment) if gradual => {
            placed_mut(&mut deployment).for_each(|it| it.count.current = it.count.desired);
            let traffic = pending.rollout.steps.first().map_or(100, |step| step.traffic);
            let shifted = Some(view.now);
            let pending = Pending { deployment, traffic, shifted, ..pending.clone() };
            Some(Settled { pending: Some(pending), ..Settled::of(endpoint) })
        }
        Ok(deployment) => Some(arrived(deployment)),
        Err(missing) => {
            let waited = Duration::from_millis(view.now.saturating_sub(pending.started));
            (waited >= limit(view, &pending.deployment))
                .then(|| give_up(endpoint, pending, &missing, waited))
        }
    }
}

/// How long a deployment may wait: as long as its most patient variant.
fn limit(view: &View<'_>, deployment: &Deployment) -> Duration {
    let own = placed(deployment).filter_map(|variant| variant.spec.ready_within).max();
    own.map_or(view.ready_within, |seconds| Duration::from_secs(seconds.into()))
}

fn give_up(endpoint: &Endpoint, pending: &Pending, missing: &str, waited: Duration) -> Settled {
    let seconds = waited.as_secs();
    let failure = match endpoint.serving {
        None => format!("Not enough healthy hosts within {seconds} s: {missing}."),
        Some(_) => format!(
            "The update to {} was given up after {seconds} s for want of healthy hosts: {missing}. \
             The endpoint serves as before.",
            pending.deployment.config
        ),
    };
    let failure = shortened(failure);
    let status = match endpoint.serving {
        None => EndpointStatus::Failed,
        Some(_) => EndpointStatus::InService,
    };
    Settled { status, failure: Some(failure), serving: endpoint.serving.clone(), pending: None }
}

/// What was wanted holds from here on.
fn arrived(mut deployment: Deployment) -> Settled {
    for variant in placed_mut(&mut deployment) {
        variant.weight = Wanted::settled(variant.weight.desired);
        variant.count = Wanted::settled(variant.count.desired);
    }
    Settled {
        status: EndpointStatus::InService,
        failure: None,
        serving: Some(deployment),
        pending: None,
    }
}

/// The next step of a deployment that requests are moving to, if it is time for it, or the way back.
fn shift(view: &View<'_>, endpoint: &Endpoint, pending: &Pending) -> Option<Settled> {
    let Rollout { steps, termination_wait, timeout, max_error_percent } = &pending.rollout;
    let (requests, failed) = (view.trials)(&endpoint.name);
    if let Some(most) = max_error_percent
        && requests >= TELLING
        && failed as f64 * 100.0 >= most * requests as f64
    {
        let why =
            format!("{failed} of its {requests} requests failed (at most {most} percent may)");
        return Some(roll_back(endpoint, pending, &why));
    }
    let since = |then: u64| Duration::from_millis(view.now.saturating_sub(then));
    let elapsed = since(pending.started);
    if let Some(limit) = timeout.filter(|limit| elapsed >= Duration::from_secs((*limit).into())) {
        let why = format!("it was not done within {limit} s");
        return Some(roll_back(endpoint, pending, &why));
    }
    let at = steps.iter().position(|step| step.traffic == pending.traffic);
    let next = at.and_then(|at| steps.get(at + 1));
    let mut wait = at.map_or(0, |at| steps[at].wait);
    if next.is_none() {
        wait = wait.saturating_add(*termination_wait);
    }
    if since(pending.shifted?) < Duration::from_secs(wait.into()) {
        return None;
    }
    Some(match next {
        Some(step) => {
            let (traffic, shifted) = (step.traffic, Some(view.now));
            let pending = Pending { traffic, shifted, ..pending.clone() };
            Settled { pending: Some(pending), ..Settled::of(endpoint) }
        }
        None => arrived(pending.deployment.clone()),
    })
}

/// Requests that have to have ended before their failures say anything.
const TELLING: u64 = 10;

/// Everything goes where it went before. That takes no time: what served before still does.
fn roll_back(endpoint: &Endpoint, pending: &Pending, why: &str) -> Settled {
    Settled {
        status: EndpointStatus::InService,
        failure: Some(format!(
            "The update to {} was rolled back at {} percent of the requests: {why}. The endpoint \
             serves as before.",
            pending.deployment.config, pending.traffic
        )),
        serving: endpoint.serving.clone(),
        pending: None,
    }
}

/// What serves gets the weights and numbers that were asked for.
fn resize(view: &View<'_>, hosts: &mut Hosts<'_>, endpoint: &Endpoint) -> Option<Settled> {
    let serving = endpoint.serving.as_ref()?;
    match hosts.assign(serving, Some(serving)) {
        Ok(deployment) => Some(arrived(deployment)),
        Err(missing) => {
            let waited = Duration::from_millis(view.now.saturating_sub(endpoint.modified));
            if waited < limit(view, serving) {
                return None;
            }
            let mut serving = serving.clone();
            for variant in placed_mut(&mut serving) {
                variant.weight = Wanted::settled(variant.weight.desired);
                variant.count.desired = variant.count.current;
            }
            let failure = format!(
                "The change of capacity was given up after {} s: {missing}.",
                waited.as_secs()
            );
            Some(Settled {
                status: EndpointStatus::InService,
                failure: Some(shortened(failure)),
                serving: Some(serving),
                pending: None,
            })
        }
    }
}

/// Hosts that left their pool are replaced, as far as there are others.
fn mend(hosts: &mut Hosts<'_>, endpoint: &Endpoint) -> Option<Settled> {
    let mut settled = Settled::of(endpoint);
    placed_mut(settled.serving.as_mut()?).for_each(|variant| hosts.mend(variant));
    Some(settled)
}
