//! `UpdateEndpoint` and `UpdateEndpointWeightsAndCapacities`.

use serde_json::{Value, json};

use super::{new, variant};
use crate::control::{Control, Wanted};

fn weights(desired: Value) -> Value {
    json!({ "EndpointName": "e", "DesiredWeightsAndCapacities": desired })
}

#[test]
fn an_update_is_a_new_deployment_beside_what_serves() {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    let mut other = variant("one", "e");
    other["InitialInstanceCount"] = json!(5);
    other["RoutingConfig"] = json!({ "RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS" });
    control.config("next", &[other]);
    let before = control.endpoint("e");
    control.ok("UpdateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "next" }));
    let record = control.endpoint("e");
    assert_eq!(record.generation, before.generation + 1);
    assert_eq!(record.serving, before.serving);
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["EndpointStatus"], "Updating");
    assert_eq!(described["EndpointConfigName"], "e");
    assert_eq!(described["ProductionVariants"][0]["CurrentInstanceCount"], 2);
    let pending = &described["PendingDeploymentSummary"];
    assert_eq!(pending["EndpointConfigName"], "next");
    assert_eq!(pending["ProductionVariants"][0]["DesiredInstanceCount"], 5);
    control.settled("e");
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["EndpointStatus"], "InService");
    assert_eq!(described["EndpointConfigName"], "next");
    let routing = &described["ProductionVariants"][0]["RoutingConfig"];
    assert_eq!(routing["RoutingStrategy"], "LEAST_OUTSTANDING_REQUESTS");
    let unknown = json!({ "EndpointName": "e", "EndpointConfigName": "none" });
    assert!(control.invalid("UpdateEndpoint", unknown).contains("endpoint-config/none"));
}

#[test]
fn weights_and_capacities_change_where_they_are_named() {
    let control = new();
    control.serving("e", &[variant("one", "e"), variant("two", "e")]);
    let desired =
        json!([{ "VariantName": "two", "DesiredWeight": 0.0, "DesiredInstanceCount": 7 }]);
    control.ok("UpdateEndpointWeightsAndCapacities", weights(desired));
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["EndpointStatus"], "Updating");
    let [one, two] = &described["ProductionVariants"].as_array().expect("variants")[..] else {
        panic!("{described}");
    };
    assert_eq!((&one["DesiredWeight"], &one["DesiredInstanceCount"]), (&json!(1.0), &json!(2)));
    assert_eq!((&two["DesiredWeight"], &two["DesiredInstanceCount"]), (&json!(0.0), &json!(7)));
    assert_eq!((&two["CurrentWeight"], &two["CurrentInstanceCount"]), (&json!(1.0), &json!(2)));
    control.settled("e");

    let revision = control.resources().revision;
    for (desired, part) in [
        (
            json!([{ "VariantName": "none", "DesiredWeight": 1.0 }]),
            "Could not find variant \"none\"",
        ),
        (json!([{ "VariantName": "one", "DesiredInstanceCount": 0 }]), "must be at least 1"),
        (
            json!([{ "VariantName": "one", "DesiredWeight": 5.0 }, { "VariantName": "none" }]),
            "Could not find variant",
        ),
    ] {
        let input = weights(desired);
        let message = control.invalid("UpdateEndpointWeightsAndCapacities", input);
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(control.resources().revision, revision, "all of it or nothing");
}

#[test]
fn managed_scaling_says_how_many_instances_there_may_be() {
    let control = new();
    let mut scaled = variant("one", "e");
    scaled["ManagedInstanceScaling"] =
        json!({ "Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4 });
    control.serving("e", &[scaled]);
    let desired = json!([{ "VariantName": "one", "DesiredInstanceCount": 5 }]);
    let message = control.invalid("UpdateEndpointWeightsAndCapacities", weights(desired));
    assert!(message.contains("must be 0 to 4"), "{message}");
    let desired = json!([{ "VariantName": "one", "DesiredInstanceCount": 0 }]);
    control.ok("UpdateEndpointWeightsAndCapacities", weights(desired));
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    let scaling = &described["ProductionVariants"][0]["ManagedInstanceScaling"];
    assert_eq!(scaling["MaxInstanceCount"], 4);
}

/// Weights and numbers of instances after an update from (5.0, 7) to a configuration that says (1.0, 2).
fn after_update(retain: bool, excluded: &[&str]) -> (f64, u32) {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    let desired =
        json!([{ "VariantName": "one", "DesiredWeight": 5.0, "DesiredInstanceCount": 7 }]);
    control.ok("UpdateEndpointWeightsAndCapacities", weights(desired));
    control.settled("e");
    control.config("next", &[variant("one", "e"), variant("new", "e")]);
    let mut input = json!({
        "EndpointName": "e",
        "EndpointConfigName": "next",
        "RetainAllVariantProperties": retain,
    });
    if !excluded.is_empty() {
        let excluded: Vec<Value> =
            excluded.iter().map(|kind| json!({ "VariantPropertyType": kind })).collect();
        input["ExcludeRetainedVariantProperties"] = excluded.into();
    }
    control.ok("UpdateEndpoint", input);
    let record = control.endpoint("e");
    let variants = &record.pending.as_ref().expect("a deployment").deployment.variants;
    assert_eq!(variants[1].weight.desired, 1.0, "a new variant is as the configuration says");
    assert_eq!(variants[1].count, Wanted { current: 0, desired: 2 });
    (variants[0].weight.desired, variants[0].count.desired)
}

#[test]
fn variant_properties_are_retained_when_asked_and_not_excluded() {
    assert_eq!(after_update(false, &[]), (1.0, 2));
    assert_eq!(after_update(true, &[]), (5.0, 7));
    assert_eq!(after_update(true, &["DesiredWeight"]), (1.0, 7));
    assert_eq!(after_update(true, &["DesiredInstanceCount"]), (5.0, 2));
    assert_eq!(after_update(true, &["DesiredWeight", "DesiredInstanceCount"]), (1.0, 2));
    assert_eq!(after_update(false, &["DesiredWeight"]), (1.0, 2));
}

#[test]
fn a_deployment_configuration_is_kept_and_used_again_when_asked() {
    let control = new();
    control.serving("e", &[variant("one", "e")]);
    let canary = json!({
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {
                "Type": "CANARY",
                "WaitIntervalInSeconds": 30,
                "CanarySize": { "Type": "INSTANCE_COUNT", "Value": 1 },
            },
            "TerminationWaitInSeconds": 10,
        },
        "AutoRollbackConfiguration": { "Alarms": [{ "AlarmName": "error-rate-2.5" }] },
    });
    let steps = |control: &Control| -> Vec<(u32, u32)> {
        let record = control.endpoint("e");
        let rollout = &record.pending.as_ref().expect("a deployment").rollout;
        rollout.steps.iter().map(|step| (step.traffic, step.wait)).collect()
    };
    let update = |more: Value| {
        let mut input = json!({ "EndpointName": "e", "EndpointConfigName": "e" });
        for (member, value) in more.as_object().expect("members") {
            input[member] = value.clone();
        }
        control.ok("UpdateEndpoint", input);
    };
    update(json!({ "DeploymentConfig": canary }));
    assert_eq!(steps(&control), [(50, 30), (100, 30)]);
    let record = control.endpoint("e");
    let rollout = &record.pending.as_ref().expect("a deployment").rollout;
    assert_eq!((rollout.max_error_percent, rollout.termination_wait), (Some(2.5), 10));
    control.settled("e");
    let described = control.ok("DescribeEndpoint", json!({ "EndpointName": "e" }));
    assert_eq!(described["LastDeploymentConfig"], canary);

    update(json!({ "RetainDeploymentConfig": true }));
    assert_eq!(steps(&control), [(50, 30), (100, 30)]);
    control.settled("e");
    update(json!({}));
    assert_eq!(steps(&control), [(100, 0)]);
}
