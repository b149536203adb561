//! `DescribeEndpoint`

use serde_json::{Value, json};

use super::{Context, Outcome, items, set, text};
use crate::{
    aws::{AwsError, arn::Kind, json},
    control::resources::{Deployment, Endpoint, Placed, VariantSpec, routing_config},
};

/// Characters that `FailureReason` may have.
pub(super) const MAX_FAILURE: usize = 1024;

pub(super) fn describe(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let endpoint: &Endpoint = context.find(text(input, "EndpointName"))?;
    let mut output = json!({
        "EndpointName": endpoint.name,
        "EndpointArn": context.arn(Kind::Endpoint, &endpoint.name).to_string(),
        "EndpointConfigName": endpoint.config(),
        "EndpointStatus": endpoint.status.as_str(),
        "CreationTime": json::seconds(endpoint.created),
        "LastModifiedTime": json::seconds(endpoint.modified),
    });
    let failure = endpoint.failure.as_ref();
    set(&mut output, "FailureReason", failure.map(|it| shortened(it).into()));
    set(&mut output, "LastDeploymentConfig", endpoint.deployment_config.clone());
    if let Some(serving) = &endpoint.serving {
        variants(&mut output, serving, endpoint.created, |_, _| {});
    }
    if let Some(pending) = &endpoint.pending {
        let mut summary = json!({
            "EndpointConfigName": pending.deployment.config,
            "StartTime": json::seconds(pending.started),
        });
        variants(&mut summary, &pending.deployment, pending.started, |variant, spec| {
            if let [pool] = &*spec.pools {
                variant["InstanceType"] = pool.instance_type.as_str().into();
            }
        });
        output["PendingDeploymentSummary"] = summary;
    }
    Ok(Outcome::read(output))
}

/// `ProductionVariants` and `ShadowProductionVariants`, left out when there are none.
fn variants(
    output: &mut Value,
    deployment: &Deployment,
    resolved: u64,
    add: impl Fn(&mut Value, &VariantSpec),
) {
    let all = [
        ("ProductionVariants", &deployment.variants),
        ("ShadowProductionVariants", &deployment.shadows),
    ];
    for (member, placed) in all {
        let summaries = placed.iter().map(|placed| {
            let mut summary = summary(placed, resolved);
            add(&mut summary, &placed.spec);
            summary
        });
        let summaries: Vec<Value> = summaries.collect();
        if !summaries.is_empty() {
            output[member] = summaries.into();
        }
    }
}

fn summary(placed: &Placed, resolved: u64) -> Value {
    let mut summary = json!({
        "VariantName": placed.spec.name,
        "CurrentWeight": placed.weight.current,
        "DesiredWeight": placed.weight.desired,
        "CurrentInstanceCount": placed.count.current,
        "DesiredInstanceCount": placed.count.desired,
        "RoutingConfig": routing_config(&placed.spec),
    });
    let images = placed.model.as_ref().map(|model| deployed_images(model, resolved));
    set(
        &mut summary,
        "DeployedImages",
        images.filter(|it| it.as_array().is_some_and(|it| !it.is_empty())),
    );
    if let (Some(min), Some(max)) = (placed.spec.min_instances, placed.spec.max_instances) {
        summary["ManagedInstanceScaling"] =
            json!({ "Status": "ENABLED", "MinInstanceCount": min, "MaxInstanceCount": max });
    }
    summary
}

fn deployed_images(model: &Value, resolved: u64) -> Value {
    let containers = [&model["PrimaryContainer"]].into_iter().chain(items(model, "Containers"));
    let images = containers.filter_map(|container| container["Image"].as_str());
    images.map(|image| deployed_image(image, resolved)).collect()
}

/// The gateway resolves no tags of images: what was named is what is there.
pub(super) fn deployed_image(image: &str, resolved: u64) -> Value {
    json!({
        "SpecifiedImage": image,
        "ResolvedImage": image,
        "ResolutionTime": json::seconds(resolved),
    })
}

/// A reason as long as the API has room for.
pub(super) fn shortened(reason: &str) -> String {
    reason.chars().take(MAX_FAILURE).collect()
}
