//! `UpdateEndpoint` and `UpdateEndpointWeightsAndCapacities`.

use serde_json::Value;

use super::{Context, Outcome, deployment, endpoint, items, number, offered, text};
use crate::{
    aws::{AwsError, arn::Kind},
    control::resources::{
        Deployment, Endpoint, EndpointConfig, EndpointStatus, Pending, Placed, Wanted,
    },
};

/// A new deployment, which takes over as `DeploymentConfig` says.
pub(super) fn update(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let was = in_service(context, text(input, "EndpointName"))?;
    let config: &EndpointConfig = context.find(text(input, "EndpointConfigName"))?;
    let mut deployment = deployment::of(context, config)?;
    still_hosts_components(context, was, &deployment)?;
    if input["RetainAllVariantProperties"] == true {
        let excluded = items(input, "ExcludeRetainedVariantProperties");
        retain(&mut deployment, was.serving.as_ref(), excluded);
    }
    let given = Some(input["DeploymentConfig"].clone()).filter(|given| !given.is_null());
    let last = was.deployment_config.clone().filter(|_| input["RetainDeploymentConfig"] == true);
    let deployment_config = given.or(last);
    let instances = deployment.variants.iter().map(|variant| variant.count.desired).sum();
    let rollout =
        deployment::rollout(deployment_config.as_ref().unwrap_or(&Value::Null), instances)?;
    let pending = Pending { deployment, started: context.now, rollout, traffic: 0, shifted: None };
    let next = Endpoint { pending: Some(pending), deployment_config, ..updating(context, was) };
    Ok(endpoint::put(context, next))
}

/// Weights and numbers of instances of what serves.
pub(super) fn update_weights_and_capacities(
    context: &Context<'_>,
    input: &Value,
) -> Result<Outcome, AwsError> {
    let was = in_service(context, text(input, "EndpointName"))?;
    let mut serving = was.serving.clone();
    for desired in items(input, "DesiredWeightsAndCapacities") {
        let name = text(desired, "VariantName");
        if !desired["ServerlessUpdateConfig"].is_null() {
            return offered::refuse("ServerlessUpdateConfig", "set DesiredInstanceCount");
        }
        let mut all =
            serving.iter_mut().flat_map(|it| it.variants.iter_mut().chain(&mut it.shadows));
        let variant = all.find(|placed| placed.spec.name == name).ok_or_else(|| {
            AwsError::validation(format!(
                "Could not find variant {name:?} of endpoint \"{}\".",
                context.arn(Kind::Endpoint, &was.name)
            ))
        })?;
        if let Some(weight) = desired["DesiredWeight"].as_f64() {
            variant.weight.desired = weight;
        }
        if let Some(count) = number(desired, "DesiredInstanceCount") {
            variant.count.desired = capacity(variant, count)?;
        }
    }
    Ok(endpoint::put(context, Endpoint { serving, ..updating(context, was) }))
}

/// The variants that inference components are on have to stay.
fn still_hosts_components(
    context: &Context<'_>,
    endpoint: &Endpoint,
    next: &Deployment,
) -> Result<(), AwsError> {
    let hosts = |name: &str| {
        next.variants
            .iter()
            .any(|variant| variant.spec.name == name && variant.spec.model.is_none())
    };
    let mut on_it = context.resources.components.values().filter(|it| it.endpoint == endpoint.name);
    match on_it.find(|component| !hosts(&component.variant)) {
        None => Ok(()),
        Some(component) => Err(AwsError::validation(format!(
            "Endpoint configuration {:?} has no variant {:?} without a ModelName, which hosts inference \
             component {:?}: keep that variant, or delete the component first.",
            next.config, component.variant, component.name
        ))),
    }
}

/// A number of instances that a variant may have.
fn capacity(variant: &Placed, count: u32) -> Result<u32, AwsError> {
    let spec = &variant.spec;
    let (min, max) = (spec.min_instances.unwrap_or(1), spec.max_instances.unwrap_or(u32::MAX));
    if (min..=max).contains(&count) {
        return Ok(count);
    }
    let limits =
        if max == u32::MAX { format!("at least {min}") } else { format!("{min} to {max}") };
    Err(AwsError::validation(format!(
        "DesiredInstanceCount of variant {:?} is {count}: it must be {limits}.",
        spec.name
    )))
}

/// The endpoint, about to change.
fn updating(context: &Context<'_>, was: &Endpoint) -> Endpoint {
    Endpoint {
        status: EndpointStatus::Updating,
        failure: None,
        modified: context.now,
        generation: was.generation + 1,
        ..was.clone()
    }
}

/// An endpoint that serves and is at rest.
fn in_service<'a>(context: &Context<'a>, name: &str) -> Result<&'a Endpoint, AwsError> {
    let endpoint = endpoint::at_rest(context, name)?;
    if endpoint.status == EndpointStatus::Failed {
        return Err(AwsError::validation(format!(
            "Endpoint \"{}\" has failed: it can only be deleted, and created anew.",
            context.arn(Kind::Endpoint, name)
        )));
    }
    Ok(endpoint)
}

/// Variants of the same name keep the weight and the number of instances that they were given since.
fn retain(next: &mut Deployment, serving: Option<&Deployment>, excluded: &[Value]) {
    let keeps = |property: &str| {
        !excluded.iter().any(|excluded| text(excluded, "VariantPropertyType") == property)
    };
    let (weight, count) = (keeps("DesiredWeight"), keeps("DesiredInstanceCount"));
    let former = serving.into_iter().flat_map(|it| it.variants.iter().chain(&it.shadows));
    let former: Vec<&Placed> = former.collect();
    for placed in next.variants.iter_mut().chain(&mut next.shadows) {
        let Some(was) = former.iter().find(|was| was.spec.name == placed.spec.name) else {
            continue;
        };
        if weight {
            placed.weight = Wanted::settled(was.weight.desired);
        }
        if count {
            placed.count.desired = was.count.desired;
        }
    }
}
