//! Updates that move requests step by step: to hosts that serve, and to hosts that do not.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use tests::{
    Engine, Gateway, Setup, Upstream, eventually,
    gateway::INSTANCE_HEADER,
    message::{request_with, response},
};
use toml::Table;

const TYPE: &str = "ml.p5.48xlarge";
const ROLE: &str = "arn:aws:iam::000000000000:role/x";

/// An endpoint on the first two hosts of its pool.
fn start(hosts: &[Upstream]) -> (Gateway, tempfile::TempDir) {
    start_with(Setup::new(Engine::Userspace), hosts, json!({}))
}

/// With a model of this environment.
fn start_with(
    setup: Setup,
    hosts: &[Upstream],
    environment: Value,
) -> (Gateway, tempfile::TempDir) {
    let store = tempfile::tempdir().expect("a directory");
    let mut pool = Table::new();
    pool.insert("instance_type".to_owned(), TYPE.into());
    pool.insert("hosts".to_owned(), hosts.iter().map(Upstream::url).collect::<Vec<_>>().into());
    let gateway = setup
        .default_paths()
        .set("control.listen", "127.0.0.1:0")
        .set("control.store", store.path().join("state.redb").display().to_string())
        .set("host_pool", vec![toml::Value::Table(pool)])
        .start();
    let model = json!({ "ModelName": "m", "ExecutionRoleArn": ROLE,
                        "PrimaryContainer": { "Image": "vllm", "Environment": environment } });
    gateway.done("CreateModel", &model);
    for name in ["one", "two"] {
        let variant = json!({ "VariantName": "v", "ModelName": "m", "InstanceType": TYPE,
                              "InitialInstanceCount": 2 });
        let config = json!({ "EndpointConfigName": name, "ProductionVariants": [variant] });
        gateway.done("CreateEndpointConfig", &config);
    }
    gateway.done("CreateEndpoint", &json!({ "EndpointName": "e", "EndpointConfigName": "one" }));
    in_service(&gateway);
    (gateway, store)
}

fn describe(gateway: &Gateway) -> Value {
    gateway.done("DescribeEndpoint", &json!({ "EndpointName": "e" }))
}

fn in_service(gateway: &Gateway) {
    eventually("the endpoint is in service", || describe(gateway)["EndpointStatus"] == "InService");
}

fn update(gateway: &Gateway, routing: &Value) {
    gateway.done(
        "UpdateEndpoint",
        &json!({
            "EndpointName": "e", "EndpointConfigName": "two",
            "DeploymentConfig": {
                "BlueGreenUpdatePolicy": { "TrafficRoutingConfiguration": routing },
                "AutoRollbackConfiguration": { "Alarms": [{ "AlarmName": "error-rate-10" }] },
            },
        }),
    );
}

/// The status of an answer, and the host that gave it.
fn ask(gateway: &Gateway, n: usize) -> (u16, String) {
    let prompt = format!("prompt {n}");
    let answer = gateway.ask(request_with("POST", "/endpoints/e/invocations", &[], prompt));
    (answer.status(), answer.get(INSTANCE_HEADER).unwrap_or_default().to_owned())
}

fn is_one_of(hosts: &[Upstream], name: &str) -> bool {
    hosts.iter().any(|host| host.url().ends_with(name))
}

#[test]
fn an_update_whose_requests_fail_is_rolled_back() {
    let good = |_: usize| Upstream::ok();
    let bad = |_: usize| Upstream::answering(|_| response(500, "broken"));
    let hosts: Vec<Upstream> = (0..2).map(good).chain((0..2).map(bad)).collect();
    let (gateway, _store) = start(&hosts);
    assert!((0..20).all(|n| ask(&gateway, n).0 == 200));
    // Half of the requests go to the new hosts, and would do so for an hour.
    let size = json!({ "Type": "CAPACITY_PERCENT", "Value": 50 });
    update(
        &gateway,
        &json!({ "Type": "CANARY", "WaitIntervalInSeconds": 3600, "CanarySize": size }),
    );
    let mut n = 0;
    let mut failed = 0;
    eventually("it is rolled back", || {
        n += 1;
        // What the instance answers with 5xx is a ModelError.
        failed += usize::from(ask(&gateway, n).0 == 424);
        describe(&gateway)["EndpointStatus"] == "InService"
    });
    assert!(failed >= 1, "of {n} requests none went to the new hosts");
    let told = describe(&gateway);
    let why = told["FailureReason"].as_str().expect("it says why");
    assert!(why.contains("rolled back") && why.contains("requests failed"), "{why}");
    assert_eq!(told["EndpointConfigName"], "one");
    for n in 0..50 {
        let (status, at) = ask(&gateway, n);
        assert!(status == 200 && is_one_of(&hosts[..2], &at), "{status} by {at}");
    }
}

#[test]
fn an_update_whose_requests_succeed_goes_through_all_its_steps() {
    let hosts: Vec<Upstream> = (0..4).map(|_| Upstream::ok()).collect();
    let (gateway, _store) = start(&hosts);
    let size = json!({ "Type": "CAPACITY_PERCENT", "Value": 50 });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Relaxed) {
                assert_eq!(ask(&gateway, n).0, 200);
                n += 1;
            }
            n
        });
        update(
            &gateway,
            &json!({ "Type": "LINEAR", "WaitIntervalInSeconds": 3, "LinearStepSize": size }),
        );
        eventually("requests are on their way to both", || {
            let seen: Vec<_> = (0..40).map(|n| ask(&gateway, n).1).collect();
            seen.iter().any(|at| is_one_of(&hosts[..2], at))
                && seen.iter().any(|at| is_one_of(&hosts[2..], at))
        });
        in_service(&gateway);
        stop.store(true, Relaxed);
        assert!(client.join().expect("no request failed") > 0);
    });
    assert_eq!(describe(&gateway)["EndpointConfigName"], "two");
    assert!((0..50).map(|n| ask(&gateway, n).1).all(|at| is_one_of(&hosts[2..], &at)));
}

/// As SageMaker's containers are asked, where the model says so: before they get requests, and from then on.
#[test]
fn a_model_names_the_path_of_its_health() {
    let hosts: [Upstream; 2] = std::array::from_fn(|_| {
        Upstream::answering(|message| match message.target() {
            "/ping" | "/invocations" => response(200, "ok"),
            _ => response(503, "unknown"),
        })
    });
    let setup = Setup::new(Engine::Userspace)
        .set("health.active", true)
        .set("health.interval", "1s")
        .set("health.timeout", "1s")
        .set("health.fall", 1);
    let (gateway, _store) = start_with(setup, &hosts, json!({ "ATALHO_HEALTH_PATH": "/ping" }));
    for host in &hosts {
        let pings = || host.requests().iter().filter(|it| it.target() == "/ping").count();
        // The look before it was taken, and checks since.
        eventually("it is asked again and again", || pings() >= 3);
        assert!(host.requests().iter().all(|it| it.target() == "/ping"), "and nowhere else");
    }
    assert_eq!(ask(&gateway, 1).0, 200);
}
