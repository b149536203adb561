//! The gateway is killed again and again while resources are made, changed and deleted.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
};

use serde_json::{Value, json};
use tests::{Engine, Gateway, Setup, Upstream, eventually};
use toml::Table;

use crate::client::{Called, call, post};

const KILLS: usize = 50;
/// Resources of each kind that come and go.
const NAMES: usize = 3;
/// The endpoint that is there all the time.
const STEADY: &str = "steady";

/// What a gateway has acknowledged: for endpoints with their configuration.
type Known = BTreeMap<(Kind, String), String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Model,
    Config,
    Endpoint,
}

/// A change of one resource: to what it is then, or to nothing.
#[derive(Clone, Debug)]
struct Change {
    kind: Kind,
    name: String,
    to: Option<String>,
}

impl Change {
    fn random(known: &Known, rng: &mut fastrand::Rng) -> Self {
        let kind = [Kind::Model, Kind::Config, Kind::Endpoint, Kind::Endpoint][rng.usize(0..4)];
        let name = format!("{kind:?}-{}", rng.usize(0..NAMES));
        let exists = known.contains_key(&(kind, name.clone()));
        let config = format!("base-{}", rng.usize(0..2));
        let to = match kind {
            _ if !exists => Some(config),
            Kind::Endpoint if rng.bool() => Some(config),
            _ => None,
        };
        Self { kind, name, to }
    }

    fn call(&self, to: SocketAddr, exists: bool) -> std::io::Result<Called> {
        let name = &self.name;
        let (operation, input) = match (self.kind, &self.to) {
            (Kind::Model, Some(_)) => ("CreateModel", model(name)),
            (Kind::Model, None) => ("DeleteModel", json!({ "ModelName": name })),
            (Kind::Config, Some(_)) => ("CreateEndpointConfig", config(name, 1)),
            (Kind::Config, None) => ("DeleteEndpointConfig", json!({ "EndpointConfigName": name })),
            (Kind::Endpoint, Some(config)) => {
                let operation = if exists { "UpdateEndpoint" } else { "CreateEndpoint" };
                (operation, json!({ "EndpointName": name, "EndpointConfigName": config }))
            }
            (Kind::Endpoint, None) => ("DeleteEndpoint", json!({ "EndpointName": name })),
        };
        call(to, operation, &input)
    }

    fn apply(self, known: &mut Known) {
        match self.to {
            Some(to) => known.insert((self.kind, self.name), to),
            None => known.remove(&(self.kind, self.name)),
        };
    }
}

fn model(name: &str) -> Value {
    json!({ "ModelName": name, "PrimaryContainer": { "Image": "x" } })
}

fn config(name: &str, weight: u32) -> Value {
    let variant = json!({
        "VariantName": "a", "ModelName": "base", "InitialInstanceCount": 1,
        "InstanceType": "ml.p5.48xlarge", "InitialVariantWeight": weight,
    });
    json!({ "EndpointConfigName": name, "ProductionVariants": [variant] })
}

/// What a resource is by now: nothing, or what of it was said, once nothing about it is under way.
fn found(to: SocketAddr, kind: Kind, name: &str) -> Option<Option<String>> {
    let (operation, member) = match kind {
        Kind::Model => ("DescribeModel", "ModelName"),
        Kind::Config => ("DescribeEndpointConfig", "EndpointConfigName"),
        Kind::Endpoint => ("DescribeEndpoint", "EndpointName"),
    };
    match call(to, operation, &json!({ member: name })).expect("an answer") {
        Ok(it) if kind == Kind::Endpoint => {
            let settled = it["EndpointStatus"] == "InService";
            settled.then(|| it["EndpointConfigName"].as_str().map(str::to_owned))
        }
        Ok(_) => Some(Some(String::new())),
        Err(message) => {
            assert!(message.starts_with("Could not find"), "{message}");
            Some(None)
        }
    }
}

/// Everything that was acknowledged is there, and nothing else. What nobody knows may be so or so.
fn verify(gateway: &Gateway, known: &mut Known, doubtful: Option<&Change>) {
    let kinds = [Kind::Model, Kind::Config, Kind::Endpoint];
    let all = kinds.into_iter().flat_map(|kind| (0..NAMES).map(move |n| (kind, n)));
    for (kind, n) in all {
        let key = (kind, format!("{kind:?}-{n}"));
        let mut state = None;
        eventually(&format!("{key:?} is settled"), || {
            state = found(gateway.control(), kind, &key.1);
            state.is_some()
        });
        let state = state.flatten();
        let same = |expected: Option<&String>| match (&state, expected) {
            (Some(is), Some(expected)) => kind != Kind::Endpoint || is == expected,
            (None, None) => true,
            _ => false,
        };
        let doubt = doubtful.filter(|it| (it.kind, &it.name) == (key.0, &key.1));
        match doubt {
            Some(doubt) if same(doubt.to.as_ref()) => doubt.clone().apply(known),
            _ => assert!(same(known.get(&key)), "{key:?}: {state:?}, not {:?}", known.get(&key)),
        }
    }
}

#[test]
fn no_acknowledged_change_is_lost_by_fifty_kills() {
    let hosts: Vec<_> = (0..=NAMES).map(|_| Upstream::ok()).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let mut pool = Table::new();
    pool.insert("instance_type".into(), "ml.p5.48xlarge".into());
    pool.insert("hosts".into(), hosts.iter().map(Upstream::url).collect::<Vec<_>>().into());
    let setup = Setup::new(Engine::Userspace)
        .set("control.listen", "127.0.0.1:0")
        .set("control.store", directory.path().join("control.redb").display().to_string())
        .set("host_pool", vec![toml::Value::Table(pool)]);

    let mut gateway = setup.start();
    let make = |operation: &str, input: &Value| {
        call(gateway.control(), operation, input).expect("an answer").expect("it is right");
    };
    make("CreateModel", &model("base"));
    make("CreateEndpointConfig", &config("base-0", 1));
    make("CreateEndpointConfig", &config("base-1", 2));
    let steady = json!({ "EndpointName": STEADY, "EndpointConfigName": "base-0" });
    make("CreateEndpoint", &steady);
    eventually("it serves", || found(gateway.control(), Kind::Endpoint, STEADY).is_some());

    let mut known = Known::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..KILLS {
        let (control, clients) = (gateway.control(), gateway.address());
        let (acknowledged, killing) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (enough, delay) = (rng.usize(0..8), rng.usize(0..200_000));
        let mut choices = rng.fork();
        let changed = &mut known;
        let doubtful = thread::scope(|scope| {
            let changes = scope.spawn(|| {
                loop {
                    let change = Change::random(changed, &mut choices);
                    let exists = changed.contains_key(&(change.kind, change.name.clone()));
                    match change.call(control, exists) {
                        Ok(Ok(_)) => change.apply(changed),
                        // Something of it is under way: no change.
                        Ok(Err(message)) => {
                            assert!(
                                message.contains("Cannot") || message.contains("already"),
                                "{change:?}: {message}"
                            );
                        }
                        Err(_) if killing.load(SeqCst) => return change,
                        Err(error) => panic!("{change:?} in round {round}: {error}"),
                    }
                    acknowledged.fetch_add(1, SeqCst);
                }
            });
            scope.spawn(|| {
                let path = format!("/endpoints/{STEADY}/invocations");
                loop {
                    match post(clients, &path, &[], "x") {
                        Ok((status, _)) => assert_eq!(status, 200),
                        Err(_) if killing.load(SeqCst) => return,
                        Err(error) => panic!("a request in round {round}: {error}"),
                    }
                }
            });
            while acknowledged.load(SeqCst) < enough && !changes.is_finished() {
                thread::yield_now();
            }
            // Anywhere within a change.
            (0..delay).for_each(|_| std::hint::spin_loop());
            killing.store(true, SeqCst);
            gateway.kill();
            changes.join().expect("its assertions hold")
        });
        gateway = setup.start();
        verify(&gateway, &mut known, Some(&doubtful));
    }
    assert!(!known.is_empty(), "something was made");
}
