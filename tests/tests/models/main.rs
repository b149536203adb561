//! Fleets whose instances serve different models.

mod fresh;
mod listings;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{
    Engine, Gate, Gateway, Message, Setup, Upstream, eventually,
    message::{request, request_with, response},
};

/// An instance with a list of models that can be changed.
struct Server {
    upstream: Upstream,
    models: Arc<Mutex<Vec<&'static str>>>,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn new(models: &[&'static str]) -> Self {
        let (models, asked) =
            (Arc::new(Mutex::new(models.to_vec())), Arc::<AtomicUsize>::default());
        let upstream = Upstream::answering({
            let (models, asked) = (models.clone(), asked.clone());
            move |request| {
                if request.target() != "/v1/models" {
                    return response(200, "served");
                }
                asked.fetch_add(1, Ordering::SeqCst);
                response(200, list(&models.lock().expect("a list")))
            }
        });
        Self { upstream, models, asked }
    }

    /// One that answers this when it is asked for its models.
    fn refusing(status: u16, body: &'static str) -> Upstream {
        Upstream::answering(move |request| match request.target() {
            "/v1/models" => response(status, body),
            _ => response(200, "served"),
        })
    }

    fn load(&self, model: &'static str) {
        self.models.lock().expect("a list").push(model);
    }
}

fn list(models: &[&str]) -> String {
    let data: Vec<_> =
        models.iter().map(|id| serde_json::json!({ "id": id, "object": "model" })).collect();
    serde_json::json!({ "object": "list", "data": data }).to_string()
}

/// Requests that an instance has served, lists of models left out.
fn served(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.method() == "POST").count()
}

fn learning(setup: Setup) -> Setup {
    setup.set("models.interval", "50ms")
}

/// Waits until the gateway knows as many lists.
fn known(gateway: &Gateway, count: usize) {
    eventually("the lists are known", || {
        let status = gateway.status().to_string();
        status.matches("\"models\":").count() >= count
    });
}

fn ask(gateway: &Gateway, model: &str, text: &str) -> Message {
    gateway.ask(body("/v1/chat/completions", model, text))
}

fn body(path: &str, model: &str, text: &str) -> Vec<u8> {
    let messages = serde_json::json!([{ "role": "user", "content": text }]);
    // The model behind the prompt, as some clients have it.
    let body = format!("{{\"messages\":{messages},\"model\":\"{model}\"}}");
    request("POST", path, body)
}

#[test]
fn a_request_goes_to_an_instance_that_lists_its_model() {
    for strategy in ["prefix-aware", "least-outstanding-requests", "random"] {
        let (a, b) = (Server::new(&["llama", "alias"]), Server::new(&["qwen"]));
        let gateway = learning(Setup::new(Engine::Userspace))
            .instances([&a.upstream, &b.upstream])
            .routing("strategy", strategy)
            .start();
        known(&gateway, 2);
        for n in 0..20 {
            for model in ["llama", "alias", "qwen"] {
                assert_eq!(ask(&gateway, model, &format!("{n}")).status(), 200);
            }
        }
        assert_eq!((served(&a.upstream), served(&b.upstream)), (40, 20), "{strategy}");
        gateway.expect_idle();
    }
}

#[test]
fn an_adapter_is_found_once_it_is_loaded_and_home_is_among_those_that_have_it() {
    let servers = [(); 4].map(|()| Server::new(&["llama"]));
    let gateway = learning(Setup::new(Engine::Userspace))
        .instances(servers.iter().map(|server| &server.upstream))
        .prefix_aware(1024, 100)
        .start();
    known(&gateway, 4);
    servers[1].load("sql");
    servers[2].load("sql");
    eventually("two have it", || gateway.status().to_string().matches("\"sql\"").count() == 2);
    let home = |n: usize| {
        let answer = ask(&gateway, "sql", &format!("{n}"));
        assert_eq!((answer.status(), answer.get("x-atalho-reason")), (200, Some("home")));
        answer.get("x-atalho-instance").expect("an instance answered").to_owned()
    };
    let homes: Vec<_> = (0..30).map(home).collect();
    assert_eq!(homes, (0..30).map(home).collect::<Vec<_>>(), "homes stay");
    let counts = [0, 1, 2, 3].map(|n| served(&servers[n].upstream));
    assert!(counts[0] + counts[3] == 0 && counts[1] > 0 && counts[2] > 0, "{counts:?}");
    // What all have goes to all of them still.
    (0..60).for_each(|n| drop(ask(&gateway, "llama", &format!("{n}"))));
    assert!(servers.iter().all(|server| served(&server.upstream) > 0));
}

#[test]
fn a_model_that_nobody_lists_does_not_exist() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let gateway =
        learning(Setup::new(Engine::Userspace)).instances([&a.upstream, &b.upstream]).start();
    known(&gateway, 2);
    let answer = ask(&gateway, "gpt", "x");
    assert_eq!((answer.status(), answer.get("x-atalho-error")), (404, Some("model_not_found")));
    let error = answer.json();
    assert_eq!(error["error"]["code"], "model_not_found");
    assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains("`gpt`")));
    let answer = gateway.ask(body("/v1/messages", "claude", "x"));
    assert_eq!(
        (answer.status(), &answer.json()["error"]["type"]),
        (404, &"not_found_error".into())
    );
    // Without a model, or with an empty one, any instance has a default.
    for model in ["", "llama"] {
        assert_eq!(ask(&gateway, model, "x").status(), 200);
    }
    assert_eq!(gateway.ask(request("POST", "/v1/chat/completions", "{}")).status(), 200);
    assert_eq!(gateway.ask(request("GET", "/v1/models/qwen", "")).status(), 200);
    assert_eq!(gateway.ask(request("GET", "/v1/models/gpt", "")).status(), 404);
}

#[test]
fn a_path_or_a_query_may_name_the_model() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["org/qwen"]));
    let gateway =
        learning(Setup::new(Engine::Userspace)).instances([&a.upstream, &b.upstream]).start();
    known(&gateway, 2);
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for target in ["/v1/models/org/qwen", "/v1/models/org%2Fqwen", "/v1/realtime?model=org%2Fqwen"]
    {
        let fields: &[_] = if target.contains("realtime") { &upgrade } else { &[] };
        for _ in 0..10 {
            let answer = gateway.connect().ask(request_with("GET", target, fields, ""));
            assert_eq!(answer.status(), 200, "{target}");
            assert_eq!(answer.payload(), b"served");
        }
    }
    let asked = |server: &Server| {
        let requests = server.upstream.requests();
        requests.iter().filter(|request| request.target() != "/v1/models").count()
    };
    assert_eq!((asked(&a), asked(&b)), (0, 30));
    let answer = gateway.connect().ask(request_with("GET", "/v1/realtime?model=gpt", &upgrade, ""));
    assert_eq!((answer.status(), answer.get("x-atalho-error")), (404, Some("model_not_found")));
}

#[test]
fn adapters_that_are_named_with_their_base_or_by_path_need_not_be_listed() {
    let (a, b) = (Server::new(&["llama", "sql"]), Server::new(&["qwen"]));
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream])
        .set("models.interval", "1h")
        .start();
    known(&gateway, 2);
    for (model, count) in [
        ("llama:sql", (1, 0)),
        ("llama:python", (2, 0)),
        ("qwen:sql", (2, 1)),
        ("qwen:a:b", (2, 1)),
    ] {
        let status = if model == "qwen:a:b" { 404 } else { 200 };
        assert_eq!(ask(&gateway, model, "x").status(), status, "{model}");
        assert_eq!((served(&a.upstream), served(&b.upstream)), count, "{model}");
    }
    let generate = |adapter: &str| {
        let body = serde_json::json!({ "text": "x", "lora_path": adapter });
        gateway.ask(request("POST", "/generate", body.to_string())).status()
    };
    assert!((0..10).all(|_| generate("sql") == 200));
    assert_eq!((served(&a.upstream), served(&b.upstream)), (12, 1), "the one that lists it");
    assert_eq!(generate("/adapters/python"), 200, "any");
}

#[test]
fn a_stored_response_is_found_at_the_endpoint_that_its_model_chose() {
    let keeper = |model: &'static str| {
        let id = format!("resp_{model}");
        Upstream::answering(move |request| match (request.method(), request.target()) {
            (_, "/v1/models") => response(200, list(&[model])),
            ("POST", "/v1/responses") => {
                let body = request.json();
                let previous = body["previous_response_id"].as_str();
                match previous.is_none_or(|previous| previous == id) {
                    true => response(200, serde_json::json!({ "id": id }).to_string()),
                    false => response(404, "{}"),
                }
            }
            ("GET", target) if target == format!("/v1/responses/{id}") => response(200, "kept"),
            _ => response(404, "{}"),
        })
    };
    let fleet = ["llama", "qwen"].map(|model| [(); 2].map(|()| keeper(model)));
    let endpoint = |name: &str, instances: &[Upstream; 2]| {
        let [a, b] = instances.each_ref().map(Upstream::url);
        format!(
            "[[endpoint]]\nname = \"{name}\"\n[[endpoint.variant]]\nname = \"main\"\n\
             instance = [{{ url = \"{a}\" }}, {{ url = \"{b}\" }}]\n"
        )
    };
    let both = endpoint("first", &fleet[0]) + &endpoint("second", &fleet[1]);
    let setup = learning(Setup::new(Engine::Userspace)).endpoints(&both);
    let gateway = setup.clone().start();
    known(&gateway, 4);
    let create = |gateway: &Gateway, body: serde_json::Value| {
        gateway.ask(request("POST", "/v1/responses", body.to_string()))
    };
    let read = |gateway: &Gateway, id: &str| {
        gateway.ask(request("GET", &format!("/v1/responses/{id}"), "")).status()
    };
    for model in ["llama", "qwen"] {
        let id = format!("resp_{model}");
        let made = create(&gateway, serde_json::json!({ "model": model, "input": "x" }));
        assert_eq!((made.status(), &made.json()["id"]), (200, &id.as_str().into()));
        assert_eq!(read(&gateway, &id), 200);
    }
    gateway.stop();
    // One that remembers nothing.
    let gateway = setup.start();
    known(&gateway, 4);
    for id in ["resp_llama", "resp_qwen"] {
        assert_eq!(read(&gateway, id), 200);
        // The model may be left out, or the stored response's own.
        let follow = serde_json::json!({ "previous_response_id": id, "input": "y" });
        assert_eq!(create(&gateway, follow).status(), 200);
    }
    assert_eq!(read(&gateway, "resp_other"), 404);
}

#[test]
fn sound_and_pictures_go_to_the_models_that_take_them() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["whisper-1"]));
    let gateway =
        learning(Setup::new(Engine::Userspace)).instances([&a.upstream, &b.upstream]).start();
    known(&gateway, 2);
    // As `curl -F file=@... -F model=...` sends it.
    let form = |model: &str| {
        let mut body =
            b"--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
                         Content-Type: audio/wav\r\n\r\n"
                .to_vec();
        body.extend((0..300_000_u32).map(|n| n as u8));
        body.extend(
            format!(
                "\r\n--b0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b0--\r\n"
            )
            .bytes(),
        );
        body
    };
    let fields = [("Content-Type", "multipart/form-data; boundary=b0")];
    let sound =
        |model| gateway.ask(request_with("POST", "/v1/audio/transcriptions", &fields, form(model)));
    for n in 1..=10 {
        assert_eq!(sound("whisper-1").status(), 200);
        assert_eq!((served(&a.upstream), served(&b.upstream)), (0, n));
    }
    let requests = b.upstream.requests();
    let last = requests.iter().rfind(|request| request.method() == "POST").expect("served");
    assert!(last.payload() == form("whisper-1"), "it arrives as it was sent");
    assert_eq!(sound("whisper-2").status(), 404);
    let picture = |model: &str| {
        let body = serde_json::json!({ "prompt": "A cat", "model": model }).to_string();
        gateway.ask(request("POST", "/v1/images/generations", body)).status()
    };
    assert_eq!([picture("whisper-1"), picture("flux")], [200, 404]);
    assert_eq!((served(&a.upstream), served(&b.upstream)), (0, 11));
}

#[test]
fn a_fleet_of_equals_leaves_it_to_the_instances() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["llama"]));
    let gateway =
        learning(Setup::new(Engine::Userspace)).instances([&a.upstream, &b.upstream]).start();
    known(&gateway, 2);
    assert_eq!(ask(&gateway, "gpt", "x").status(), 200, "as far as the gateway is concerned");
}

#[test]
fn an_instance_without_a_list_serves_what_no_other_lists() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    for (status, text) in
        [(404, "{}"), (401, "{}"), (200, "<html>"), (200, r#"{"object":"list","data":[]}"#)]
    {
        let dark = Server::refusing(status, text);
        let gateway = learning(Setup::new(Engine::Userspace))
            .instances([&a.upstream, &b.upstream, &dark])
            .prefix_aware(1024, 100)
            .start();
        known(&gateway, 2);
        for n in 0..10 {
            for model in ["llama", "qwen", "gpt"] {
                assert_eq!(ask(&gateway, model, &format!("{n}")).status(), 200);
            }
        }
        assert_eq!(served(&dark), 10, "{status}");
    }
    assert_eq!((served(&a.upstream), served(&b.upstream)), (40, 40));
}

#[test]
fn the_model_chooses_the_endpoint_and_its_prefixes_have_their_homes_there() {
    let llama = [(); 3].map(|()| Server::new(&["llama"]));
    let qwen = [(); 3].map(|()| Server::new(&["qwen"]));
    let instances = |servers: &[Server]| {
        let urls: Vec<_> =
            servers.iter().map(|s| format!("{{ url = \"{}\" }}", s.upstream.url())).collect();
        urls.join(", ")
    };
    let gateway = learning(Setup::new(Engine::Userspace))
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "first"
            [[endpoint.variant]]
            name = "main"
            prefix_length = 1024
            instance = [{}]
            [[endpoint]]
            name = "second"
            [[endpoint.variant]]
            name = "main"
            prefix_length = 4096
            instance = [{}]
            "#,
            instances(&llama),
            instances(&qwen)
        ))
        .start();
    known(&gateway, 6);
    let common = "word ".repeat(500);
    let count = |servers: &[Server]| servers.iter().map(|s| served(&s.upstream)).sum::<usize>();
    let mut by_name = Vec::new();
    for n in 0..20 {
        // The difference is behind the first endpoint's prefix, and within the second one's.
        let text = format!("{common}{n}");
        let answer = ask(&gateway, "qwen", &text);
        assert_eq!((answer.status(), answer.get("x-atalho-reason")), (200, Some("home")));
        let named =
            gateway.ask(body("/endpoints/second/openai/v1/chat/completions", "qwen", &text));
        assert_eq!(answer.get("x-atalho-instance"), named.get("x-atalho-instance"));
        by_name.push(named.get("x-atalho-instance").map(str::to_owned));
    }
    assert_eq!((count(&llama), count(&qwen)), (0, 40));
    by_name.sort();
    by_name.dedup();
    assert!(by_name.len() > 1, "its own prefix length holds");
    assert_eq!(ask(&gateway, "llama", &common).status(), 200);
    assert_eq!(count(&llama), 1);
    // A named endpoint is that one, whatever the model.
    let answer = gateway.ask(body("/endpoints/first/openai/v1/chat/completions", "qwen", "x"));
    assert_eq!((answer.status(), count(&llama)), (200, 2), "its instances are alike");
    let models = gateway.ask(request("GET", "/v1/models", "")).json();
    let ids: Vec<_> = models["data"].as_array().expect("a list").iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["llama", "qwen"]);
    let models = gateway.ask(request("GET", "/endpoints/second/openai/v1/models", "")).json();
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
}
