//! Names, references and refusals of models, endpoint configurations and endpoints.

use serde_json::{Value, json};

use super::{arn, host_variant, new, variant};
use crate::control::{EndpointStatus, SettleError, Settled, resources::Key};

#[test]
fn a_name_is_taken_whatever_the_case_of_its_letters() {
    let control = new();
    control.serving("Chat", &[variant("one", "Chat")]);
    let container = json!({ "Image": "x" });
    for name in ["Chat", "chat", "CHAT"] {
        for (operation, input, kind, word) in [
            (
                "CreateModel",
                json!({ "ModelName": name, "PrimaryContainer": container }),
                "model",
                "model",
            ),
            (
                "CreateEndpointConfig",
                json!({ "EndpointConfigName": name, "ProductionVariants": [variant("one", "Chat")] }),
                "endpoint-config",
                "endpoint configuration",
            ),
            (
                "CreateEndpoint",
                json!({ "EndpointName": name, "EndpointConfigName": "Chat" }),
                "endpoint",
                "endpoint",
            ),
        ] {
            let arn = arn(&format!("{kind}/Chat"));
            let expected = format!("Cannot create already existing {word} \"{arn}\".");
            assert_eq!(control.invalid(operation, input), expected);
        }
    }
}

#[test]
fn what_is_referred_to_has_to_be_there() {
    let control = new();
    let config = |model: &str| json!({ "EndpointConfigName": "c", "ProductionVariants": [variant("one", model)] });
    let expected = format!("Could not find model \"{}\".", arn("model/none"));
    assert_eq!(control.invalid("CreateEndpointConfig", config("none")), expected);
    let endpoint = json!({ "EndpointName": "e", "EndpointConfigName": "c" });
    let no_config =
        format!("Could not find endpoint configuration \"{}\".", arn("endpoint-config/c"));
    assert_eq!(control.invalid("CreateEndpoint", endpoint.clone()), no_config);

    control.model("m");
    control.ok("CreateEndpointConfig", config("m"));
    control.ok("DeleteModel", json!({ "ModelName": "m" }));
    let no_model = format!("Could not find model \"{}\".", arn("model/m"));
    assert_eq!(control.invalid("CreateEndpoint", endpoint.clone()), no_model);
    control.model("m");
    control.ok("CreateEndpoint", endpoint);

    for (operation, member, word, kind) in [
        ("DescribeModel", "ModelName", "model", "model"),
        ("DeleteModel", "ModelName", "model", "model"),
        (
            "DescribeEndpointConfig",
            "EndpointConfigName",
            "endpoint configuration",
            "endpoint-config",
        ),
        ("DeleteEndpointConfig", "EndpointConfigName", "endpoint configuration", "endpoint-config"),
        ("DescribeEndpoint", "EndpointName", "endpoint", "endpoint"),
        ("DeleteEndpoint", "EndpointName", "endpoint", "endpoint"),
        (
            "DescribeInferenceComponent",
            "InferenceComponentName",
            "inference component",
            "inference-component",
        ),
        (
            "DeleteInferenceComponent",
            "InferenceComponentName",
            "inference component",
            "inference-component",
        ),
    ] {
        let expected = format!("Could not find {word} \"{}\".", arn(&format!("{kind}/none")));
        assert_eq!(control.invalid(operation, json!({ member: "none" })), expected);
    }
}

#[test]
fn an_endpoint_keeps_serving_when_its_configuration_and_model_are_deleted() {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    control.ok("DeleteModel", json!({ "ModelName": "e" }));
    control.ok("DeleteEndpointConfig", json!({ "EndpointConfigName": "e" }));
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["EndpointConfigName"], "e");
    assert_eq!(described["ProductionVariants"][0]["CurrentInstanceCount"], 2);
    // And its weights can still be changed.
    let desired = json!([{ "VariantName": "one", "DesiredWeight": 3.0 }]);
    control.ok(
        "UpdateEndpointWeightsAndCapacities",
        json!({ "EndpointName": "e", "DesiredWeightsAndCapacities": desired }),
    );
}

#[test]
fn nothing_is_changed_while_something_is_under_way() {
    let control = new();
    control.model("m");
    control.config("c", &[variant("one", "m")]);
    control.ok("CreateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "c" }));
    let expected = format!("Cannot update in-progress endpoint \"{}\".", arn("endpoint/e"));
    let update = json!({ "EndpointName": "e", "EndpointConfigName": "c" });
    let desired = json!([{ "VariantName": "one", "DesiredWeight": 3.0 }]);
    let refused = |control: &crate::control::Control| {
        let name = json!({ "EndpointName": "e" });
        assert_eq!(control.invalid("DeleteEndpoint", name), expected);
        assert_eq!(control.invalid("UpdateEndpoint", update.clone()), expected);
        let weights = json!({ "EndpointName": "e", "DesiredWeightsAndCapacities": desired });
        assert_eq!(control.invalid("UpdateEndpointWeightsAndCapacities", weights), expected);
    };
    refused(&control);
    control.settled("e");
    control.ok("UpdateEndpoint", update.clone());
    refused(&control);
    control.settled("e");
    control.ok("DeleteEndpoint", json!({ "EndpointName": "e" }));
    refused(&control);
}

#[test]
fn an_endpoint_that_failed_can_only_be_deleted() {
    let control = new();
    control.model("m");
    control.config("c", &[variant("one", "m")]);
    control.ok("CreateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "c" }));
    let record = control.endpoint("e");
    let failed = Settled {
        status: EndpointStatus::Failed,
        failure: Some("é".repeat(2000)),
        ..Settled::of(&record)
    };
    control.settle("e", record.generation, &failed).expect("it is settled");
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["EndpointStatus"], "Failed");
    assert_eq!(described["FailureReason"], "é".repeat(1024));
    let message = control
        .invalid("UpdateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "c" }));
    assert!(message.contains("it can only be deleted"), "{message}");
    control.ok("DeleteEndpoint", json!({ "EndpointName": "e" }));
}

#[test]
fn what_was_worked_out_for_an_older_generation_is_refused() {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    let older = control.endpoint("e");
    control.ok("UpdateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "e" }));
    let late = control.settle("e", older.generation, &Settled::of(&older));
    assert!(matches!(late, Err(SettleError::Superseded(_))), "{late:?}");
    assert_eq!(control.status("e"), "Updating");
    let gone = control.gone(&Key::endpoint("e"), control.endpoint("e").generation);
    assert!(matches!(gone, Err(SettleError::Superseded(_))), "nobody asked for that: {gone:?}");
    let none = control.settle("none", 1, &Settled::of(&older));
    assert!(matches!(none, Err(SettleError::Superseded(_))), "{none:?}");
}

#[test]
fn settling_what_is_so_already_writes_nothing() {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    let record = control.endpoint("e");
    let revision = control.resources().revision;
    control.settle("e", record.generation, &Settled::of(&record)).expect("it is settled");
    assert_eq!(control.resources().revision, revision);
    assert_eq!(control.endpoint("e"), record);
}

/// Where something that is not done would be taken for done.
#[test]
fn what_is_not_offered_is_refused_by_name() {
    let control = new();
    control.model("m");
    let with = |member: &str, value: Value| {
        let mut variant = variant("one", "m");
        variant[member] = value;
        json!({ "EndpointConfigName": "c", "ProductionVariants": [variant] })
    };
    let beside = |member: &str, value: Value| {
        let mut input =
            json!({ "EndpointConfigName": "c", "ProductionVariants": [variant("one", "m")] });
        input[member] = value;
        input
    };
    let capture = json!({
        "InitialSamplingPercentage": 10,
        "DestinationS3Uri": "s3://bucket/prefix",
        "CaptureOptions": [{ "CaptureMode": "Input" }],
    });
    let serverless = json!({ "EndpointConfigName": "c", "ProductionVariants": [{
        "VariantName": "one",
        "ModelName": "m",
        "ServerlessConfig": { "MemorySizeInMB": 1024, "MaxConcurrency": 1 },
    }] });
    let output = json!({ "OutputConfig": { "S3OutputPath": "s3://bucket/prefix" } });
    let core_dump = json!({ "DestinationS3Uri": "s3://bucket/prefix" });
    for (member, input) in [
        ("ServerlessConfig", serverless),
        ("CoreDumpConfig", with("CoreDumpConfig", core_dump)),
        ("AsyncInferenceConfig", beside("AsyncInferenceConfig", output)),
        ("DataCaptureConfig", beside("DataCaptureConfig", capture.clone())),
        ("KV_AWARE", with("RoutingConfig", json!({ "RoutingStrategy": "KV_AWARE" }))),
    ] {
        let message = control.invalid("CreateEndpointConfig", input);
        assert!(
            message.contains(member) && message.contains("not offered by this gateway"),
            "{message}"
        );
    }
    let container = json!({ "Image": "x" });
    let several = json!({ "ModelName": "n", "Containers": [container, container] });
    let message = control.invalid("CreateModel", several);
    assert!(message.contains("several containers"), "{message}");
    let multi =
        json!({ "ModelName": "n", "PrimaryContainer": { "Image": "x", "Mode": "MultiModel" } });
    assert!(control.invalid("CreateModel", multi).contains("MultiModel"));

    // What changes nothing of how requests are answered is kept and given back.
    let mut off = capture;
    off["EnableCapture"] = json!(false);
    let mut kept = beside("DataCaptureConfig", off);
    kept["KmsKeyId"] = json!("key");
    kept["ProductionVariants"][0]["VolumeSizeInGB"] = json!(100);
    control.ok("CreateEndpointConfig", kept.clone());
    let described = control.ok("DescribeEndpointConfig", json!({ "EndpointConfigName": "c" }));
    for member in ["DataCaptureConfig", "KmsKeyId"] {
        assert_eq!(described[member], kept[member]);
    }
    assert_eq!(described["ProductionVariants"][0]["VolumeSizeInGB"], 100);
}

#[test]
fn inputs_are_checked_and_operations_known() {
    let control = new();
    let message = control.invalid("CreateModel", json!({}));
    assert!(message.contains("modelName"), "{message}");
    let error = control.call("CreateTrainingJob", &json!({})).expect_err("it is not offered");
    assert_eq!((error.name, error.status), ("UnknownOperationException", 400));
}

#[test]
fn every_operation_of_the_service_model_is_done_and_no_other() {
    for operation in service_operations() {
        super::super::operations::find(operation).expect("it is done");
    }
    assert_eq!(service_operations().len(), super::super::operations::names().count());
}

fn service_operations() -> Vec<&'static str> {
    crate::aws::service::operations().iter().map(crate::aws::service::Operation::name).collect()
}

#[test]
fn pools_are_tried_in_the_order_of_their_priority() {
    let control = new();
    control.model("m");
    control.model("small");
    let pools = json!([
        { "InstanceType": "ml.g5.2xlarge", "Priority": 2, "ModelNameOverride": "small" },
        { "InstanceType": "ml.p5.48xlarge", "Priority": 1 },
    ]);
    let variant = json!({
        "VariantName": "one", "ModelName": "m", "InstancePools": pools, "InitialInstanceCount": 4,
    });
    control.config("c", &[variant]);
    let resources = control.resources();
    let pools = &resources.configs["c"].variants[0].pools;
    let types: Vec<&str> = pools.iter().map(|pool| &*pool.instance_type).collect();
    assert_eq!(types, ["ml.p5.48xlarge", "ml.g5.2xlarge"]);
    assert_eq!(pools[1].model.as_deref(), Some("small"));
    let none =
        json!([{ "InstanceType": "ml.g5.2xlarge", "Priority": 1, "ModelNameOverride": "none" }]);
    let mut input = host_variant("one");
    input["InstancePools"] = none;
    input.as_object_mut().expect("an object").remove("InstanceType");
    let input = json!({ "EndpointConfigName": "d", "ProductionVariants": [input] });
    assert!(control.invalid("CreateEndpointConfig", input).contains("model/none"));
}

#[test]
fn the_documentation_has_every_operation() {
    let page = include_str!("../../../../docs/sagemaker.md");
    for operation in service_operations() {
        assert!(
            page.contains(&format!("`{operation}`")),
            "{operation} is not in docs/sagemaker.md"
        );
    }
}
