//! `atalho endpoint`: endpoints of a running gateway, made and changed by people.

use std::{fs, path::Path, process::Output};

use tests::{
    Engine, Gateway, Setup, Upstream,
    gateway::atalho,
    message::{Message, request},
};
use toml::{Table, Value};

const INSTANCE_TYPE: &str = "ml.p5.48xlarge";

/// A gateway with a control API and a pool of these hosts. It gives up on what waits for hosts for so long.
fn setup(directory: &Path, hosts: &[Upstream], ready_within: &str) -> Setup {
    let urls: Vec<Value> = hosts.iter().map(|host| host.url().into()).collect();
    let mut pool = Table::new();
    pool.insert("instance_type".into(), INSTANCE_TYPE.into());
    pool.insert("hosts".into(), urls.into());
    Setup::new(Engine::Userspace)
        .default_paths()
        .set("control.listen", "127.0.0.1:0")
        .set("control.store", directory.join("control.redb").display().to_string())
        .set("control.ready_within", ready_within)
        .set("host_pool", vec![Value::Table(pool)])
}

/// Where its control API listens, by its log.
fn control(gateway: &Gateway) -> String {
    let line = gateway.expect_line(&["control API for AWS's clients"]);
    let (_, address) = line.split_once("address=").expect("an address");
    address.split_whitespace().next().expect("an address").to_owned()
}

/// One user of it.
struct User<'a> {
    control: String,
    directory: &'a Path,
}

impl User<'_> {
    fn run(&self, args: &[&str]) -> (bool, String, String) {
        let mut command = atalho(None);
        command.arg("endpoint").args(args).args(["--control", &self.control]);
        let Output { status, stdout, stderr } = command.output().expect("the binary");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (status.success(), text(stdout), text(stderr))
    }

    fn ok(&self, args: &[&str]) -> String {
        let (success, out, err) = self.run(args);
        assert!(success, "{args:?}: {out}{err}");
        out
    }

    /// What it says when it fails.
    fn fails(&self, args: &[&str]) -> String {
        let (success, out, err) = self.run(args);
        assert!(!success, "{args:?}: {out}{err}");
        err
    }

    fn file(&self, name: &str, variant: &str) -> String {
        let text = format!(
            "[[endpoint]]\nname = \"{name}\"\n[[endpoint.variant]]\nname = \"main\"\n\
             instance_type = \"{INSTANCE_TYPE}\"\n{variant}"
        );
        let file = self.directory.join("endpoints.toml");
        fs::write(&file, text).expect("a file");
        file.display().to_string()
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&args)).expect("JSON")
    }
}

fn invoke(gateway: &Gateway, endpoint: &str) -> Message {
    gateway.ask(request("POST", &format!("/endpoints/{endpoint}/invocations"), b"{}"))
}

#[test]
fn an_endpoint_is_made_shown_changed_and_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let hosts = [Upstream::ok(), Upstream::ok(), Upstream::ok()];
    let gateway = setup(directory.path(), &hosts, "10m").start();
    let user = User { control: control(&gateway), directory: directory.path() };
    assert_eq!(invoke(&gateway, "chat").status(), 400);

    let out = user.ok(&["apply", &user.file("chat", "instances = 2\n")]);
    assert_eq!(out, "chat: created, in service with 2 instances of 1 variant\n");
    assert_eq!(invoke(&gateway, "chat").status(), 200);
    let list = user.ok(&["list"]);
    for name in ["chat", "default"] {
        let line = list.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains("InService")), "{list}");
    }
    let shown = user.ok(&["show", "chat"]);
    assert!(shown.contains("chat: InService"), "{shown}");
    assert!(
        shown.contains(
            "variant main: 2 instances, weight 1.0, prefix-aware (prefix_length 4096, \
             concurrency_threshold 10)"
        ),
        "{shown}"
    );
    let first = user.json(&["show", "chat"])["EndpointConfigName"].clone();

    let out = user.ok(&["apply", &user.file("chat", "instances = 2\n")]);
    assert_eq!(out, "chat: unchanged, in service with 2 instances of 1 variant\n");
    let changed = user.file("chat", "instances = 3\nstrategy = \"random\"\n");
    let out = user.ok(&["apply", &changed]);
    assert_eq!(out, "chat: updated, in service with 3 instances of 1 variant\n");
    let described = user.json(&["show", "chat"]);
    assert_ne!(described["EndpointConfigName"], first);
    let routing = &described["ProductionVariants"][0]["RoutingConfig"];
    assert_eq!(routing["RoutingStrategy"], "RANDOM");

    let out = user.ok(&["delete", "chat"]);
    assert_eq!(out, "chat: deleted\n");
    assert_eq!(invoke(&gateway, "chat").status(), 400);
    let err = user.fails(&["show", "chat"]);
    assert!(err.contains("Could not find endpoint"), "{err}");
    assert!(user.fails(&["delete", "chat"]).contains("Could not find endpoint"));
}

#[test]
fn what_cannot_be_had_is_said_and_what_failed_is_made_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let hosts = [Upstream::ok()];
    let (soon, late) =
        (setup(directory.path(), &hosts, "1s"), setup(directory.path(), &hosts, "10m"));
    let gateway = soon.start();
    let user = User { control: control(&gateway), directory: directory.path() };
    let err = user.fails(&["apply", &user.file("chat", "instances = 2\n")]);
    assert!(err.contains("chat: not created: Not enough healthy hosts"), "{err}");
    assert_eq!(user.json(&["show", "chat"])["EndpointStatus"], "Failed");
    gateway.reload(&late);
    let out = user.ok(&["apply", &user.file("chat", "")]);
    assert_eq!(out, "chat: created, in service with 1 instance of 1 variant\n");
    assert_eq!(invoke(&gateway, "chat").status(), 200);

    // More than there is: it serves as before.
    gateway.reload(&soon);
    let err = user.fails(&["apply", &user.file("chat", "instances = 9\n")]);
    assert!(err.contains("chat: not updated: The update to "), "{err}");
    assert_eq!(user.json(&["show", "chat"])["EndpointStatus"], "InService");
    assert_eq!(invoke(&gateway, "chat").status(), 200);
}

#[test]
fn what_the_gateway_or_the_file_does_not_allow_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = setup(directory.path(), &[], "10m").start();
    let user = User { control: control(&gateway), directory: directory.path() };
    let err = user.fails(&["apply", &user.file("default", "")]);
    assert!(err.contains("comes from the gateway's configuration file"), "{err}");
    let err = user.fails(&["apply", &user.file("chat", "instancs = 2\n")]);
    assert!(err.contains("endpoints.toml") && err.contains("instancs"), "{err}");
    let err = user.fails(&["apply", &user.file("chat", "prefix_length = 1\n")]);
    assert!(err.contains("1024"), "{err}");
    let admin = User { control: gateway.admin().to_string(), directory: directory.path() };
    let err = admin.fails(&["list"]);
    assert!(err.contains("control API"), "{err}");
    drop(gateway);
    let err = user.fails(&["list"]);
    assert!(err.contains("is the gateway running"), "{err}");
}
