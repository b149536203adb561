//! Inference components: copies that share hosts, and changes of them under load.

use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use serde_json::{Value, json};
use tests::{
    Engine, Gate, Gateway, Next, Peer, Setup, Upstream, chunked, eventually,
    gateway::{INSTANCE_HEADER, REASON_HEADER},
    message::{CHUNKED_HEAD, request_with, response},
    payload,
};
use toml::Table;

const TYPE: &str = "ml.p5.48xlarge";
const ROLE: &str = "arn:aws:iam::000000000000:role/x";

/// A gateway with an endpoint `e` of these hosts, for components alone.
pub(crate) struct Hosting {
    pub(crate) gateway: Gateway,
    _store: tempfile::TempDir,
}

impl Hosting {
    fn start(engine: Engine, hosts: &[Upstream], copies: &str, threshold: u32) -> Self {
        let hosts: Vec<_> = hosts.iter().map(Upstream::url).collect();
        Self::with(Setup::new(engine), &hosts, &[("copies", copies.into())], threshold)
    }

    /// With these settings of its pool.
    pub(crate) fn with(
        setup: Setup,
        hosts: &[String],
        settings: &[(&str, toml::Value)],
        threshold: u32,
    ) -> Self {
        let store = tempfile::tempdir().expect("a directory");
        let mut pool = Table::new();
        pool.insert("instance_type".to_owned(), TYPE.into());
        pool.insert("hosts".to_owned(), hosts.to_vec().into());
        pool.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let gateway = setup
            .default_paths()
            .set("control.listen", "127.0.0.1:0")
            .set("control.store", store.path().join("state.redb").display().to_string())
            .set("host_pool", vec![toml::Value::Table(pool)])
            .start();
        let hosting = Self { gateway, _store: store };
        let model = json!({ "ModelName": "m", "ExecutionRoleArn": ROLE,
                            "PrimaryContainer": { "Image": "vllm" } });
        hosting.gateway.done("CreateModel", &model);
        let routing = json!({ "PrefixLength": 1024, "ConcurrencyThreshold": threshold });
        let variant = json!({
            "VariantName": "v", "InstanceType": TYPE, "InitialInstanceCount": hosts.len(),
            "RoutingConfig": { "RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": routing },
        });
        let config = json!({ "EndpointConfigName": "c", "ExecutionRoleArn": ROLE,
                             "ProductionVariants": [variant] });
        hosting.gateway.done("CreateEndpointConfig", &config);
        let endpoint = json!({ "EndpointName": "e", "EndpointConfigName": "c" });
        hosting.gateway.done("CreateEndpoint", &endpoint);
        hosting
    }

    pub(crate) fn create(&self, name: &str, copies: u32) {
        let needs = json!({ "MinMemoryRequiredInMb": 128 });
        self.gateway.done(
            "CreateInferenceComponent",
            &json!({
                "InferenceComponentName": name, "EndpointName": "e", "VariantName": "v",
                "Specification": { "ModelName": "m", "ComputeResourceRequirements": needs },
                "RuntimeConfig": { "CopyCount": copies },
            }),
        );
        self.settled(name);
    }

    pub(crate) fn describe(&self, name: &str) -> Option<Value> {
        let named = json!({ "InferenceComponentName": name });
        let answer = self.gateway.call("DescribeInferenceComponent", &named);
        (answer.status() == 200).then(|| answer.json())
    }

    pub(crate) fn settled(&self, name: &str) {
        eventually("the component is in service", || {
            self.describe(name).is_some_and(|it| it["InferenceComponentStatus"] == "InService")
        });
    }

    pub(crate) fn scale(&self, name: &str, copies: u32) {
        let wanted = json!({ "InferenceComponentName": name,
                             "DesiredRuntimeConfig": { "CopyCount": copies } });
        self.gateway.done("UpdateInferenceComponentRuntimeConfig", &wanted);
        self.settled(name);
    }

    pub(crate) fn delete(&self, name: &str) {
        let named = json!({ "InferenceComponentName": name });
        self.gateway.done("DeleteInferenceComponent", &named);
        eventually("the component is gone", || self.describe(name).is_none());
    }
}

/// A call of a component with this prompt.
pub(crate) fn call(component: &str, operation: &str, prompt: &str) -> Vec<u8> {
    let fields = [("X-Amzn-SageMaker-Inference-Component", component)];
    request_with("POST", &format!("/endpoints/e/{operation}"), &fields, prompt)
}

#[test]
fn a_home_at_the_threshold_is_followed_by_its_host_and_then_by_another() {
    let gate = Gate::new();
    let hosts = [Upstream::held(&gate), Upstream::held(&gate)];
    let hosting = Hosting::start(Engine::Userspace, &hosts, "name", 1);
    hosting.create("a", 4);
    hosting.create("b", 4);
    let ask = |component: &str, n: u32| {
        let mut client = hosting.gateway.connect();
        client.send(call(component, "invocations", "same"));
        eventually("it has its copy", || hosting.gateway.in_flight() == n);
        client
    };
    let mut a: Vec<_> = (1..=4).map(|n| ask("a", n)).collect();
    // Another component's requests do not count.
    let mut b: Vec<_> = (5..=6).map(|n| ask("b", n)).collect();
    gate.open();
    let told = |clients: &mut Vec<Peer>| -> Vec<(String, String)> {
        let answers = clients.iter_mut().map(Peer::response);
        let text = |it: Option<&str>| it.unwrap_or_default().to_owned();
        answers.map(|it| (text(it.get(REASON_HEADER)), text(it.get(INSTANCE_HEADER)))).collect()
    };
    let (a, b) = (told(&mut a), told(&mut b));
    let reasons: Vec<_> = a.iter().map(|(reason, _)| &**reason).collect();
    assert_eq!(reasons, ["home", "same_host", "overflow", "overflow"]);
    let host = |n: usize| a[n].1.split('#').next().map(str::to_owned);
    assert!(host(0) == host(1) && host(0) != host(2) && host(2) == host(3), "{a:?}");
    let reasons: Vec<_> = b.iter().map(|(reason, _)| &**reason).collect();
    assert_eq!(reasons, ["home", "same_host"]);
    // Each on the status page, and in the metrics.
    let status = hosting.gateway.status();
    let endpoints = status["endpoints"].as_array().expect("a list");
    let endpoint = endpoints.iter().find(|it| it["name"] == "e").expect("it is there");
    let components = endpoint["components"].as_array().expect("two").clone();
    let names: Vec<_> = components.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(
        (names, components[0]["copies"].as_array().unwrap().len()),
        (vec!["a".into(), "b".into()], 4)
    );
    let labels = [("reason", "same_host"), ("endpoint_name", "e")];
    assert_eq!(hosting.gateway.metric("atalho_requests_total", &labels), 2.0);
}

/// A server each, at the host's port and those above it.
#[test]
fn copies_with_ports_are_servers_of_their_own() {
    // Two ports in a row that nobody has.
    let [first, second] = (0..100)
        .find_map(|_| {
            let low = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
            let high = SocketAddr::new(low.ip(), low.port().checked_add(1)?);
            TcpListener::bind(high).ok().map(|_| [low, high])
        })
        .expect("free ports");
    let answering =
        |at, text: &'static str| Upstream::answering_at(at, move |_| response(200, text));
    let (host, beside) = (answering(first, "first"), answering(second, "second"));
    let hosting = Hosting::start(Engine::Userspace, std::slice::from_ref(&host), "port", 10);
    hosting.create("a", 2);
    let answers: Vec<Vec<u8>> = (0..40)
        .map(|n| hosting.gateway.ask(call("a", "invocations", &format!("prompt {n}"))).payload())
        .collect();
    for text in [&b"first"[..], b"second"] {
        assert!(answers.iter().any(|answer| answer == text), "{text:?}");
    }
    drop((host, beside));
}

#[test]
fn copies_with_paths_are_called_below_their_name() {
    let host = Upstream::answering(|message| response(200, message.target()));
    let hosting = Hosting::start(Engine::Userspace, std::slice::from_ref(&host), "path", 10);
    hosting.create("llama", 1);
    let answer = hosting.gateway.ask(call("llama", "invocations", "x"));
    assert_eq!(answer.payload(), b"/llama/invocations");
    let path = "/endpoints/e/inference-components/llama/openai/v1/chat/completions?a=b";
    let chat = request_with("POST", path, &[], r#"{"messages":[]}"#);
    assert_eq!(hosting.gateway.ask(chat).payload(), b"/llama/v1/chat/completions?a=b");
}

/// Prefixes of each client: what their homes are must not depend on what happens to other components.
const PROMPTS: usize = 20;
const STREAMS: usize = 8;
const CHANGES: u32 = 12;

/// What is done to one component moves nobody else's prefixes, and cuts nobody's stream.
#[test]
fn changes_under_load_touch_nobody_else() {
    let gate = Gate::new();
    let hosts: [Upstream; 3] = std::array::from_fn(|_| {
        let gate = gate.clone();
        Upstream::serve(move |peer, head| {
            let Ok(_) = peer.try_request_body(head) else { return Next::Close };
            if head.target() != "/v1/chat/completions" {
                let sent = peer.try_send(&response(200, "ok"));
                return if sent.is_ok() { Next::Keep } else { Next::Close };
            }
            let mut sent = peer.try_send(CHUNKED_HEAD);
            for number in 0..2 {
                sent = sent
                    .and_then(|()| peer.try_send(&chunked::chunk(&payload::bytes(number, 100))));
                // The second half comes when everything has been changed.
                gate.wait();
            }
            match sent.and_then(|()| peer.try_send(b"0\r\n\r\n")) {
                Ok(()) => Next::Keep,
                Err(_) => Next::Close,
            }
        })
    });
    let hosting = Hosting::start(Engine::Userspace, &hosts, "name", 1000);
    hosting.create("steady", 4);
    let gateway = &hosting.gateway;
    let home = |client: &mut Peer, n: usize| -> String {
        let answer = client.ask(call("steady", "invocations", &format!("prompt {n}")));
        assert_eq!(answer.status(), 200);
        answer.get(INSTANCE_HEADER).unwrap_or_default().to_owned()
    };
    let mut streams: Vec<Peer> = (0..STREAMS)
        .map(|n| {
            let mut client = gateway.connect();
            let body = json!({ "messages": [{ "role": "user", "content": format!("{n}") }] });
            let path = "/endpoints/e/inference-components/steady/openai/v1/chat/completions";
            client.send(request_with("POST", path, &[], body.to_string()));
            assert_eq!(client.head().status(), 200);
            client.expect(chunked::chunk(&payload::bytes(0, 100)));
            client
        })
        .collect();
    let mut client = gateway.connect();
    let homes: Vec<String> = (0..PROMPTS).map(|n| home(&mut client, n)).collect();
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    while !stop.load(Relaxed) {
                        for (n, expected) in homes.iter().enumerate() {
                            assert_eq!(&home(&mut client, n), expected);
                            asked.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        for n in 0..CHANGES {
            let before = asked.load(Relaxed);
            match n % 4 {
                0 => hosting.create("other", 3),
                1 => hosting.scale("other", 0),
                2 => hosting.scale("other", 5),
                _ => hosting.delete("other"),
            }
            eventually("requests were made meanwhile", || asked.load(Relaxed) > before);
        }
        stop.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no home has moved"));
    });
    gate.open();
    for stream in &mut streams {
        stream.expect(chunked::chunk(&payload::bytes(1, 100)));
        stream.expect("0\r\n\r\n");
    }
    gateway.expect_idle();
}
