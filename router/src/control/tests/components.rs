//! Inference components and adapters.

use serde_json::{Value, json};

use super::{arn, host_variant, new, variant};
use crate::control::{
    ComponentSettled, ComponentStatus, Control,
    resources::{CopyPlace, Key},
};

/// A component on variant `one`.
pub(super) fn component(name: &str, endpoint: &str, copies: u32) -> Value {
    json!({
        "InferenceComponentName": name,
        "EndpointName": endpoint,
        "VariantName": "one",
        "Specification": {
            "Container": { "Image": "vllm/vllm-openai:v0.11", "Environment": { "A": "1" } },
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": 2.0,
                "NumberOfCpuCoresRequired": 0.5,
                "MinMemoryRequiredInMb": 1024,
            },
        },
        "RuntimeConfig": { "CopyCount": copies },
    })
}

/// An adapter that leaves its variant and copies to its base.
pub(super) fn adapter(name: &str, endpoint: &str, base: &str) -> Value {
    json!({
        "InferenceComponentName": name,
        "EndpointName": endpoint,
        "Specification": {
            "BaseInferenceComponentName": base,
            "Container": { "ArtifactUrl": "s3://bucket/adapter.tar.gz" },
        },
    })
}

impl Control {
    pub(super) fn component_settled(&self, name: &str) {
        let component = self.resources().components.get(name).expect("the component").clone();
        if component.status == ComponentStatus::Deleting {
            return self.gone(&Key::component(name), component.generation).expect("it is deleted");
        }
        let to = ComponentSettled {
            status: ComponentStatus::InService,
            failure: None,
            places: (0..component.copies.desired)
                .map(|slot| CopyPlace { host: "http://10.0.0.1:8000".into(), slot })
                .collect(),
        };
        self.settle_component(name, component.generation, &to).expect("it is settled");
    }

    fn component(&self, name: &str) -> Value {
        self.ok("DescribeInferenceComponent", named(name))
    }
}

fn named(name: &str) -> Value {
    json!({ "InferenceComponentName": name })
}

#[test]
fn a_component_is_made_scaled_and_deleted() {
    let control = new();
    control.serving("e", &[host_variant("one")]);
    let created = control.ok("CreateInferenceComponent", component("c", "e", 3));
    assert_eq!(created["InferenceComponentArn"], arn("inference-component/c"));
    let described = control.component("c");
    assert_eq!(described["InferenceComponentStatus"], "Creating");
    assert_eq!(described["EndpointArn"], arn("endpoint/e"));
    assert_eq!(described["VariantName"], "one");
    assert_eq!(described["RuntimeConfig"], json!({ "DesiredCopyCount": 3, "CurrentCopyCount": 0 }));
    let container = &described["Specification"]["Container"];
    assert_eq!(container["DeployedImage"]["SpecifiedImage"], "vllm/vllm-openai:v0.11");
    assert_eq!(container["Environment"]["A"], "1");
    let record = control.resources().components["c"].clone();
    let requires = record.specs[0].requires;
    assert_eq!((requires.cpus, requires.accelerators, requires.memory_mb), (0.5, 2.0, 1024));

    let runtime = |copies: u32| {
        json!({
            "InferenceComponentName": "c",
            "DesiredRuntimeConfig": { "CopyCount": copies },
        })
    };
    let busy = control.invalid("UpdateInferenceComponentRuntimeConfig", runtime(0));
    assert!(busy.contains("CREATE_IN_PROGRESS"), "{busy}");
    control.component_settled("c");
    control.ok("UpdateInferenceComponentRuntimeConfig", runtime(0));
    assert_eq!(control.component("c")["InferenceComponentStatus"], "Updating");
    control.component_settled("c");
    assert_eq!(control.component("c")["RuntimeConfig"]["CurrentCopyCount"], 0);

    let message = control.invalid("DeleteEndpoint", json!({ "EndpointName": "e" }));
    assert!(message.contains("inference components, such as \"c\""), "{message}");
    control.ok("DeleteInferenceComponent", named("c"));
    let twice = control.invalid("DeleteInferenceComponent", named("c"));
    assert!(twice.contains("DELETE_IN_PROGRESS"), "{twice}");
    control.component_settled("c");
    let gone = control.invalid("DescribeInferenceComponent", named("c"));
    let expected =
        format!("Could not find inference component \"{}\".", arn("inference-component/c"));
    assert_eq!(gone, expected);
    control.ok("DeleteEndpoint", json!({ "EndpointName": "e" }));
}

#[test]
fn an_adapter_follows_its_base() {
    let control = new();
    control.serving("e", &[host_variant("one"), host_variant("two")]);
    control.ok("CreateInferenceComponent", component("base", "e", 3));
    control.component_settled("base");
    control.ok("CreateInferenceComponent", adapter("lora", "e", "base"));
    let described = control.component("lora");
    assert_eq!(described["VariantName"], "one");
    assert_eq!(described["RuntimeConfig"]["DesiredCopyCount"], 3);
    assert_eq!(described["Specification"]["BaseInferenceComponentName"], "base");
    let container = &described["Specification"]["Container"];
    assert_eq!(container["ArtifactUrl"], "s3://bucket/adapter.tar.gz");
    control.component_settled("lora");

    let message = control.invalid("DeleteInferenceComponent", named("base"));
    assert!(
        message.contains("is a base inference component for one or more associated"),
        "{message}"
    );
    let nested = control.invalid("CreateInferenceComponent", adapter("x", "e", "lora"));
    assert!(nested.contains("is an adapter itself"), "{nested}");
    let none = control.invalid("CreateInferenceComponent", adapter("x", "e", "none"));
    assert!(none.contains("Could not find"), "{none}");
    let mut elsewhere = adapter("x", "e", "base");
    elsewhere["VariantName"] = json!("two");
    let message = control.invalid("CreateInferenceComponent", elsewhere);
    assert!(message.contains("another endpoint or variant"), "{message}");

    // An update says what is to be otherwise.
    let artifact = json!({ "Container": { "ArtifactUrl": "s3://bucket/second.tar.gz" } });
    control.ok(
        "UpdateInferenceComponent",
        json!({ "InferenceComponentName": "lora", "Specification": artifact }),
    );
    let record = control.resources().components["lora"].clone();
    assert_eq!(record.specs[0].artifact.as_deref(), Some("s3://bucket/second.tar.gz"));
    assert_eq!(record.specs[0].base.as_deref(), Some("base"));
    control.component_settled("lora");
    let nothing = control.invalid("UpdateInferenceComponent", named("lora"));
    assert!(nothing.contains("nothing to update"), "{nothing}");

    control.ok("DeleteInferenceComponent", named("lora"));
    control.component_settled("lora");
    control.ok("DeleteInferenceComponent", named("base"));
    let late = control.invalid("CreateInferenceComponent", adapter("x", "e", "base"));
    assert!(late.contains("is being deleted"), "{late}");
}

#[test]
fn a_component_needs_a_variant_without_a_model() {
    let control = new();
    control.serving("e", &[variant("one", "e"), host_variant("two")]);
    let message = control.invalid("CreateInferenceComponent", component("c", "e", 1));
    assert!(
        message.contains("Inference Components are not supported in this Endpoint"),
        "{message}"
    );
    let mut input = component("c", "e", 1);
    input["VariantName"] = json!("three");
    let message = control.invalid("CreateInferenceComponent", input.clone());
    assert!(message.contains("Could not find variant \"three\""), "{message}");
    input["EndpointName"] = json!("none");
    let message = control.invalid("CreateInferenceComponent", input.clone());
    assert!(message.contains("Could not find endpoint"), "{message}");
    input["EndpointName"] = json!("e");
    input["VariantName"] = json!("two");
    input["RuntimeConfig"] = Value::Null;
    let message = control.invalid("CreateInferenceComponent", input.clone());
    assert!(message.contains("CopyCount"), "{message}");
    input["RuntimeConfig"] = json!({ "CopyCount": 0 });
    control.ok("CreateInferenceComponent", input);

    // While an update may still fail, what serves counts as well as what is to serve.
    control.serving("f", &[variant("one", "f")]);
    control.config("hosting", &[host_variant("one")]);
    control.ok("UpdateEndpoint", json!({ "EndpointName": "f", "EndpointConfigName": "hosting" }));
    let message = control.invalid("CreateInferenceComponent", component("d", "f", 1));
    assert!(message.contains("not supported in this Endpoint"), "{message}");
    control.settled("f");
    control.ok("CreateInferenceComponent", component("d", "f", 1));

    // The variant that it is on stays.
    control.config("next", &[variant("one", "e")]);
    let update = json!({ "EndpointName": "e", "EndpointConfigName": "next" });
    let message = control.invalid("UpdateEndpoint", update);
    assert!(message.contains("keep that variant"), "{message}");
}

#[test]
fn a_component_of_several_instance_types_is_described_so() {
    let control = new();
    control.serving("e", &[host_variant("one")]);
    let mut input = component("c", "e", 1);
    let mut first = input["Specification"].take();
    first["InstanceType"] = json!("ml.p5.48xlarge");
    let mut second = first.clone();
    second["InstanceType"] = json!("ml.g5.2xlarge");
    input["Specifications"] = json!([first, second]);
    control.ok("CreateInferenceComponent", input);
    let described = control.component("c");
    assert!(described["Specification"].is_null());
    assert_eq!(described["Specifications"][1]["InstanceType"], "ml.g5.2xlarge");
}

#[test]
fn lists_are_of_an_endpoint_and_a_variant_when_asked() {
    let control = new();
    control.serving("e", &[host_variant("one")]);
    control.serving("f", &[host_variant("one")]);
    for (name, endpoint) in [("a", "e"), ("b", "f"), ("c", "e")] {
        control.ok("CreateInferenceComponent", component(name, endpoint, 1));
    }
    control.component_settled("c");
    let names = |filter: Value| {
        let output = control.ok("ListInferenceComponents", filter);
        let all = output["InferenceComponents"].as_array().expect("a list").clone();
        let mut names: Vec<String> = all
            .iter()
            .map(|it| it["InferenceComponentName"].as_str().expect("a name").to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(json!({})), ["a", "b", "c"]);
    assert_eq!(names(json!({ "EndpointNameEquals": "e" })), ["a", "c"]);
    assert_eq!(names(json!({ "StatusEquals": "InService" })), ["c"]);
    assert_eq!(names(json!({ "EndpointNameEquals": "e", "StatusEquals": "Creating" })), ["a"]);
    assert!(names(json!({ "VariantNameEquals": "two" })).is_empty());
}
