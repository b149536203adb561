//! Real clients, in front of simulated engines: the openai package, the AWS SDK, curl.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use tests::{
    Engine, Gate, Gateway, Next, Setup, Upstream, chunked, eventually, for_each_engine_on_loopback,
    message::{CHUNKED_HEAD, chat, response, response_with},
    payload, process,
    python::{expect_success, python, run_script_with},
};

/// A simulated engine.
struct Sim {
    child: Child,
    url: String,
}

impl Sim {
    fn start() -> Sim {
        let mut command = Command::new(process::binary("ATALHO_SIM", "atalho-sim"));
        Sim::run(command.args(["--port", "0", "--exit-with-parent", "--time-scale", "0.1"]))
    }

    /// A program that says first where it listens.
    fn run(command: &mut Command) -> Sim {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the simulated engine");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        let address = line.trim().strip_prefix("listening on ").expect("where it listens");
        Sim { url: format!("http://{address}"), child }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with the flags a user would give, in front of as many engines.
fn gateway(engine: Engine, engines: usize) -> (Gateway, Vec<Sim>) {
    let fleet: Vec<Sim> = (0..engines).map(|_| Sim::start()).collect();
    let mut flags = vec!["--prefix-length", "1024", "--concurrency-threshold", "100"];
    flags.extend(fleet.iter().flat_map(|sim| ["--backend", &sim.url]));
    (Gateway::start_with_flags(engine, &flags), fleet)
}

fn run_script(engine: Engine, script: &str) {
    let (gateway, _fleet) = gateway(engine, 4);
    run_script_with(script, &[&gateway.url()]);
    eventually("nothing is in flight", || gateway.in_flight() == 0);
}

for_each_engine_on_loopback! {
    fn the_openai_client(engine) {
        run_script(engine, "openai_client.py");
    }

    fn realtime_clients(engine) {
        let Some(python) = python() else { return };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/realtime_server.py");
        let fleet: Vec<_> = (0..2).map(|_| Sim::run(Command::new(&python).arg(&script))).collect();
        let backends: Vec<_> = fleet.iter().flat_map(|sim| ["--backend", &sim.url]).collect();
        let gateway = Gateway::start_with_flags(engine, &backends);
        run_script_with("realtime_client.py", &[&gateway.url()]);
        eventually("nothing is in flight", || gateway.in_flight() == 0);
        assert!(gateway.outcomes("ok") >= 9);
    }

    fn the_aws_sdk(engine) {
        run_script(engine, "boto3_client.py");
    }

    fn curl_in_all_its_ways(engine) {
        let echo = Upstream::answering(|request| response(200, request.payload()));
        let gateway = Setup::single(engine, &echo).start();
        let body = payload::bytes(7, 3 << 20);
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().write_all(&body).expect("its content");
        let data = format!("@{}", file.path().display());
        let upload = file.path().display().to_string();
        let url = gateway.url();
        for args in [
            // Asks with Expect before it sends a body of this size.
            &["--data-binary", &data][..],
            &["--data-binary", &data, "--header", "Transfer-Encoding: chunked"],
            &["--upload-file", &upload, "--request", "POST"],
            &["--http1.0", "--data-binary", &data],
            // Twice, on one connection.
            &["--data-binary", &data, &url],
        ] {
            let output = curl(args, &url);
            expect_success(&output);
            let copies = 1 + args.iter().filter(|arg| **arg == url).count();
            payload::assert_same(&args.join(" "), &output.stdout, &body.repeat(copies));
        }
        gateway.expect_idle();
    }

    fn curl_sees_events_as_they_come(engine) {
        let (gateway, _fleet) = gateway(engine, 2);
        let url = format!("{}/v1/chat/completions", gateway.url());
        let body = r#"{"stream":true,"max_tokens":50,"messages":[{"role":"user","content":"x"}]}"#;
        let output = curl(&["--no-buffer", "--json", body], &url);
        expect_success(&output);
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert!(text.matches("data: {").count() >= 50, "{text}");
        let head = curl(&["--head"], &format!("{}/health", gateway.url()));
        expect_success(&head);
        assert!(head.stdout.starts_with(b"HTTP/1.1 200"), "{head:?}");
        gateway.expect_idle();
    }
}

#[test]
fn the_openai_client_raises_what_fits_each_error() {
    let start = |setup: Setup| setup.start();
    let base = || Setup::new(Engine::Userspace);
    let case = |name: &str, gateway: &Gateway| {
        run_script_with("openai_errors.py", &[name, &gateway.url()]);
        gateway.expect_idle();
    };
    case("no_instance", &start(base()));

    let mut dead = Upstream::manual();
    dead.die();
    case("unreachable", &start(base().instance(dead.address())));

    let ok = Upstream::ok();
    case("bad_tenant", &start(base().instances([&ok])));
    case("too_large", &start(base().instances([&ok]).set("limits.body_bytes", 100_000)));

    let deaf = Upstream::serve(|peer, head| {
        let _ = peer.try_request_body(head);
        // Until the gateway gives up.
        peer.end();
        Next::Close
    });
    case("slow", &start(base().instances([&deaf]).set("timeouts.first_byte", "300ms")));

    let gate = Gate::new();
    let held = Upstream::held(&gate);
    let gateway = start(
        base().instances([&held]).routing("max_in_flight", 1).routing("concurrency_threshold", 1),
    );
    let mut client = gateway.connect();
    client.send(chat("x"));
    eventually("the only place is taken", || gate.waiting() == 1);
    run_script_with("openai_errors.py", &["busy", &gateway.url()]);
    gate.open();
    assert_eq!(client.response().status(), 200);

    // The instance's own errors go through as they are.
    let angry = Upstream::answering(|_| {
        let body = r#"{"error":{"message":"no such model","type":"x","param":"model","code":"m"}}"#;
        response_with(404, &[("Content-Type", "application/json")], body)
    });
    case("its_own", &start(base().instances([&angry])));
}

for_each_engine_on_loopback! {
    fn the_openai_client_notices_a_stream_that_breaks(engine) {
        let upstream = Upstream::serve(|peer, head| {
            let _ = peer.try_request_body(head);
            peer.send(CHUNKED_HEAD);
            for number in 0..5 {
                let event = format!(
                    "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\
                     \"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{number}\"}},\
                     \"finish_reason\":null}}]}}\n\n"
                );
                peer.send(chunked::chunk(event.as_bytes()));
            }
            Next::Close
        });
        let gateway = Setup::single(engine, &upstream).start();
        if !run_script_with("openai_errors.py", &["broken_stream", &gateway.url()]) {
            return;
        }
        gateway.expect_outcomes("upstream_aborted", 1);
        gateway.expect_idle();
    }
}

fn curl(args: &[&str], url: &str) -> Output {
    Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "60"])
        .args(args)
        .arg(url)
        .output()
        .expect("curl")
}
