//! Adapters (LoRA): loaded where they are to be, before they are called there.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::{Value, json};
use tests::{
    Engine, Head, Next, Peer, Setup, Upstream, eventually, gateway::INSTANCE_HEADER,
    message::response,
};

use super::components::{Hosting, call};

/// A server that loads adapters as vLLM does.
struct Server {
    upstream: Upstream,
    loaded: Arc<Mutex<BTreeSet<String>>>,
}

/// Requests for adapters that a server did not have.
type Misses = Arc<AtomicUsize>;

impl Server {
    fn start(misses: &Misses) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), misses)
    }

    fn start_at(address: SocketAddr, misses: &Misses) -> Self {
        let loaded = Arc::<Mutex<BTreeSet<String>>>::default();
        let (state, misses) = (Arc::clone(&loaded), Arc::clone(misses));
        let upstream = Upstream::serve_at(address, move |peer, head| {
            exchange(peer, head, &state, &misses).unwrap_or(Next::Close)
        });
        Self { upstream, loaded }
    }

    fn has(&self, adapter: &str) -> bool {
        self.loaded.lock().unwrap().contains(adapter)
    }
}

/// `None` when the gateway is gone.
fn exchange(
    peer: &mut Peer,
    head: &Head,
    loaded: &Mutex<BTreeSet<String>>,
    misses: &AtomicUsize,
) -> Option<Next> {
    let body = peer.try_request_body(head).ok()?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = asked["lora_name"].as_str().unwrap_or_default().to_owned();
    let error = |text: &str| json!({ "error": { "message": text } }).to_string();
    let mut loaded = loaded.lock().unwrap();
    let answer = match head.target() {
        "/v1/models" => {
            let ids = loaded.iter().map(String::as_str).chain(["base"]);
            let data: Vec<_> = ids.map(|id| json!({ "id": id, "object": "model" })).collect();
            response(200, json!({ "object": "list", "data": data }).to_string())
        }
        "/v1/load_lora_adapter" if asked["lora_path"] == "s3://weights/bad" => {
            response(400, error("Loading lora failed: no such file"))
        }
        "/v1/load_lora_adapter" if loaded.contains(&name) => {
            response(400, error(&format!("The lora adapter '{name}' has already been loaded.")))
        }
        "/v1/load_lora_adapter" => {
            loaded.insert(name.clone());
            response(200, format!("Success: LoRA adapter '{name}' added successfully."))
        }
        "/v1/unload_lora_adapter" => match loaded.remove(&name) {
            true => response(200, "Success"),
            false => response(404, error("cannot be found")),
        },
        "/invocations" => match head.get("x-amzn-sagemaker-adapter-identifier") {
            Some(adapter) if !loaded.contains(adapter) => {
                misses.fetch_add(1, Relaxed);
                response(404, error("The model does not exist."))
            }
            adapter => response(200, adapter.unwrap_or("base")),
        },
        _ => response(200, "ok"),
    };
    drop(loaded);
    peer.try_send(&answer).ok()?;
    Some(Next::Keep)
}

fn start(servers: &[Server]) -> Hosting {
    let hosts: Vec<_> = servers.iter().map(|server| server.upstream.url()).collect();
    let setup = Setup::new(Engine::Userspace)
        .set("health.active", true)
        .set("health.interval", "1s")
        .set("health.timeout", "1s")
        .set("models.interval", "50ms");
    let hosting = Hosting::with(setup, &hosts, &[("adapters", true.into())], 1000);
    hosting.create("base", u32::try_from(servers.len()).expect("few"));
    hosting
}

fn create(hosting: &Hosting, name: &str, weights: &str, copies: u32) {
    hosting.gateway.done(
        "CreateInferenceComponent",
        &json!({
            "InferenceComponentName": name, "EndpointName": "e",
            "Specification": {
                "BaseInferenceComponentName": "base", "Container": { "ArtifactUrl": weights },
            },
            "RuntimeConfig": { "CopyCount": copies },
        }),
    );
}

#[test]
fn an_adapter_is_loaded_on_its_set_called_there_and_unloaded() {
    let misses = Misses::default();
    let servers: [Server; 3] = std::array::from_fn(|_| Server::start(&misses));
    let hosting = start(&servers);
    let gateway = &hosting.gateway;
    create(&hosting, "x", "s3://weights/x", 2);
    hosting.settled("x");
    let has = || servers.iter().filter(|server| server.has("x")).count();
    assert_eq!(has(), 2);
    let mut homes = BTreeSet::new();
    let mut client = gateway.connect();
    for n in 0..60 {
        let prompt = format!("prompt {}", n % 20);
        let answer = client.ask(call("x", "invocations", &prompt));
        assert_eq!((answer.status(), answer.payload()), (200, b"x".to_vec()));
        let at = answer.get(INSTANCE_HEADER).unwrap_or_default().to_owned();
        let host = at.split('#').next().unwrap_or_default();
        let server = servers.iter().find(|it| it.upstream.url().ends_with(host)).expect("a host");
        assert!(server.has("x") && at.contains("#x."), "{at}");
        homes.insert((prompt, at));
    }
    assert_eq!(homes.len(), 20, "each prefix has one home in the set");
    assert_eq!(homes.iter().map(|(_, at)| at).collect::<BTreeSet<_>>().len(), 2);
    // Its base is called as before, everywhere.
    assert_eq!(client.ask(call("base", "invocations", "x")).payload(), b"base");
    // One that cannot be loaded: what the server says is told.
    create(&hosting, "bad", "s3://weights/bad", 1);
    gateway.expect_line(&["adapter not loaded", "no such file"]);
    let answer = client.ask(call("bad", "invocations", "x"));
    assert_eq!(answer.status(), 503, "nobody has it");
    hosting.delete("x");
    eventually("it is unloaded everywhere", || has() == 0);
    assert_eq!(misses.load(Relaxed), 0);
}

/// A server that is started anew has lost its adapters: it gets them again before it gets their requests.
#[test]
fn a_restarted_server_has_its_adapters_before_their_requests() {
    let misses = Misses::default();
    let mut servers: [Server; 2] = std::array::from_fn(|_| Server::start(&misses));
    let hosting = start(&servers);
    let gateway = &hosting.gateway;
    for name in ["x", "y"] {
        create(&hosting, name, "s3://weights/any", 2);
        hosting.settled(name);
    }
    let ask = |n: usize| {
        let adapter = ["x", "y"][n % 2];
        let answer = gateway.ask(call(adapter, "invocations", &format!("prompt {n}")));
        (answer.status(), answer.get(INSTANCE_HEADER).unwrap_or_default().to_owned())
    };
    let is_up = |server: &Server| {
        let authority = server.upstream.url().trim_start_matches("http://").to_owned();
        (0..40).map(ask).any(|(status, at)| status == 200 && at.starts_with(&authority))
    };
    assert!(servers.iter().all(is_up));
    for _ in 0..3 {
        let address = servers[0].upstream.address();
        servers[0].upstream.die();
        // The other one has all of them meanwhile.
        eventually("it is out", || {
            let authority = address.to_string();
            gateway.status().to_string().contains(&authority)
                && (0..10).map(ask).all(|(status, at)| status == 200 && !at.starts_with(&authority))
        });
        servers[0] = Server::start_at(address, &misses);
        eventually("it serves again", || is_up(&servers[0]));
        assert!(servers[0].has("x") && servers[0].has("y"));
    }
    assert_eq!(misses.load(Relaxed), 0, "no request came before its adapter");
    gateway.expect_idle();
}

/// Without a sign of it but its list of models.
#[test]
fn a_server_that_has_lost_an_adapter_gets_it_again() {
    let misses = Misses::default();
    let servers = [Server::start(&misses)];
    let hosting = start(&servers);
    create(&hosting, "x", "s3://weights/x", 1);
    hosting.settled("x");
    for _ in 0..3 {
        eventually("the gateway has seen it in the list", || {
            let status = hosting.gateway.status();
            let endpoints = status["endpoints"].as_array().expect("a list").clone();
            let endpoint = endpoints.into_iter().find(|it| it["name"] == "e").expect("it is there");
            let models = endpoint["variants"][0]["instances"][0]["models"].clone();
            models.as_array().is_some_and(|models| models.contains(&json!("x")))
        });
        servers[0].loaded.lock().unwrap().clear();
        eventually("it is loaded again", || servers[0].has("x"));
    }
}
