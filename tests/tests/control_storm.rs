//! The gateway is killed at random moments, while endpoints are made and deleted and requests are answered:
//! no change that it acknowledged is lost, and it can always read its state.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tests::{Engine, Gateway, Setup, Upstream, message::request, wait::eventually};

/// How often it is killed.
const KILLS: usize = 50;

/// Names that a client of the API works with; few, so that they are made and deleted often.
const NAMES: u32 = 4;

const INSTANCE_TYPE: &str = "ml.p5.48xlarge";

/// For an answer; a gateway that is killed meanwhile answers nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    There,
    Gone,
    /// The gateway was killed before it answered: either is right.
    Unknown,
}

/// What a client was told: kinds and names.
type Told = BTreeMap<(&'static str, String), Known>;

/// One call of the control API; nothing when there is no answer to it.
fn call(control: SocketAddr, operation: &str, input: &Value) -> Option<(u16, Value)> {
    let body = input.to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {control}\r\nConnection: close\r\n\
         Content-Type: application/x-amz-json-1.1\r\nX-Amz-Target: SageMaker.{operation}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(control).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let output = if body.is_empty() { Value::Null } else { serde_json::from_str(body).ok()? };
    Some((status, output))
}

fn control(gateway: &Gateway) -> SocketAddr {
    let line = gateway.expect_line(&["control API for AWS's clients"]);
    let (_, address) = line.split_once("address=").expect("an address");
    address.split_whitespace().next().and_then(|it| it.parse().ok()).expect("an address")
}

fn setup(directory: &Path, hosts: &[Upstream]) -> Setup {
    let urls: Vec<toml::Value> = hosts.iter().map(|host| host.url().into()).collect();
    let mut pool = toml::Table::new();
    pool.insert("instance_type".into(), INSTANCE_TYPE.into());
    pool.insert("hosts".into(), urls.into());
    Setup::new(Engine::Userspace)
        .default_paths()
        .set("control.listen", "127.0.0.1:0")
        .set("control.store", directory.join("control.redb").display().to_string())
        .set("host_pool", vec![toml::Value::Table(pool)])
}

fn variant(model: &str) -> Value {
    json!({
        "VariantName": "main",
        "ModelName": model,
        "InstanceType": INSTANCE_TYPE,
        "InitialInstanceCount": 1,
    })
}

/// A client that makes and deletes resources of its own until the gateway is gone, and notes what it was told.
fn work(
    control: SocketAddr,
    told: &mut Told,
    random: &mut fastrand::Rng,
    acknowledged: &AtomicU64,
) {
    loop {
        let name = format!("n{}", random.u32(..NAMES));
        let (kind, operation, input, after) = match random.u32(..8) {
            0 | 1 => {
                let container = json!({ "Image": "x" });
                let input = json!({ "ModelName": name, "PrimaryContainer": container });
                ("model", "CreateModel", input, Known::There)
            }
            2 => ("model", "DeleteModel", json!({ "ModelName": name }), Known::Gone),
            3 | 4 => {
                let input =
                    json!({ "EndpointConfigName": name, "ProductionVariants": [variant(&name)] });
                ("config", "CreateEndpointConfig", input, Known::There)
            }
            5 => {
                let input = json!({ "EndpointConfigName": name });
                ("config", "DeleteEndpointConfig", input, Known::Gone)
            }
            6 => {
                let input = json!({ "EndpointName": name, "EndpointConfigName": name });
                ("endpoint", "CreateEndpoint", input, Known::There)
            }
            _ => ("endpoint", "DeleteEndpoint", json!({ "EndpointName": name }), Known::Gone),
        };
        let about = (kind, name);
        match call(control, operation, &input) {
            Some((200, _)) => {
                told.insert(about, after);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            // It says why not, and nothing has changed.
            Some((400, error)) => {
                let name = error["__type"].as_str().unwrap_or_default();
                assert_eq!(name, "ValidationException", "{operation} {input}: {error}");
            }
            Some(other) => panic!("{operation} {input}: {other:?}"),
            None => {
                told.insert(about, Known::Unknown);
                return;
            }
        }
    }
}

/// Compares what there is with what the client was told, and tells it about the rest.
fn compare(control: SocketAddr, told: &mut Told) {
    for ((kind, name), known) in told {
        let (operation, member) = match *kind {
            "model" => ("DescribeModel", "ModelName"),
            "config" => ("DescribeEndpointConfig", "EndpointConfigName"),
            _ => ("DescribeEndpoint", "EndpointName"),
        };
        let (status, output) =
            call(control, operation, &json!({ member: name })).expect("an answer");
        // An endpoint that was deleted may still be on its way out.
        let there = status == 200 && output["EndpointStatus"] != "Deleting";
        assert!(there || status == 200 || output["__type"] == "ValidationException", "{output}");
        let expected = if there { Known::There } else { Known::Gone };
        assert!(
            *known == expected || *known == Known::Unknown,
            "{kind} {name}: {known:?}: {output}"
        );
        *known = expected;
    }
}

/// Says that a thread has ended, also when it panicked.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_acknowledged_change_is_lost_whenever_the_gateway_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let hosts = [Upstream::ok(), Upstream::ok(), Upstream::ok()];
    let setup = setup(directory.path(), &hosts);
    let mut random = fastrand::Rng::with_seed(fastrand::u64(..));
    println!("seed {}", random.get_seed());
    let mut told = Told::new();
    let mut changes = 0;

    let mut gateway = setup.start();
    let address = control(&gateway);
    let steady = [
        ("CreateModel", json!({ "ModelName": "s", "PrimaryContainer": { "Image": "x" } })),
        (
            "CreateEndpointConfig",
            json!({ "EndpointConfigName": "s", "ProductionVariants": [variant("s")] }),
        ),
        ("CreateEndpoint", json!({ "EndpointName": "steady", "EndpointConfigName": "s" })),
    ];
    for (operation, input) in steady {
        assert_eq!(call(address, operation, &input).map(|it| it.0), Some(200), "{operation}");
    }
    let invoke = || request("POST", "/endpoints/steady/invocations", b"{}");
    eventually("the steady endpoint is in service", || gateway.ask(invoke()).status() == 200);

    for kill in 0..KILLS {
        let address = control(&gateway);
        compare(address, &mut told);
        // What served before serves again, without being asked for.
        eventually("the steady endpoint serves", || gateway.ask(invoke()).status() == 200);
        let acknowledged = AtomicU64::new(0);
        let (enough, moment) = (random.u64(..12), Duration::from_micros(random.u64(..3_000)));
        let ended = AtomicBool::new(false);
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            let gateway_address = gateway.address();
            let (acknowledged, ended) = (&acknowledged, &ended);
            let (told, random) = (&mut told, &mut random);
            scope.spawn(move || {
                let _end = SetWhenDropped(ended);
                work(address, told, random, acknowledged);
            });
            // Traffic meanwhile: whatever answers does so as it should.
            let failed = &failed;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(gateway_address) else { continue };
                    let asked = stream.write_all(&invoke());
                    let mut answer = [0; 12];
                    if asked.is_ok()
                        && stream.read_exact(&mut answer).is_ok()
                        && &answer != b"HTTP/1.1 200"
                    {
                        *failed.lock().expect("a lock") = Some(answer);
                    }
                }
            });
            eventually("some changes are made", || {
                acknowledged.load(Ordering::Relaxed) >= enough || ended.load(Ordering::Relaxed)
            });
            std::thread::sleep(moment);
            gateway.kill();
        });
        changes += acknowledged.into_inner();
        assert_eq!(*failed.lock().expect("a lock"), None, "traffic before kill {kill}");
        gateway = setup.start();
    }
    compare(control(&gateway), &mut told);
    eventually("the steady endpoint serves", || gateway.ask(invoke()).status() == 200);
    assert!(changes >= KILLS as u64, "only {changes} changes were acknowledged");
    gateway.stop();
}
