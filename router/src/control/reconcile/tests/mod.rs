mod components;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    describe::endpoints,
    hosts::{Looks, placed},
    plan::{plan, wanted},
    step::{Step, View},
    *,
};
use crate::{
    config::{HostPool, Strategy},
    control::{
        Deployment, Endpoint, EndpointStatus, Pending, Placed, Rollout, VariantSpec, Wanted,
        resources::{InstancePool, Key},
    },
};

const P5: &str = "ml.p5.48xlarge";
const READY_WITHIN: Duration = Duration::from_secs(600);

fn host(n: u8) -> String {
    format!("http://10.0.0.{n}:8000")
}

fn pool(instance_type: &str, models: &[&str], hosts: std::ops::Range<u8>) -> HostPool {
    HostPool {
        instance_type: instance_type.into(),
        models: models.iter().map(|it| (*it).to_owned()).collect(),
        cpus: None,
        accelerators: None,
        memory_mb: None,
        copies: crate::config::Copies::Name,
        adapters: None,
        hosts: hosts.map(|n| host(n).parse().expect("a URL")).collect(),
    }
}

fn variant(name: &str, count: u32) -> Placed {
    Placed {
        spec: VariantSpec {
            name: name.into(),
            model: Some("m".into()),
            instances: count,
            pools: vec![InstancePool { instance_type: P5.into(), model: None }],
            weight: 1.0,
            strategy: Strategy::PrefixAware,
            prefix_length: Some(1024),
            concurrency_threshold: std::num::NonZeroU32::new(7),
            min_instances: None,
            max_instances: None,
            ready_within: None,
        },
        model: None,
        weight: Wanted { current: 0.0, desired: 1.0 },
        count: Wanted { current: 0, desired: count },
        hosts: Vec::new(),
    }
}

fn deployment(config: &str, variants: Vec<Placed>) -> Deployment {
    Deployment { config: config.into(), variants, shadows: Vec::new() }
}

/// A control plane of which only the state is real.
struct World {
    resources: Resources,
    pools: Vec<HostPool>,
    looks: Looks,
    trial: (u64, u64),
    loads: std::collections::HashMap<String, (usize, Option<String>)>,
    now: u64,
}

impl World {
    /// With hosts 1 to 9 in a pool for any model, all well.
    fn new() -> Self {
        let looks = (1..=9).map(|n| (host(n), Ok(()))).collect();
        let pools = vec![pool(P5, &[], 1..10)];
        Self {
            resources: Resources::default(),
            pools,
            looks,
            trial: (0, 0),
            loads: Default::default(),
            now: 1_000,
        }
    }

    fn create(&mut self, name: &str, deployment: Deployment) {
        let endpoint = Endpoint {
            name: name.into(),
            status: EndpointStatus::Creating,
            failure: None,
            created: self.now,
            modified: self.now,
            generation: 1,
            serving: None,
            pending: None,
            deployment_config: None,
            tags: vec![],
        };
        self.resources.endpoints.insert(name.into(), Arc::new(endpoint));
        self.ask(name, deployment);
        self.change(name, |it| it.status = EndpointStatus::Creating);
    }

    fn ask(&mut self, name: &str, deployment: Deployment) {
        let (started, rollout) = (self.now, Rollout::all_at_once());
        let pending = Pending { deployment, started, rollout, traffic: 0, shifted: None };
        self.change(name, |it| {
            it.status = EndpointStatus::Updating;
            it.pending = Some(pending);
            it.generation += 1;
        });
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Endpoint)) {
        let endpoint = self.resources.endpoints.get_mut(name).expect("there is one");
        change(Arc::make_mut(endpoint));
    }

    fn round(&mut self) -> Vec<Step> {
        let steps = plan(&View {
            resources: &self.resources,
            pools: &self.pools,
            looks: &self.looks,
            trials: &|_| self.trial,
            loads: &|_, adapter| self.loads.get(adapter).cloned().unwrap_or_default(),
            ready_within: READY_WITHIN,
            now: self.now,
        });
        self.resources = after(&self.resources, &steps);
        steps
    }

    fn endpoint(&self, name: &str) -> &Endpoint {
        &self.resources.endpoints[name]
    }

    /// The last digits of the hosts of each variant.
    fn hosts(&self, name: &str) -> BTreeMap<String, String> {
        let digit = |host: &String| host.as_bytes()["http://10.0.0.".len()] as char;
        let serving = self.endpoint(name).serving.iter().flat_map(placed);
        serving.map(|it| (it.spec.name.clone(), it.hosts.iter().map(digit).collect())).collect()
    }
}

fn of<const N: usize>(hosts: [(&str, &str); N]) -> BTreeMap<String, String> {
    hosts.into_iter().map(|(name, hosts)| (name.into(), hosts.into())).collect()
}

#[test]
fn an_endpoint_gets_the_first_healthy_hosts_and_is_in_service() {
    let mut world = World::new();
    world.looks.insert(host(2), Err("no connection".into()));
    world.create("e", deployment("c", vec![variant("a", 2), variant("b", 1)]));
    assert!(endpoints(&world.resources, &world.pools).is_empty(), "nobody can call it yet");
    assert_eq!(world.round().len(), 1);
    assert_eq!(world.hosts("e"), of([("a", "13"), ("b", "4")]));
    let endpoint = world.endpoint("e");
    assert_eq!((endpoint.status, &endpoint.pending), (EndpointStatus::InService, &None));
    assert!(world.round().is_empty(), "it is as it is to be");

    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("there is one") };
    let a = &endpoint.variants[0];
    assert_eq!((a.name.as_str(), a.weight, a.instances.len()), ("a", 1.0, 2));
    assert_eq!((a.strategy, a.prefix_length), (Strategy::PrefixAware, 1024));
    assert_eq!(a.concurrency_threshold, 7);
}

#[test]
fn shadow_variants_serve_as_shadows() {
    let mut world = World::new();
    let shadows = vec![variant("s", 1)];
    world.create("e", Deployment { shadows, ..deployment("c", vec![variant("a", 2)]) });
    world.round();
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("there is one") };
    let of = |n: usize| (&*endpoint.variants[n].name, endpoint.variants[n].shadow);
    assert_eq!((endpoint.variants.len(), of(0), of(1)), (2, ("a", false), ("s", true)));
    assert_eq!(endpoint.variants[1].instances.len(), 1);
}

#[test]
fn hosts_are_of_the_type_and_for_the_model_and_given_once() {
    let mut world = World::new();
    world.pools = vec![
        pool("ml.g6.xlarge", &[], 1..3),
        pool(P5, &["other"], 3..5),
        pool(P5, &["m", "n"], 5..7),
        pool(P5, &[], 7..9),
    ];
    world.create("e", deployment("c", vec![variant("a", 3)]));
    world.now += 1;
    world.create("f", deployment("c", vec![variant("a", 1)]));
    world.create("g", deployment("c", vec![variant("a", 1)]));
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "567")]));
    assert_eq!(world.hosts("f"), of([("a", "8")]));
    assert_eq!(world.endpoint("g").status, EndpointStatus::Creating);
    assert!(wanted(&world.resources, &world.pools).is_empty(), "nothing is left for it");
}

#[test]
fn who_waits_too_long_is_told_what_was_missing() {
    let mut world = World::new();
    world.pools = vec![pool(P5, &[], 1..7)];
    for n in 2..=6 {
        world.looks.insert(host(n), Err("no connection: refused".into()));
    }
    world.create("e", deployment("c", vec![variant("a", 3)]));
    assert_eq!(wanted(&world.resources, &world.pools).len(), 6);
    assert!(world.round().is_empty());
    world.now += 599_999;
    assert!(world.round().is_empty());
    world.now += 1;
    world.round();
    let endpoint = world.endpoint("e");
    assert_eq!((endpoint.status, &endpoint.pending), (EndpointStatus::Failed, &None));
    assert_eq!(
        endpoint.failure.as_deref(),
        Some(
            "Not enough healthy hosts within 600 s: variant a has 1 of 3 hosts of type \
             ml.p5.48xlarge for model m; not healthy: http://10.0.0.2:8000: no connection: refused, \
             http://10.0.0.3:8000: no connection: refused, http://10.0.0.4:8000: no connection: \
             refused and 2 more."
        )
    );
    assert!(world.round().is_empty() && endpoints(&world.resources, &world.pools).is_empty());
    // Its hosts are not held.
    world.create("f", deployment("c", vec![variant("a", 1)]));
    world.round();
    assert_eq!(world.hosts("f"), of([("a", "1")]));
}

#[test]
fn an_own_limit_of_the_variant_goes_before() {
    let mut world = World::new();
    let mut patient = variant("a", 20);
    patient.spec.ready_within = Some(3600);
    world.create("e", deployment("c", vec![patient]));
    world.now += 3_599_999;
    assert!(world.round().is_empty());
    world.now += 1;
    world.round();
    let failure = world.endpoint("e").failure.clone().expect("it gave up");
    assert!(failure.contains("has 9 of 20") && failure.contains("no [[host_pool]] has another"));
}

#[test]
fn an_update_keeps_hosts_in_their_order() {
    let mut world = World::new();
    world.create("e", deployment("c", vec![variant("a", 3), variant("b", 2)]));
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "123"), ("b", "45")]));
    // More of one, which takes none from the other.
    world.ask("e", deployment("d", vec![variant("a", 4), variant("b", 2)]));
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "1236"), ("b", "45")]));
    assert_eq!(world.endpoint("e").config(), "d");
    // Fewer: the last ones go.
    world.ask("e", deployment("d", vec![variant("a", 2), variant("b", 2)]));
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "12"), ("b", "45")]));
    // Another name: it has the hosts of the one that goes.
    world.ask("e", deployment("d", vec![variant("x", 2), variant("b", 3)]));
    world.round();
    assert_eq!(world.hosts("e"), of([("x", "12"), ("b", "453")]));
}

#[test]
fn an_update_without_hosts_leaves_what_serves() {
    let mut world = World::new();
    world.create("e", deployment("c", vec![variant("a", 3)]));
    world.round();
    let before = world.endpoint("e").serving.clone();
    world.ask("e", deployment("d", vec![variant("a", 10)]));
    assert!(world.round().is_empty());
    assert_eq!(
        endpoints(&world.resources, &world.pools)[0].variants[0].instances.len(),
        3,
        "serves meanwhile"
    );
    world.now += 600_000;
    world.round();
    let endpoint = world.endpoint("e");
    assert_eq!((endpoint.status, &endpoint.serving), (EndpointStatus::InService, &before));
    let failure = endpoint.failure.as_deref().expect("a reason");
    assert!(failure.starts_with("The update to d was given up after 600 s"), "{failure}");
    // The next one that succeeds takes the reason back.
    world.ask("e", deployment("d", vec![variant("a", 4)]));
    world.round();
    assert_eq!(world.endpoint("e").failure, None);
}

#[test]
fn hosts_of_a_deleted_endpoint_are_free_when_it_is_gone() {
    let mut world = World::new();
    world.create("e", deployment("c", vec![variant("a", 9)]));
    world.round();
    world.create("f", deployment("c", vec![variant("a", 9)]));
    world.change("e", |it| it.status = EndpointStatus::Deleting);
    assert!(endpoints(&world.resources, &world.pools).is_empty());
    assert_eq!(world.round(), [Step::Gone(Key::endpoint("e"), 2)]);
    world.round();
    assert_eq!(world.hosts("f"), of([("a", "123456789")]));
}

#[test]
fn a_host_that_leaves_its_pool_is_replaced_once_there_is_another() {
    let mut world = World::new();
    world.pools = vec![pool(P5, &[], 1..4)];
    world.create("e", deployment("c", vec![variant("a", 3)]));
    world.round();
    world.pools = vec![pool(P5, &[], 2..4)];
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "23")]));
    let count = |world: &World| world.endpoint("e").serving.as_ref().unwrap().variants[0].count;
    assert_eq!(count(&world), Wanted { current: 2, desired: 3 });
    assert_eq!(world.endpoint("e").status, EndpointStatus::InService);
    assert!(world.round().is_empty());
    world.pools = vec![pool(P5, &[], 2..6)];
    let looks: Vec<_> =
        wanted(&world.resources, &world.pools).into_iter().map(|it| it.host).collect();
    assert_eq!(looks, [host(4), host(5)]);
    world.looks.remove(&host(4));
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "235")]));
    assert_eq!(count(&world), Wanted::settled(3));
    assert!(wanted(&world.resources, &world.pools).is_empty());
}

fn rollout(steps: &[(u32, u32)]) -> Rollout {
    let step = |&(traffic, wait)| crate::control::resources::Step { traffic, wait };
    Rollout {
        steps: steps.iter().map(step).collect(),
        termination_wait: 7,
        timeout: Some(100),
        max_error_percent: Some(20.0),
    }
}

/// An endpoint `e` in service whose update to `d` has begun to get requests.
fn canary(wanted: Deployment, traffic: &[(u32, u32)]) -> World {
    let mut world = World::new();
    world.create("e", deployment("c", vec![variant("a", 3)]));
    world.round();
    world.ask("e", wanted);
    let rollout = rollout(traffic);
    world.change("e", |it| it.pending.as_mut().expect("asked").rollout = rollout);
    assert_eq!(world.round().len(), 1);
    world
}

/// Name, weight, whether incoming, and the last digits of the hosts of each variant.
fn variants(world: &World) -> Vec<(String, f64, bool, String)> {
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("there is one") };
    let digit = |url: &str| url.as_bytes()["http://10.0.0.".len()] as char;
    let variants = endpoint.variants.iter().map(|it| {
        let hosts = it.instances.iter().map(|instance| digit(instance.url.as_str())).collect();
        (it.name.clone(), it.weight, it.incoming, hosts)
    });
    variants.collect()
}

#[test]
fn requests_move_step_by_step_to_hosts_of_their_own() {
    let mut world = canary(deployment("d", vec![variant("a", 3)]), &[(25, 10), (100, 10)]);
    let a = |weight, incoming, hosts: &str| ("a".to_owned(), weight, incoming, hosts.to_owned());
    assert_eq!(variants(&world), [a(0.75, false, "123"), a(0.25, true, "456")]);
    assert_eq!(world.endpoint("e").status, EndpointStatus::Updating);
    world.now += 9_999;
    assert!(world.round().is_empty());
    world.now += 1;
    world.round();
    assert_eq!(variants(&world), [a(0.0, false, "123"), a(1.0, true, "456")]);
    // The former hosts are kept for the time of termination.
    world.now += 16_999;
    assert!(world.round().is_empty());
    world.now += 1;
    world.round();
    assert_eq!(variants(&world), [a(1.0, false, "456")]);
    let endpoint = world.endpoint("e");
    assert_eq!((endpoint.status, endpoint.config()), (EndpointStatus::InService, "d"));
    assert!(world.round().is_empty());
}

#[test]
fn without_other_hosts_both_deployments_share_theirs() {
    let mut world = canary(deployment("d", vec![variant("a", 7), variant("b", 2)]), &[(50, 1)]);
    let (a, b) = ("a".to_owned(), "b".to_owned());
    assert_eq!(
        variants(&world),
        [
            (a.clone(), 0.5, false, "123".into()),
            (a, 0.25, true, "4567891".into()),
            (b, 0.25, true, "23".into()),
        ]
    );
    world.now += 8_000;
    world.round();
    assert_eq!(world.hosts("e"), of([("a", "4567891"), ("b", "23")]));
}

#[test]
fn failures_and_delays_take_it_back() {
    for (trial, later, why) in [
        ((10, 2), 0, "2 of its 10 requests failed (at most 20 percent may)"),
        ((9, 9), 100_000, "it was not done within 100 s"),
    ] {
        let mut world = canary(deployment("d", vec![variant("a", 3)]), &[(25, 200), (100, 10)]);
        world.trial = (trial.0, trial.1.min(1));
        assert!(world.round().is_empty(), "too few to say anything, or few enough");
        world.trial = trial;
        world.now += later;
        world.round();
        let endpoint = world.endpoint("e");
        assert_eq!((endpoint.status, endpoint.config()), (EndpointStatus::InService, "c"));
        let failure = endpoint.failure.clone().expect("a reason");
        assert!(failure.contains(why) && failure.contains("at 25 percent"), "{failure}");
        assert_eq!(variants(&world), [("a".into(), 1.0, false, "123".into())]);
    }
}

#[test]
fn shadows_and_the_models_own_path_are_in_the_configuration() {
    let mut world = World::new();
    let mut wanted = deployment("c", vec![variant("a", 1), variant("b", 1)]);
    let model = |path: &str| {
        let environment = serde_json::json!({ "ATALHO_INVOCATIONS_PATH": path });
        Some(serde_json::json!({ "PrimaryContainer": { "Environment": environment } }))
    };
    wanted.variants[0].model = model("/v1/chat/completions");
    wanted.variants[1].model = model("no path");
    wanted.shadows = vec![Placed { weight: Wanted::settled(0.5), ..variant("s", 2) }];
    world.create("e", wanted);
    world.round();
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("there is one") };
    let seen: Vec<_> = endpoint
        .variants
        .iter()
        .map(|it| (&*it.name, it.shadow, it.weight, &*it.invocations_path, it.instances.len()))
        .collect();
    assert_eq!(
        seen,
        [
            ("a", false, 1.0, "/v1/chat/completions", 1),
            ("b", false, 1.0, "/invocations", 1),
            ("s", true, 0.5, "/invocations", 2),
        ]
    );
}

#[test]
fn weights_and_numbers_change_in_place() {
    let mut world = World::new();
    world.create("e", deployment("c", vec![variant("a", 3), variant("b", 2)]));
    world.round();
    let resize = |world: &mut World, weight: f64, count: u32| {
        let modified = world.now;
        world.change("e", |it| {
            let a = &mut it.serving.as_mut().expect("in service").variants[0];
            (a.weight.desired, a.count.desired) = (weight, count);
            it.status = EndpointStatus::Updating;
            it.modified = modified;
        });
    };
    resize(&mut world, 0.25, 2);
    world.round();
    assert_eq!(variants(&world)[0], ("a".into(), 0.25, false, "12".into()));
    assert_eq!(world.endpoint("e").status, EndpointStatus::InService);
    // More than there are.
    resize(&mut world, 0.5, 8);
    assert!(world.round().is_empty());
    world.now += 600_000;
    world.round();
    assert_eq!(variants(&world)[0], ("a".into(), 0.5, false, "12".into()));
    let endpoint = world.endpoint("e");
    assert!(endpoint.failure.as_deref().is_some_and(|why| why.contains("has 7 of 8")));
    assert_eq!(endpoint.serving.as_ref().unwrap().variants[0].count, Wanted::settled(2));
}
