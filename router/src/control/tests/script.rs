//! The way that the service's own examples go: from a model to an endpoint in service, and back.

use serde_json::json;

use super::{Shared, arn, control, new};
use crate::{config::Strategy, control::EndpointStatus};

#[test]
fn an_endpoint_comes_into_service_and_goes() {
    let control = new();
    let created = control.ok(
        "CreateModel",
        json!({
            "ModelName": "example-llm-model",
            "PrimaryContainer": { "Image": "vllm/vllm-openai:v0.11", "Environment": { "A": "1" } },
            "ExecutionRoleArn": "arn:aws:iam::111122223333:role/example",
            "Tags": [{ "Key": "team", "Value": "search" }],
        }),
    );
    assert_eq!(created["ModelArn"], arn("model/example-llm-model"));
    let model = control.ok("DescribeModel", json!({ "ModelName": "example-llm-model" }));
    assert_eq!(model["PrimaryContainer"]["Environment"]["A"], "1");
    assert!(model["CreationTime"].as_f64().expect("a time") > 1.7e9, "{model}");
    assert!(model["Tags"].is_null());

    let routing = json!({
        "RoutingStrategy": "PREFIX_AWARE",
        "PrefixAwareRoutingConfig": { "PrefixLength": 4096, "ConcurrencyThreshold": 10 },
    });
    let created = control.ok(
        "CreateEndpointConfig",
        json!({
            "EndpointConfigName": "example-llm-config",
            "ProductionVariants": [{
                "VariantName": "AllTraffic",
                "ModelName": "example-llm-model",
                "InitialInstanceCount": 3,
                "InstanceType": "ml.p5.48xlarge",
                "RoutingConfig": routing,
            }],
        }),
    );
    assert_eq!(created["EndpointConfigArn"], arn("endpoint-config/example-llm-config"));
    let config =
        control.ok("DescribeEndpointConfig", json!({ "EndpointConfigName": "example-llm-config" }));
    let variant = &config["ProductionVariants"][0];
    assert_eq!(variant["RoutingConfig"], routing);
    assert_eq!(variant["InitialVariantWeight"], 1.0);

    let mut watch = control.watch();
    watch.mark_unchanged();
    let endpoint = json!({ "EndpointName": "example-llm-endpoint" });
    let created = control.ok(
        "CreateEndpoint",
        json!({ "EndpointName": "example-llm-endpoint", "EndpointConfigName": "example-llm-config" }),
    );
    assert_eq!(created["EndpointArn"], arn("endpoint/example-llm-endpoint"));
    assert!(watch.has_changed().expect("the control plane lives"));
    let described = control.ok("DescribeEndpoint", endpoint.clone());
    assert_eq!(described["EndpointStatus"], "Creating");
    assert_eq!(described["EndpointConfigName"], "example-llm-config");
    assert!(described["ProductionVariants"].is_null());
    let pending = &described["PendingDeploymentSummary"];
    assert_eq!(pending["ProductionVariants"][0]["DesiredInstanceCount"], 3);
    assert_eq!(pending["ProductionVariants"][0]["CurrentInstanceCount"], 0);
    assert_eq!(pending["ProductionVariants"][0]["InstanceType"], "ml.p5.48xlarge");

    // What whoever gives hosts to it finds.
    let record = control.endpoint("example-llm-endpoint");
    let wanted = &record.pending.as_ref().expect("a deployment").deployment.variants[0];
    assert_eq!(wanted.spec.strategy, Strategy::PrefixAware);
    assert_eq!(wanted.spec.prefix_length, Some(4096));
    assert_eq!(wanted.spec.concurrency_threshold.map(u32::from), Some(10));
    assert_eq!(wanted.spec.pools[0].instance_type, "ml.p5.48xlarge");
    assert_eq!(wanted.model.as_ref().expect("its model")["ModelName"], "example-llm-model");
    control.settled("example-llm-endpoint");

    let described = control.ok("DescribeEndpoint", endpoint.clone());
    assert_eq!(described["EndpointStatus"], "InService");
    assert!(described["PendingDeploymentSummary"].is_null());
    let variant = &described["ProductionVariants"][0];
    assert_eq!(variant["CurrentInstanceCount"], 3);
    assert_eq!(variant["CurrentWeight"], 1.0);
    assert_eq!(variant["RoutingConfig"], routing);
    assert_eq!(variant["DeployedImages"][0]["SpecifiedImage"], "vllm/vllm-openai:v0.11");

    control.ok("DeleteEndpoint", endpoint.clone());
    assert_eq!(control.status("example-llm-endpoint"), "Deleting");
    let record = control.endpoint("example-llm-endpoint");
    assert!(record.serving.is_some(), "its last requests are still answered");
    control.settled("example-llm-endpoint");
    // boto3's waiter for deleted endpoints ends with this error.
    let gone = control.invalid("DescribeEndpoint", endpoint);
    assert_eq!(
        gone,
        format!("Could not find endpoint \"{}\".", arn("endpoint/example-llm-endpoint"))
    );
    control.ok("DeleteEndpointConfig", json!({ "EndpointConfigName": "example-llm-config" }));
    control.ok("DeleteModel", json!({ "ModelName": "example-llm-model" }));
    let resources = control.resources();
    assert!(
        resources.models.is_empty()
            && resources.configs.is_empty()
            && resources.endpoints.is_empty()
    );
}

#[test]
fn all_of_it_is_there_after_a_restart() {
    let store = Shared::default();
    let before = control(&store);
    before.serving("a", &[super::variant("one", "a")]);
    let after = control(&store);
    assert_eq!(after.resources(), before.resources());
    assert_eq!(after.endpoint("a").status, EndpointStatus::InService);
}
