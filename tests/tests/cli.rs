//! The commands, as a user runs them.

use std::process::Output;

use tests::{
    Engine, Gateway, Setup, Topology, Upstream,
    gateway::{INSTANCE_HEADER, atalho},
    message::{chat, chat_body, chat_with},
    payload, process,
};

fn run(args: &[&str]) -> (Output, String, String) {
    let output = atalho(None).args(args).output().expect("the binary");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn every_command_explains_itself() {
    let (output, help, _) = run(&["--help"]);
    assert!(output.status.success());
    for command in
        ["serve", "check", "status", "explain", "endpoint", "doctor", "completions", "help"]
    {
        assert!(help.contains(command), "{help}");
        let (output, text, _) = run(&[command, "--help"]);
        assert!(output.status.success() && text.len() > 150, "{command}: {text}");
    }
    let (_, serve, _) = run(&["serve", "--help"]);
    for flag in [
        "--listen",
        "--backend",
        "--strategy",
        "--prefix-length",
        "--concurrency-threshold",
        "--engine",
        "--admin",
        "--config",
    ] {
        assert!(serve.contains(flag), "{flag} is not in the help of serve");
    }
    let (output, version, _) = run(&["--version"]);
    assert!(output.status.success() && version.starts_with("atalho "), "{version}");
}

#[test]
fn help_is_a_command_like_the_others() {
    let (_, all, _) = run(&["--help"]);
    assert_eq!(run(&["help"]).1, all);
    let (_, check, _) = run(&["check", "--help"]);
    assert_eq!(run(&["help", "check"]).1, check);
    let (output, text, err) = run(&["help", "--help"]);
    assert!(output.status.success() && text.contains("COMMAND"), "{text}{err}");
    let (output, _, err) = run(&["help", "frobnicate"]);
    assert!(!output.status.success() && err.contains("frobnicate"), "{err}");
}

#[test]
fn a_flag_from_the_environment_is_named_by_its_variable() {
    for (command, variable, value) in [
        ("serve", "ATALHO_LISTEN", "127.0.0.1:0"),
        ("serve", "ATALHO_BACKENDS", "http://127.0.0.1:1"),
        ("status", "ATALHO_ADMIN", "127.0.0.1:9"),
        ("endpoint list", "ATALHO_CONTROL", "127.0.0.1:9"),
    ] {
        let output = atalho(None)
            .args(command.split(' '))
            .args(["--config", "/nowhere.toml"])
            .env(variable, value)
            .output()
            .expect("the binary");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(err.contains(variable) && err.contains("--config"), "{err}");
    }
    // On the command line there is no variable to be named, even if one is set as well.
    let output = atalho(None)
        .args(["serve", "--config", "/nowhere.toml", "--listen", "127.0.0.1:0"])
        .env("ATALHO_LISTEN", "127.0.0.1:0")
        .output()
        .expect("the binary");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("--listen") && !err.contains("ATALHO_LISTEN"), "{err}");
}

#[test]
fn status_says_what_is_wrong_with_whom_since_when_and_why() {
    let (well, gone) = (Upstream::ok(), Upstream::ok());
    let setup = Setup::new(Engine::Userspace).instances([&well, &gone]);
    let setup = setup.set("health.active", true).set("health.interval", "50ms");
    let setup = setup.set("health.timeout", "50ms");
    let gateway = setup.start();
    let admin = gateway.admin().to_string();
    let status = || run(&["status", "--admin", &admin]);
    let (output, text, err) = status();
    assert!(output.status.success(), "{text}{err}");
    assert!(text.contains("2 of 2 instances can serve"), "{text}");

    let url = gone.url();
    drop(gone);
    let line = tests::wait::eventually_some("the dead instance is shown as down", || {
        let (_, text, _) = status();
        text.lines().find(|line| line.contains("down")).map(str::to_owned)
    });
    for part in [&*url, "0 in flight", "for ", "health checks fail", "refused"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
    let (output, _, _) = status();
    assert_eq!(output.status.code(), Some(1), "somebody has to look at it");
    let page = gateway.status();
    let instance = &page["endpoints"][0]["variants"][0]["instances"][1];
    assert_eq!(
        (&instance["status"], &instance["last_check"]["ok"]),
        (&"down".into(), &false.into())
    );
    let (output, json, _) = run(&["status", "--json", "--admin", &admin]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["endpoints"][0]["variants"][0]["instances"][1]["since"], instance["since"]);
}

#[test]
fn status_says_what_the_last_reload_said() {
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream);
    let gateway = setup.start();
    let admin = gateway.admin().to_string();
    let last = || gateway.metric("atalho_config_last_reload_successful", &[]);
    let at = || gateway.metric("atalho_config_last_reload_timestamp_seconds", &[]);
    assert!(last() == 1.0 && at() > 1.6e9, "{} at {}", last(), at());
    let file = gateway.config_file();
    let good = std::fs::read_to_string(&file).unwrap();
    tests::gateway::replace(&file, &format!("colour = \"red\"\n{good}"));
    tests::eventually("it is refused", || last() == 0.0);
    let (output, text, _) = run(&["status", "--admin", &admin]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("is not in effect") && text.contains("atalho.toml:1:1: colour"),
        "{text}"
    );
    // Taken back: there is nothing to take over, and nothing wrong.
    tests::gateway::replace(&file, &good);
    tests::eventually("all is well again", || last() == 1.0);
    let (output, text, _) = run(&["status", "--admin", &admin]);
    assert!(output.status.success() && !text.contains("colour"), "{text}");
}

#[test]
fn status_of_no_gateway_says_whom_it_asked() {
    let (output, _, err) = run(&["status", "--admin", "127.0.0.1:1"]);
    assert!(!output.status.success() && err.contains("127.0.0.1:1"), "{err}");
    // A client's listener is no admin address.
    let upstream = Upstream::ok();
    let address = upstream.address().to_string();
    let (output, _, err) = run(&["status", "--admin", &address]);
    assert!(!output.status.success() && err.contains(&address), "{err}");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (output, script, _) = run(&["completions", shell]);
        assert!(output.status.success() && script.contains("atalho"), "{shell}");
    }
}

#[test]
fn serve_works_with_flags_alone() {
    let fleet = [Upstream::ok(), Upstream::ok()];
    let urls = fleet.each_ref().map(Upstream::url);
    let gateway = Gateway::start_with_flags(
        Engine::Userspace,
        &[
            "--backend",
            &urls[0],
            "--backend",
            &urls[1],
            "--strategy",
            "random",
            "--prefix-length",
            "2048",
            "--concurrency-threshold",
            "5",
        ],
    );
    for _ in 0..40 {
        assert_eq!(gateway.ask(chat("x")).status(), 200);
    }
    let served = |upstream: &Upstream| {
        upstream.requests().iter().filter(|r| r.target() == "/v1/chat/completions").count()
    };
    assert_eq!(served(&fleet[0]) + served(&fleet[1]), 40);
    assert!(served(&fleet[0]) > 0 && served(&fleet[1]) > 0);
    gateway.stop();
}

#[test]
fn with_a_json_log_every_line_is_json() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).set("log.format", "json").start();
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    let lines = gateway.lines();
    let ready = |line: &&String| {
        let json: serde_json::Value = serde_json::from_str(line).expect(line);
        json["message"] == "ready"
    };
    assert_eq!(lines.iter().filter(ready).count(), 1);
    gateway.stop();
}

#[test]
fn an_address_that_cannot_be_listened_on_is_explained_by_its_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let taken = taken.local_addr().expect("bound").to_string();
    // An address of nobody (RFC 5737).
    let foreign = "192.0.2.1:8080";
    for (flag, address, part) in [
        ("--listen", &*taken, "another program has the port"),
        ("--admin", &*taken, "another program has the port"),
        ("--listen", foreign, "no interface of this host has that address"),
        ("--admin", foreign, "no interface of this host has that address"),
    ] {
        let mut args = vec!["serve", "--engine", "userspace", "--backend", "http://127.0.0.1:1"];
        let other = if flag == "--listen" { "--admin" } else { "--listen" };
        args.extend([flag, address, other, "127.0.0.1:0"]);
        let (output, _, err) = run(&args);
        assert!(!output.status.success());
        assert!(err.contains(address) && err.contains(part), "{err}");
        assert!(part.contains("another") || !err.contains("another program"), "{err}");
    }
    if !process::root_or_skip("becoming another user") {
        return;
    }
    let output = atalho(None)
        .args(["serve", "--engine", "userspace", "--backend", "http://127.0.0.1:1"])
        .args(["--admin", "off", "--listen", "127.0.0.1:80"])
        .as_nobody()
        .output()
        .expect("the binary");
    let err = String::from_utf8_lossy(&output.stderr);
    let unprivileged = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    assert_eq!(unprivileged.expect("procfs").trim(), "1024", "else this host lets everybody");
    assert!(err.contains("CAP_NET_BIND_SERVICE") && !err.contains("another program"), "{err}");
}

#[test]
fn wrong_flags_are_explained() {
    for (args, parts) in [
        (&["serve"][..], &["--backend"][..]),
        (&["serve", "--backend", "ftp://x"], &["--backend", "http"]),
        (&["serve", "--backend", "http://x:1", "--prefix-length", "3"], &["1024", "65536"]),
        (&["serve", "--backend", "http://x:1", "--concurrency-threshold", "0"], &["1024"]),
        (&["serve", "--backend", "http://x:1", "--engine", "warp"], &["userspace"]),
        (&["serve", "--backend", "http://x:1", "--strategy", "best"], &["prefix-aware"]),
        (&["serve", "--config", "/nowhere.toml"], &["/nowhere.toml"]),
        (&["serve", "--config", "/nowhere.toml", "--backend", "http://x:1"], &["--config"]),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        let (output, _, err) = run(args);
        assert!(!output.status.success(), "{args:?}");
        for part in parts {
            assert!(err.contains(part), "{args:?}: {part:?} is not in {err}");
        }
        assert!(!err.contains("panicked") && !err.contains("Stack backtrace"), "{err}");
    }
}

#[test]
fn check_names_every_mistake_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, Setup::new(Engine::Userspace).text()).unwrap();
    let (output, _, err) = run(&["check", path]);
    assert!(output.status.success(), "{err}");

    std::fs::write(&file, "threads = 2\n[engine]\nmode = \"warp\"\n\n[timeouts]\nhead = 3\n")
        .unwrap();
    let (output, _, err) = run(&["check", path]);
    assert_eq!(output.status.code(), Some(1));
    for part in ["a.toml:3", "engine.mode", "warp", "a.toml:6", "timeouts.head", "endpoint"] {
        assert!(err.contains(part), "{part:?} is not in {err}");
    }
}

#[test]
fn check_finds_addresses_that_exclude_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    let good = Setup::new(Engine::Userspace).set("listen", vec!["0.0.0.0:9901"]);
    std::fs::write(&file, good.set("admin", "127.0.0.1:9901").text()).unwrap();
    let (output, _, err) = run(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("admin: 127.0.0.1:9901 is taken by 0.0.0.0:9901"), "{err}");
    // With flags too, and before anything is bound.
    let serve = ["serve", "--backend", "http://127.0.0.1:1"];
    let (output, _, err) = run(&[&serve[..], &["--listen", "127.0.0.1:9901"]].concat());
    assert!(!output.status.success() && err.contains("--admin: 127.0.0.1:9901 is taken"), "{err}");
}

#[test]
fn check_reads_standard_input() {
    use std::io::Write;
    let check = |text: &str| {
        let mut child = atalho(None)
            .args(["check", "-"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary");
        child.stdin.take().unwrap().write_all(text.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let good = check(&Setup::new(Engine::Userspace).text());
    let out = String::from_utf8_lossy(&good.stdout);
    assert!(good.status.success() && out.starts_with("standard input: good"), "{out}");
    let bad = check("threads = \"x\"");
    let err = String::from_utf8_lossy(&bad.stderr);
    assert!(!bad.status.success() && err.starts_with("standard input:1:11: threads"), "{err}");
}

#[test]
fn a_pipe_as_configuration_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils");
    assert!(made.success());
    let pipe = pipe.to_str().unwrap();
    for args in [&["check", pipe][..], &["serve", "--config", pipe], &["check", "/dev/zero"]] {
        let (output, _, err) = run(args);
        assert!(!output.status.success());
        assert!(err.contains(args[args.len() - 1]) && err.contains("a pipe or device"), "{err}");
    }
}

#[test]
fn explain_says_what_the_gateway_does() {
    let fleet: Vec<Upstream> = (0..5).map(|_| Upstream::ok()).collect();
    let gateway = Setup::new(Engine::Userspace).instances(&fleet).prefix_aware(1024, 10).start();
    let config = gateway.config_file();
    let config = config.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("request");
    let tenant = "X-Amzn-SageMaker-Prefix-Aware-Id";
    for seed in 0..8 {
        let text = payload::text(seed, 1500);
        // By its body.
        std::fs::write(&file, chat_body(&text)).unwrap();
        let explain = |args: &[&str]| -> serde_json::Value {
            let common = ["explain", "--json", "--config", config];
            let (output, out, err) = run(&[&common, args, &[file.to_str().unwrap()]].concat());
            assert!(output.status.success(), "{err}");
            serde_json::from_str(&out).expect("JSON")
        };
        let json = explain(&[]);
        let home = gateway.ask(chat(&text));
        let named = |json: &serde_json::Value| {
            json["choice"]["instance"].as_str().unwrap().trim_start_matches("http://").to_owned()
        };
        assert_eq!(home.get(INSTANCE_HEADER), Some(&*named(&json)));
        assert_eq!(json["ranking"].as_array().unwrap().len(), 5);
        assert_eq!(json["ranking"][0]["instance"], json["choice"]["instance"]);
        assert_eq!(json["prefix"]["length"], 1024);
        // With a tenant, by flag and as a whole request.
        let json = explain(&["-H", &format!("{tenant}: blue")]);
        let request = chat_with(&[(tenant, "blue")], &text);
        let answer = gateway.ask(&request);
        assert_eq!(answer.get(INSTANCE_HEADER), Some(&*named(&json)));
        std::fs::write(&file, &request).unwrap();
        assert_eq!(explain(&[])["key"], json["key"]);
    }
    // For people.
    let common = ["explain", "--config", config, "-d", r#"{"prompt":"Once"}"#];
    let (output, out, _) = run(&[&common[..], &["--path", "/v1/completions"]].concat());
    assert!(output.status.success());
    for part in ["Once", "key", "ranking", "choice"] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
}

#[test]
fn doctor_says_what_works() {
    let (output, out, _) = run(&["doctor"]);
    assert!(output.status.success());
    assert!(out.contains("userspace") && out.contains("sockmap"), "{out}");
    if Engine::Sockmap.available() {
        let line = out.lines().find(|line| line.contains("sockmap")).unwrap();
        assert!(line.trim_start().starts_with("ok"), "{out}");
    }
}

#[test]
fn doctor_splices_a_request_over_the_real_interface() {
    if !Engine::Splice.available() {
        return;
    }
    let Some(entered) = Topology::Veth.enter() else { return };
    let network = entered.network().expect("hosts of their own");
    let upstream = Upstream::ok();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("atalho.toml");
    std::fs::write(&file, Setup::single(Engine::Splice, &upstream).text()).unwrap();
    let doctor = ["doctor", "--config", file.to_str().unwrap()];
    let (output, out, _) = network.gateway.run(|| run(&doctor));
    assert!(output.status.success(), "{out}");
    let lines: Vec<&str> = out.lines().filter(|line| line.contains(&upstream.url())).collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines.iter().all(|line| line.trim_start().starts_with("ok")), "{out}");
    assert!(lines.iter().all(|line| line.ends_with("answered 200")), "{out}");
    assert!(lines[1].contains("spliced a request"), "{out}");
}

#[test]
fn doctor_fails_with_a_dead_instance_and_says_which() {
    let (well, gone) = (Upstream::ok(), Upstream::ok());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("atalho.toml");
    std::fs::write(&file, Setup::new(Engine::Userspace).instances([&well, &gone]).text()).unwrap();
    let doctor =
        |args: &[&str]| run(&[&["doctor", "--config", file.to_str().unwrap()], args].concat());
    let (output, out, _) = doctor(&[]);
    assert!(output.status.success(), "{out}");
    let url = gone.url();
    drop(gone);
    let (output, out, _) = doctor(&[]);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let line = out.lines().find(|line| line.contains(&url)).expect(&out);
    assert!(line.trim_start().starts_with("no") && line.contains("refused"), "{line}");
    let (output, json, _) = doctor(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["ok"], false);
    assert_eq!(json["engines"][0]["name"], "userspace");
    let instances = json["instances"].as_array().expect("a list");
    let found = |url: &str| instances.iter().find(|found| found["name"] == url).expect("found");
    assert_eq!((&found(&well.url())["ok"], &found(&url)["ok"]), (&true.into(), &false.into()));
}

#[test]
fn without_privileges_auto_relays_in_user_space_and_says_why() {
    if !process::root_or_skip("becoming another user") {
        return;
    }
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream).as_nobody();
    let gateway = setup.clone().set("engine.mode", "auto").start();
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    gateway.expect_line(&["CAP_BPF"]);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("atalho_engine_available", &[("engine", "splice")]), 0.0);
    assert_eq!(metrics.sum("atalho_engine_available", &[("engine", "userspace")]), 1.0);
    gateway.stop();

    // Asked for the kernel and nothing else, it refuses to start rather than to pretend.
    let output = atalho(None)
        .args(["serve", "--engine", "sockmap", "--listen", "127.0.0.1:0", "--admin", "off"])
        .args(["--backend", "http://127.0.0.1:1"])
        .as_nobody()
        .output()
        .unwrap();
    assert!(!output.status.success());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("CAP_BPF") && err.contains("--engine auto"), "{err}");
}

trait AsNobody {
    fn as_nobody(&mut self) -> &mut Self;
}

impl AsNobody for std::process::Command {
    fn as_nobody(&mut self) -> &mut Self {
        use std::os::unix::process::CommandExt;
        self.current_dir("/").uid(65534).gid(65534)
    }
}

#[test]
fn auto_splices_what_is_long_enough() {
    if !Engine::Splice.available() {
        return;
    }
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Splice, &upstream)
        .set("engine.mode", "auto")
        .set("engine.hand_over_from_bytes", "64KiB")
        .set("engine.hand_over_from_reads", 4)
        .start();
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("atalho_engine_available", &[("engine", "splice")]), 1.0);
    assert_eq!(metrics.sum("atalho_engine_available", &[("engine", "sockmap")]), 0.0);
    let mut client = gateway.connect();
    let known = |size: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
    let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let pieces = |bytes: &[u8], size| bytes.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let tokens = (0..20).map(|_| tests::chunked::chunk(b"token")).chain([b"0\r\n\r\n".to_vec()]);
    let bodies = [
        (known(1_000), pieces(&payload::bytes(1, 1_000), 100), false),
        (known(3_000_000), pieces(&payload::bytes(1, 3_000_000), 16 << 10), true),
        (stream.into(), tokens.collect(), true),
    ];
    for (number, (head, body, handed_over)) in (1..).zip(bodies) {
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        let before = gateway.carried(Engine::Splice, "response");
        instance.send(head);
        client.head();
        for piece in &body {
            instance.send(piece);
            payload::assert_same("body", &client.take_exact(piece.len()), piece);
        }
        instance.close();
        // The bytes are counted with the outcome, which is later than the counter's release.
        gateway.expect_outcomes("ok", number);
        let carried = gateway.carried(Engine::Splice, "response") - before;
        assert_eq!(carried > 0, handed_over, "body {number}: the kernel carried {carried} bytes");
    }
}

/// Answers of a stream of tokens each, one read per token, as many as the gateway needs to learn.
#[test]
fn auto_learns_which_answers_are_worth_splicing() {
    if !Engine::Splice.available() {
        return;
    }
    let upstream = Upstream::manual();
    let gateway = Setup::single(Engine::Splice, &upstream)
        .set("engine.mode", "auto")
        .set("engine.hand_over_from_reads", 4)
        .start();
    let mut client = gateway.connect();
    let mut instance = None;
    let mut outcomes = 0;
    // Returns how many of them were handed over.
    let mut answers = |count: usize, tokens: usize| {
        let before = gateway.metrics().sum("atalho_handovers_total", &[]);
        for _ in 0..count {
            client.send(chat("x"));
            let instance = instance.get_or_insert_with(|| upstream.accept());
            instance.request();
            instance.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.head();
            let token = tests::chunked::chunk(b"token");
            for piece in (0..tokens).map(|_| &*token).chain([&b"0\r\n\r\n"[..]]) {
                instance.send(piece);
                payload::assert_same("piece", &client.take_exact(piece.len()), piece);
            }
            outcomes += 1;
            gateway.expect_outcomes("ok", outcomes);
        }
        gateway.metrics().sum("atalho_handovers_total", &[]) - before
    };
    let learned = || gateway.metrics().sum("atalho_learned_reads", &[("api", "chat_completions")]);
    assert_eq!(answers(15, 3), 0.0, "four reads with the last chunk, and nothing behind it");
    assert_eq!(learned(), 0.0, "not enough to tell");
    assert_eq!(answers(200, 3), 0.0);
    assert_eq!(learned(), 8.0);
    assert!(answers(1, 30) >= 1.0, "though the programs no longer looked at such connections");
    // The long one has made an earlier hand-over look better, until some would have lost by it.
    answers(5, 5);
    assert_eq!(answers(40, 5), 0.0, "known to be too short");
    assert!(answers(100, 30) >= 100.0);
    assert!(learned() < 8.0, "worth it earlier");
}
