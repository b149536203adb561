//! What the API knows and this gateway does not do. Where ignoring it would make people believe that it is
//! done, it is refused; what concerns machines and accounts alone (roles, networks, keys, volumes, images) is
//! kept and given back.

use serde_json::Value;

use super::{items, text};
use crate::aws::AwsError;

/// Members of `CreateEndpointConfig` and of its variants that are refused, and what people can do.
const CONFIG: [(&str, &str); 3] = [
    ("AsyncInferenceConfig", "requests are answered while the client waits"),
    ("ExplainerConfig", "answers come from the model as they are"),
    ("CrossRegionTrafficConfig", "requests stay on the hosts of this gateway"),
];

const VARIANT: [(&str, &str); 3] = [
    (
        "ServerlessConfig",
        "name an InstanceType for which there is a host pool, and InitialInstanceCount",
    ),
    ("CoreDumpConfig", "the hosts' own tools write core dumps"),
    ("AcceleratorPartitionLayouts", "hosts have the accelerators that they were set up with"),
];

pub(super) fn model(input: &Value) -> Result<(), AwsError> {
    let containers = items(input, "Containers");
    if containers.len() > 1 {
        return refuse("A model of several containers", "describe the one that answers requests");
    }
    let multi = |container: &Value| text(container, "Mode") == "MultiModel";
    if multi(&input["PrimaryContainer"]) || containers.iter().any(multi) {
        return refuse("Mode MultiModel", "create an inference component for each model");
    }
    Ok(())
}

pub(super) fn endpoint_config(input: &Value) -> Result<(), AwsError> {
    none_of(input, &CONFIG)?;
    // Absent means that it captures.
    let capture = &input["DataCaptureConfig"];
    if !capture.is_null() && capture["EnableCapture"] != false {
        return refuse("DataCaptureConfig", "set EnableCapture to false, or leave it out");
    }
    for variant in
        items(input, "ProductionVariants").iter().chain(items(input, "ShadowProductionVariants"))
    {
        none_of(variant, &VARIANT)?;
        if text(&variant["RoutingConfig"], "RoutingStrategy") == "KV_AWARE" {
            return refuse(
                "RoutingStrategy KV_AWARE",
                "PREFIX_AWARE finds caches by the start of the prompt",
            );
        }
    }
    Ok(())
}

pub(super) fn specification(input: &Value) -> Result<(), AwsError> {
    if !input["ComputeResourceRequirements"]["AcceleratorPartitionType"].is_null() {
        return refuse("AcceleratorPartitionType", "a copy gets whole accelerators");
    }
    Ok(())
}

fn none_of(input: &Value, members: &[(&str, &str)]) -> Result<(), AwsError> {
    let given = members.iter().find(|(member, _)| !input[*member].is_null());
    given.map_or(Ok(()), |(member, instead)| refuse(member, instead))
}

pub(super) fn refuse<T>(what: &str, instead: &str) -> Result<T, AwsError> {
    Err(AwsError::validation(format!("{what} is not offered by this gateway: {instead}.")))
}
