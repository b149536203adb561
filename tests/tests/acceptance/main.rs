//! SageMaker's clients as they are, from the making of a model to the change of an endpoint under load.

mod instance;
mod readme;
mod service_model;

use tests::{Engine, Gateway, Setup, Upstream, python::run_script_with};
use toml::{Table, Value};

/// Type of the hosts that there are.
const INSTANCE_TYPE: &str = "ml.p5.48xlarge";

/// A gateway with a control API, and a pool of hosts for what is made there.
fn gateway(engine: Engine, hosts: &[Upstream]) -> (Gateway, tempfile::TempDir) {
    let (setup, directory) = setup(engine, hosts);
    (setup.set("control.listen", "127.0.0.1:0").start(), directory)
}

fn setup(engine: Engine, hosts: &[Upstream]) -> (Setup, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("control.redb").display().to_string();
    let mut pool = Table::new();
    pool.insert("instance_type".to_owned(), INSTANCE_TYPE.into());
    let urls: Vec<String> = hosts.iter().map(Upstream::url).collect();
    pool.insert("hosts".to_owned(), urls.into());
    pool.insert("accelerators".to_owned(), 2.into());
    let setup = Setup::new(engine)
        .default_paths()
        .set("control.store", store)
        .set("health.active", true)
        // Nobody is ill, however long this machine takes.
        .set("health.interval", "1m")
        .set("health.timeout", "1m")
        .set("timeouts.connect", "1m")
        // Streams wait while an endpoint changes, however long that takes here.
        .set("timeouts.stream_idle", "10m")
        .set("host_pool", vec![Value::Table(pool)]);
    (setup, directory)
}

#[test]
fn an_endpoint_is_made_called_and_changed_by_sagemakers_clients() {
    let hosts = instance::fleet(5);
    let (gateway, _state) = gateway(Engine::Splice, &hosts);
    let control = format!("http://{}", gateway.control());
    run_script_with("sagemaker_endpoint.py", &[&control, &gateway.url()]);
    gateway.expect_idle();
}

#[test]
fn every_constraint_is_the_sdks() {
    let hosts = instance::fleet(1);
    let (gateway, _state) = gateway(Engine::Userspace, &hosts);
    run_script_with("sagemaker_constraints.py", &[&format!("http://{}", gateway.control())]);
}

/// All by one address: that of clients.
#[test]
fn components_are_made_called_and_scaled_by_sagemakers_clients() {
    let hosts = instance::fleet(2);
    let (setup, _state) = setup(Engine::Userspace, &hosts);
    let gateway = setup.set("control.on_client_listener", true).start();
    run_script_with("sagemaker_components.py", &[&gateway.url(), &gateway.url()]);
    gateway.expect_idle();
}
