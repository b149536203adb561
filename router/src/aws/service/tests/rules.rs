//! Rules beyond the model.

use serde_json::{Value, json};

use super::operation;

#[track_caller]
fn expect(name: &str, input: &Value, says: &str) {
    let result = operation(name).expect("it is offered").check(input);
    match says {
        "" => assert_eq!(result, Ok(()), "{input}"),
        says => {
            let error = result.expect_err(&input.to_string());
            assert_eq!(error.name, "ValidationException");
            assert!(error.message.contains(says), "{}", error.message);
        }
    }
}

fn variant(name: &str) -> Value {
    json!({
        "VariantName": name,
        "ModelName": "m",
        "InitialInstanceCount": 1,
        "InstanceType": "ml.p5.48xlarge",
    })
}

#[test]
fn prefix_aware_routing_needs_its_settings_and_no_other_has_them() {
    let both = json!({ "PrefixLength": 1024, "ConcurrencyThreshold": 1 });
    for (strategy, settings, says) in [
        ("PREFIX_AWARE", both.clone(), ""),
        ("PREFIX_AWARE", json!({ "PrefixLength": 65536, "ConcurrencyThreshold": 1024 }), ""),
        ("PREFIX_AWARE", json!({ "PrefixLength": 1024 }), "ConcurrencyThreshold must be specified"),
        ("PREFIX_AWARE", json!({ "ConcurrencyThreshold": 1 }), "PrefixLength must be specified"),
        ("PREFIX_AWARE", json!({}), "PrefixLength must be specified"),
        ("PREFIX_AWARE", json!(null), "PrefixLength must be specified"),
        ("RANDOM", json!(null), ""),
        ("LEAST_OUTSTANDING_REQUESTS", json!(null), ""),
        ("KV_AWARE", json!(null), ""),
        ("RANDOM", both.clone(), "only when RoutingStrategy is PREFIX_AWARE; it is RANDOM"),
        ("KV_AWARE", both.clone(), "it is KV_AWARE"),
        ("LEAST_OUTSTANDING_REQUESTS", json!({}), "it is LEAST_OUTSTANDING_REQUESTS"),
    ] {
        let mut variant = variant("v");
        variant["RoutingConfig"] =
            json!({ "RoutingStrategy": strategy, "PrefixAwareRoutingConfig": settings });
        let input = json!({ "EndpointConfigName": "c", "ProductionVariants": [variant] });
        expect("CreateEndpointConfig", &input, says);
    }
}

#[test]
fn shadow_variants_are_held_to_the_same_and_are_one_beside_one() {
    let config = |production: &[Value], shadow: &[Value]| {
        json!({
            "EndpointConfigName": "c",
            "ProductionVariants": production,
            "ShadowProductionVariants": shadow,
        })
    };
    let [a, b, c] = ["a", "b", "c"].map(|name| [variant(name)]);
    let says = "VariantName \"a\" is there more than once";
    expect("CreateEndpointConfig", &config(&a, &a), says);
    expect("CreateEndpointConfig", &config(&a, &b), "");
    let says = "only one variant";
    expect("CreateEndpointConfig", &config(&[a.clone(), b.clone()].concat(), &c), says);
    expect("CreateEndpointConfig", &config(&a, &[b.clone(), c].concat()), says);
    let mut wrong = b;
    wrong[0]["RoutingConfig"] = json!({ "RoutingStrategy": "PREFIX_AWARE" });
    expect("CreateEndpointConfig", &config(&a, &wrong), "Variant \"b\": PrefixAware");
}

#[test]
fn a_variant_says_what_it_runs_on() {
    for (change, says) in [
        (json!({ "InstanceType": null }), "Either InstanceType or InstancePools"),
        (json!({ "InitialInstanceCount": null }), "InitialInstanceCount must be specified"),
        (json!({ "ModelName": null }), ""),
        (
            json!({ "ServerlessConfig": { "MemorySizeInMB": 2048, "MaxConcurrency": 1 } }),
            "InstanceType cannot be specified with ServerlessConfig",
        ),
    ] {
        let mut variant = variant("v");
        for (name, value) in change.as_object().expect("members") {
            variant[name] = value.clone();
        }
        let input = json!({ "EndpointConfigName": "c", "ProductionVariants": [variant] });
        expect("CreateEndpointConfig", &input, says);
    }
}

#[test]
fn a_model_has_containers_of_one_form() {
    let image = json!({ "Image": "vllm:latest" });
    for (input, says) in [
        (json!({ "PrimaryContainer": image }), ""),
        (json!({ "Containers": [image, image] }), ""),
        (json!({}), "Either PrimaryContainer or Containers"),
        (json!({ "PrimaryContainer": image, "Containers": [image] }), "cannot both"),
        (json!({ "Containers": [] }), "at least one container"),
        (json!({ "PrimaryContainer": {} }), "Image or ModelPackageName"),
        (json!({ "Containers": [image, {}] }), "Image or ModelPackageName"),
        (json!({ "PrimaryContainer": { "ModelPackageName": "p" } }), ""),
    ] {
        let mut input = input;
        input["ModelName"] = json!("m");
        expect("CreateModel", &input, says);
    }
}

#[test]
fn traffic_is_shifted_by_steps_that_are_given_and_in_range() {
    let percent = |value: u32| json!({ "Type": "CAPACITY_PERCENT", "Value": value });
    let count = |value: u32| json!({ "Type": "INSTANCE_COUNT", "Value": value });
    for (traffic, says) in [
        (json!({ "Type": "ALL_AT_ONCE" }), ""),
        (json!({ "Type": "CANARY" }), "CanarySize must be specified for CANARY"),
        (json!({ "Type": "CANARY", "CanarySize": percent(1) }), ""),
        (json!({ "Type": "CANARY", "CanarySize": percent(50) }), ""),
        (json!({ "Type": "CANARY", "CanarySize": percent(51) }), "1 to 50 percent; it is 51"),
        (json!({ "Type": "CANARY", "CanarySize": count(51) }), ""),
        (json!({ "Type": "LINEAR" }), "LinearStepSize must be specified for LINEAR"),
        (json!({ "Type": "LINEAR", "LinearStepSize": percent(9) }), "10 to 50 percent; it is 9"),
        (json!({ "Type": "LINEAR", "LinearStepSize": percent(10) }), ""),
        (json!({ "Type": "LINEAR", "LinearStepSize": percent(50) }), ""),
        (json!({ "Type": "LINEAR", "LinearStepSize": percent(51) }), "10 to 50 percent"),
        (json!({ "Type": "ALL_AT_ONCE", "CanarySize": percent(5) }), "only for CANARY"),
        (
            json!({ "Type": "CANARY", "CanarySize": count(1), "LinearStepSize": count(1) }),
            "only for",
        ),
    ] {
        let mut traffic = traffic;
        traffic["WaitIntervalInSeconds"] = json!(60);
        let policy = json!({ "TrafficRoutingConfiguration": traffic });
        let mut input = json!({
            "EndpointName": "e",
            "EndpointConfigName": "c",
            "DeploymentConfig": { "BlueGreenUpdatePolicy": policy },
        });
        expect("UpdateEndpoint", &input, says);
        expect("CreateEndpoint", &input, says);
        let rolling = json!({ "MaximumBatchSize": percent(5), "WaitIntervalInSeconds": 0 });
        input["DeploymentConfig"]["RollingUpdatePolicy"] = rolling;
        expect("UpdateEndpoint", &input, "cannot both be specified");
    }
}

#[test]
fn a_component_is_one_by_itself_or_an_adapter() {
    let compute = json!({ "MinMemoryRequiredInMb": 1024 });
    let own = json!({ "ModelName": "m", "ComputeResourceRequirements": compute });
    let artifact = json!({ "ArtifactUrl": "s3://bucket/adapter.tar.gz" });
    let adapter = json!({ "BaseInferenceComponentName": "base", "Container": artifact });
    let with = |specification: &Value, name: &str, value: Value| {
        let mut changed = specification.clone();
        changed[name] = value;
        changed
    };
    for (specification, says) in [
        (own.clone(), ""),
        (adapter.clone(), ""),
        (with(&own, "ModelName", json!(null)), "ModelName or a Container with an Image"),
        (
            with(&own, "ComputeResourceRequirements", json!(null)),
            "ComputeResourceRequirements must",
        ),
        (with(&adapter, "ComputeResourceRequirements", compute), "an adapter uses"),
        (with(&adapter, "Container", json!(null)), "must have an ArtifactUrl"),
        (with(&adapter, "ModelName", json!("m")), "ModelName cannot be specified"),
        (
            with(
                &own,
                "ComputeResourceRequirements",
                json!({ "MinMemoryRequiredInMb": 1024, "MaxMemoryRequiredInMb": 1023 }),
            ),
            "1023, is less than MinMemoryRequiredInMb, 1024",
        ),
    ] {
        let input = json!({
            "InferenceComponentName": "i",
            "EndpointName": "e",
            "VariantName": "v",
            "Specification": specification,
        });
        expect("CreateInferenceComponent", &input, says);
    }
    let neither = json!({ "InferenceComponentName": "i", "EndpointName": "e" });
    expect("CreateInferenceComponent", &neither, "Either Specification or Specifications");
    let both =
        json!({ "InferenceComponentName": "i", "Specification": own, "Specifications": [own] });
    expect("UpdateInferenceComponent", &both, "cannot both be specified");
    let only = json!({ "InferenceComponentName": "i", "Specification": { "ModelName": "n" } });
    expect("UpdateInferenceComponent", &only, "");
}

#[test]
fn tags_have_distinct_keys_that_are_not_reserved() {
    let arn = "arn:aws:sagemaker:us-east-1:123456789012:model/m";
    for (keys, says) in [
        (["a", "b"], ""),
        (["a", "A"], ""),
        (["a", "a"], "Key \"a\" is there more than once"),
        (["a", "aws:b"], "cannot begin with aws:"),
        (["a", "AWS:b"], "cannot begin with aws:"),
        (["a", "awsb"], ""),
    ] {
        let tags = keys.map(|key| json!({ "Key": key, "Value": "" }));
        expect("AddTags", &json!({ "ResourceArn": arn, "Tags": tags }), says);
        let input = json!({ "ModelName": "m", "PrimaryContainer": { "Image": "i" }, "Tags": tags });
        expect("CreateModel", &input, says);
    }
}

#[test]
fn weights_name_a_variant_once() {
    let weights = |names: [&str; 2]| {
        let weights = names.map(|name| json!({ "VariantName": name, "DesiredWeight": 0 }));
        json!({ "EndpointName": "e", "DesiredWeightsAndCapacities": weights })
    };
    expect("UpdateEndpointWeightsAndCapacities", &weights(["a", "b"]), "");
    expect("UpdateEndpointWeightsAndCapacities", &weights(["a", "a"]), "more than once");
}
