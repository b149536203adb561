//! Endpoints: made, listed and deleted.

use serde_json::{Value, json};

use super::{
    Context, Outcome, deployment, items,
    list::{self, Item},
    tags, text,
};
use crate::{
    aws::{AwsError, arn::Kind, json},
    control::resources::{
        Change, Endpoint, EndpointConfig, EndpointStatus, Pending, Resource, Rollout,
    },
};

pub(super) fn create(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let name = text(input, "EndpointName");
    context.creatable::<Endpoint>(name)?;
    let config: &EndpointConfig = context.find(text(input, "EndpointConfigName"))?;
    let deployment_config = &input["DeploymentConfig"];
    // There is nothing to move requests from, so that the steps do not matter yet; they have to be right
    // all the same.
    let instances = config.variants.iter().map(|variant| variant.instances).sum();
    deployment::rollout(deployment_config, instances)?;
    let pending = Pending {
        deployment: deployment::of(context, config)?,
        started: context.now,
        rollout: Rollout::all_at_once(),
        traffic: 0,
        shifted: None,
    };
    let endpoint = Endpoint {
        name: name.to_owned(),
        status: EndpointStatus::Creating,
        failure: None,
        created: context.now,
        modified: context.now,
        generation: 1,
        serving: None,
        pending: Some(pending),
        deployment_config: Some(deployment_config.clone()).filter(|it| !it.is_null()),
        tags: tags::read(items(input, "Tags"))?,
    };
    Ok(put(context, endpoint))
}

/// Answers with the endpoint's ARN.
pub(super) fn put(context: &Context<'_>, endpoint: Endpoint) -> Outcome {
    let arn = context.arn(Kind::Endpoint, &endpoint.name).to_string();
    Outcome::put(json!({ "EndpointArn": arn }), Resource::Endpoint(endpoint.into()))
}

/// An endpoint that may be changed now.
pub(super) fn at_rest<'a>(context: &Context<'a>, name: &str) -> Result<&'a Endpoint, AwsError> {
    let endpoint: &Endpoint = context.changeable(name)?;
    if endpoint.status.in_progress() {
        return Err(AwsError::validation(format!(
            "Cannot update in-progress endpoint \"{}\".",
            context.arn(Kind::Endpoint, name)
        )));
    }
    Ok(endpoint)
}

pub(super) fn list(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let items = context.all().map(|endpoint: &Endpoint| Item {
        name: &endpoint.name,
        created: endpoint.created,
        modified: endpoint.modified,
        status: endpoint.status.as_str(),
        summary: json!({
            "EndpointName": endpoint.name,
            "EndpointArn": context.arn(Kind::Endpoint, &endpoint.name).to_string(),
            "CreationTime": json::seconds(endpoint.created),
            "LastModifiedTime": json::seconds(endpoint.modified),
            "EndpointStatus": endpoint.status.as_str(),
        }),
    });
    list::list("ListEndpoints", "Endpoints", input, items)
}

pub(super) fn delete(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let endpoint = at_rest(context, text(input, "EndpointName"))?;
    let mut components = context.resources.components.values();
    if let Some(component) = components.find(|it| it.endpoint == endpoint.name) {
        return Err(AwsError::validation(format!(
            "Cannot delete endpoint \"{}\": it hosts inference components, such as {:?}. Delete them \
             first.",
            context.arn(Kind::Endpoint, &endpoint.name),
            component.name
        )));
    }
    let next = Endpoint {
        status: EndpointStatus::Deleting,
        modified: context.now,
        generation: endpoint.generation + 1,
        pending: None,
        ..endpoint.clone()
    };
    Ok(Outcome::silent(Change::Put(Resource::Endpoint(next.into()))))
}
