//! What the gateway knows of models is never too old to serve a request.

use super::*;

#[test]
fn an_adapter_that_was_loaded_a_moment_ago_is_not_refused() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream])
        .set("models.interval", "1h")
        .start();
    known(&gateway, 2);
    for (n, adapter) in ["sql", "python", "rust"].into_iter().enumerate() {
        assert_eq!(ask(&gateway, adapter, "x").status(), 404, "not loaded yet");
        b.load(adapter);
        assert_eq!(ask(&gateway, adapter, "x").status(), 200);
        assert_eq!((served(&a.upstream), served(&b.upstream)), (0, n + 1));
    }
}

#[test]
fn the_first_requests_wait_for_the_lists() {
    let gate = Gate::new();
    let server = |model: &'static str| {
        let gate = gate.clone();
        Upstream::answering(move |request| {
            if request.target() != "/v1/models" {
                return response(200, "served");
            }
            gate.wait();
            response(200, list(&[model]))
        })
    };
    let (a, b) = (server("llama"), server("qwen"));
    let gateway = learning(Setup::new(Engine::Userspace)).instances([&a, &b]).start();
    eventually("they are asked", || gate.waiting() == 2);
    let clients: Vec<_> = (0..8)
        .map(|n| {
            let mut client = gateway.connect();
            client.send(body("/v1/chat/completions", "qwen", &n.to_string()));
            client
        })
        .collect();
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!((served(&a), served(&b)), (0, 8));
}

#[test]
fn models_that_do_not_exist_make_few_questions() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream])
        .set("models.interval", "1h")
        .start();
    known(&gateway, 2);
    let asked = || a.asked.load(Ordering::SeqCst);
    let before = asked();
    std::thread::scope(|scope| {
        for n in 0..50 {
            let gateway = &gateway;
            scope.spawn(move || {
                assert_eq!(ask(gateway, &format!("gpt-{n}"), "x").status(), 404);
            });
        }
    });
    // One round for the first to come, and one for those that came while it ran; more only if some
    // took more than half a second to arrive.
    let rounds = asked() - before;
    assert!((1..10).contains(&rounds), "{rounds}");
}

#[test]
fn an_instance_that_does_not_tell_its_models_does_not_hold_up_the_answer() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let (hangs, gate) = (Arc::new(AtomicBool::new(false)), Gate::new());
    let silent = Upstream::answering({
        let (hangs, gate) = (hangs.clone(), gate.clone());
        move |_| {
            if hangs.load(Ordering::SeqCst) {
                gate.wait();
            }
            response(200, list(&["mistral"]))
        }
    });
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream, &silent])
        .set("models.interval", "1h")
        .start();
    known(&gateway, 3);
    hangs.store(true, Ordering::SeqCst);
    let began = Instant::now();
    assert_eq!(ask(&gateway, "gpt", "x").status(), 404);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    // What another one has by now is found before the silent one is given up.
    b.load("sql");
    assert_eq!(ask(&gateway, "sql", "x").status(), 200);
    gate.open();
}

#[test]
fn an_instance_that_was_never_reached_takes_no_adapter_from_the_others() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let mut dead = Upstream::manual();
    dead.die();
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream, &dead])
        .set("models.interval", "1h")
        .set("health.active", true)
        .start();
    known(&gateway, 2);
    eventually("it is down", || gateway.metric("atalho_instance_available", &[]) == 2.0);
    b.load("sql");
    assert_eq!(ask(&gateway, "sql", "x").status(), 200);
    // What it serves when it comes back is not known.
    let answer = ask(&gateway, "gpt", "x");
    assert_eq!((answer.status(), answer.get("retry-after").is_some()), (503, true));
    assert_eq!((served(&a.upstream), served(&b.upstream)), (0, 1));
}

#[test]
fn an_instance_that_says_not_found_is_asked_again_and_so_are_its_equals() {
    // As engines do, these refuse what they have not loaded.
    let engine = || {
        let models = Arc::new(Mutex::new(vec!["llama"]));
        let upstream = Upstream::answering({
            let models = models.clone();
            move |request| {
                let models = models.lock().expect("a list");
                if request.target() == "/v1/models" {
                    return response(200, list(&models));
                }
                let body = request.json();
                let model = body["model"].as_str().expect("a model");
                response(if models.contains(&model) { 200 } else { 404 }, "{}")
            }
        });
        (upstream, models)
    };
    let engines = [(); 3].map(|()| engine());
    for strategy in ["prefix-aware", "least-outstanding-requests"] {
        let gateway = Setup::new(Engine::Userspace)
            .instances(engines.iter().map(|(upstream, _)| upstream))
            .routing("strategy", strategy)
            .set("models.interval", "1h")
            .start();
        known(&gateway, 3);
        let adapter = if strategy == "prefix-aware" { "sql" } else { "python" };
        assert_eq!(ask(&gateway, adapter, "x").status(), 404, "by the instance");
        engines[1].1.lock().expect("a list").push(adapter);
        // A request that happens to reach it tells nothing; others are answered 404 until it is known.
        let listed = || gateway.status().to_string().contains(&format!("\"{adapter}\"]"));
        let mut n = 0;
        eventually("it is found", || {
            n += 1;
            ask(&gateway, adapter, &format!("{n}"));
            listed()
        });
        assert!((0..20).all(|n| ask(&gateway, adapter, &format!("{n}")).status() == 200));
        // Adapters of the first half would tell the instances of the second one apart.
        engines[1].1.lock().expect("a list").pop();
    }
}

#[test]
fn an_instance_that_stops_answering_keeps_its_models() {
    let a = Server::new(&["llama"]);
    let mut b = Server::new(&["qwen"]);
    let gateway = learning(Setup::new(Engine::Userspace))
        .instances([&a.upstream, &b.upstream])
        .set("health.active", true)
        .set("health.interval", "50ms")
        .set("health.timeout", "50ms")
        .start();
    known(&gateway, 2);
    b.upstream.die();
    eventually("it is down", || gateway.metric("atalho_instance_available", &[]) == 1.0);
    let answer = ask(&gateway, "qwen", "x");
    assert_eq!(answer.status(), 503, "the other one does not serve it");
    assert_eq!(served(&a.upstream), 0);
}

#[test]
fn an_instance_that_comes_up_is_asked_what_it_serves_now() {
    let (a, b) = (Server::new(&["llama"]), Server::new(&["qwen"]));
    let mut c = Server::new(&["mistral"]);
    let gateway = Setup::new(Engine::Userspace)
        .instances([&a.upstream, &b.upstream, &c.upstream])
        .set("models.interval", "1h")
        .set("health.active", true)
        .set("health.interval", "200ms")
        .set("health.timeout", "200ms")
        .start();
    known(&gateway, 3);
    let address = c.upstream.address();
    c.upstream.die();
    eventually("it is down", || gateway.status().to_string().contains("\"down\""));
    let again = Upstream::answering_at(address, |request| match request.target() {
        "/v1/models" => response(200, list(&["gemma"])),
        _ => response(200, "served"),
    });
    // Nobody asks for it.
    eventually("its list is known", || gateway.status().to_string().contains("gemma"));
    assert_eq!(ask(&gateway, "gemma", "x").status(), 200);
    assert_eq!(served(&again), 1);
}
