//! Tests of the control plane: its operations over a store in memory. Every output is checked against the
//! service model.

mod components;
mod endpoints;
mod file;
mod lists;
mod random;
mod script;
mod shared;
mod tags;
mod updates;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Control, Deployment, Endpoint, EndpointStatus, Identity, Settled, StoreError, Wanted,
    resources::Key,
    store::{MemoryStore, Snapshot, Store, Write},
};
use crate::aws::{AwsError, service};

/// A store that outlives what uses it.
#[derive(Clone, Default)]
struct Shared(Arc<MemoryStore>);

impl Store for Shared {
    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.0.snapshot()
    }

    fn commit(&self, base: u64, writes: Vec<Write>) -> Result<u64, StoreError> {
        self.0.commit(base, writes)
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.0.watch()
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

fn control(store: &Shared) -> Control {
    let identity = Identity { region: "us-east-1".into(), account: "111122223333".into() };
    Control::with_store(Box::new(store.clone()), identity).expect("a readable store")
}

fn new() -> Control {
    control(&Shared::default())
}

impl Control {
    fn try_call(&self, operation: &str, input: Value) -> Result<Value, AwsError> {
        let output = self.call(operation, &input)?;
        let facts = service::operation(operation).expect("an operation of the service");
        facts
            .check_output(&output)
            .unwrap_or_else(|error| panic!("{operation}: {error}: {output}"));
        Ok(output)
    }

    fn ok(&self, operation: &str, input: Value) -> Value {
        self.try_call(operation, input.clone())
            .unwrap_or_else(|error| panic!("{operation} {input}: {error}"))
    }

    /// The message of the error that has this name.
    fn refused(&self, operation: &str, input: Value, name: &str) -> String {
        match self.try_call(operation, input.clone()) {
            Ok(output) => panic!("{operation} {input}: {output}"),
            Err(error) => {
                assert_eq!(error.name, name, "{error}");
                error.message
            }
        }
    }

    fn invalid(&self, operation: &str, input: Value) -> String {
        self.refused(operation, input, "ValidationException")
    }

    fn model(&self, name: &str) {
        let container = json!({ "Image": "vllm/vllm-openai:v0.11" });
        self.ok("CreateModel", json!({ "ModelName": name, "PrimaryContainer": container }));
    }

    fn config(&self, name: &str, variants: &[Value]) {
        self.ok(
            "CreateEndpointConfig",
            json!({ "EndpointConfigName": name, "ProductionVariants": variants }),
        );
    }

    /// An endpoint in service, with a model and a configuration of the same name.
    fn serving(&self, name: &str, variants: &[Value]) {
        self.model(name);
        self.config(name, variants);
        self.ok("CreateEndpoint", json!({ "EndpointName": name, "EndpointConfigName": name }));
        self.settled(name);
    }

    fn endpoint(&self, name: &str) -> Arc<Endpoint> {
        self.resources().endpoints.get(name).expect("the endpoint").clone()
    }

    /// Everything that was asked for has come true.
    fn settled(&self, name: &str) {
        let endpoint = self.endpoint(name);
        if endpoint.status == EndpointStatus::Deleting {
            return self.gone(&Key::endpoint(name), endpoint.generation).expect("it is deleted");
        }
        let pending = endpoint.pending.clone().map(|pending| pending.deployment);
        let serving = pending.or(endpoint.serving.clone()).map(come_true);
        let to =
            Settled { status: EndpointStatus::InService, failure: None, serving, pending: None };
        self.settle(name, endpoint.generation, &to).expect("it is settled");
    }

    fn status(&self, name: &str) -> String {
        let output = self.ok("DescribeEndpoint", json!({ "EndpointName": name }));
        output["EndpointStatus"].as_str().expect("a status").to_owned()
    }
}

fn come_true(mut deployment: Deployment) -> Deployment {
    for placed in deployment.variants.iter_mut().chain(&mut deployment.shadows) {
        placed.count = Wanted::settled(placed.count.desired);
        placed.weight = Wanted::settled(placed.weight.desired);
        placed.hosts =
            (0..placed.count.desired).map(|host| format!("http://10.0.0.{host}:8000")).collect();
    }
    deployment
}

/// A variant of a model.
fn variant(name: &str, model: &str) -> Value {
    json!({
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.p5.48xlarge",
        "InitialInstanceCount": 2,
    })
}

/// A variant for inference components.
fn host_variant(name: &str) -> Value {
    json!({ "VariantName": name, "InstanceType": "ml.p5.48xlarge", "InitialInstanceCount": 2 })
}

fn arn(kind_and_name: &str) -> String {
    format!("arn:aws:sagemaker:us-east-1:111122223333:{kind_and_name}")
}
