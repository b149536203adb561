//! Inference components.

use serde_json::{Value, json};

use super::{
    Context, Outcome, describe_endpoint, items,
    list::{self, Item},
    optional, set,
    specification::{self, Place},
    tags, text,
};
use crate::{
    aws::{AwsError, arn::Kind, json},
    control::resources::{
        Change, Component, ComponentStatus, Deployment, Endpoint, EndpointStatus, Resource, Wanted,
    },
};

pub(super) fn create(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let name = specification::name(input);
    context.creatable::<Component>(name)?;
    let endpoint: &Endpoint = context.changeable(text(input, "EndpointName"))?;
    let variant = match optional(input, "VariantName") {
        None => specification::variant_of_base(context, input)?,
        named => named,
    };
    let variant = hosting(context, endpoint, variant.as_deref())?;
    let place = Place { name, endpoint: &endpoint.name, variant: &variant };
    let (specs, plural) = specification::read(context, place, input)?;
    specification::same_kind(&specs)?;
    let copies = copies(&input["RuntimeConfig"]);
    let copies = match (copies, specification::is_adapter(&specs)) {
        (Some(copies), _) => copies,
        // An adapter is wherever its base is.
        (None, true) => base_copies(context, &specs[0].base),
        (None, false) => {
            return Err(AwsError::validation("RuntimeConfig with CopyCount must be specified."));
        }
    };
    let component = Component {
        name: name.to_owned(),
        variant: variant.clone(),
        endpoint: endpoint.name.clone(),
        status: ComponentStatus::Creating,
        failure: None,
        created: context.now,
        modified: context.now,
        generation: 1,
        specs,
        plural,
        copies: Wanted { current: 0, desired: copies },
        places: vec![],
        deployment_config: None,
        tags: tags::read(items(input, "Tags"))?,
    };
    Ok(put(context, component))
}

fn base_copies(context: &Context<'_>, base: &Option<String>) -> u32 {
    let base = base.as_deref().and_then(|base| context.find::<Component>(base).ok());
    base.map_or(1, |base| base.copies.desired)
}

/// The variant of an endpoint that a component can be on: the one named, or the only one.
fn hosting(
    context: &Context<'_>,
    endpoint: &Endpoint,
    name: Option<&str>,
) -> Result<String, AwsError> {
    let arn = context.arn(Kind::Endpoint, &endpoint.name);
    if matches!(endpoint.status, EndpointStatus::Failed | EndpointStatus::Deleting) {
        return Err(AwsError::validation(format!(
            "Endpoint \"{arn}\" is {}: it hosts no further inference components.",
            endpoint.status.as_str()
        )));
    }
    let pending = endpoint.pending.as_ref().map(|pending| &pending.deployment);
    let deployments: Vec<&Deployment> = endpoint.serving.iter().chain(pending).collect();
    let name = match (name, deployments.first().map_or(&[][..], |it| &it.variants)) {
        (Some(name), _) => name,
        (None, [only]) => &only.spec.name,
        (None, _) => return Err(AwsError::validation("VariantName must be specified.")),
    };
    // While an update is under way, it has to be on what serves and on what is to serve: either may stay.
    for deployment in deployments {
        let found = deployment.variants.iter().find(|variant| variant.spec.name == name);
        let found = found.ok_or_else(|| {
            AwsError::validation(format!("Could not find variant {name:?} of endpoint \"{arn}\"."))
        })?;
        if found.spec.model.is_some() {
            return Err(AwsError::validation(format!(
                "Inference Components are not supported in this Endpoint: variant {name:?} of \
                 \"{arn}\" has a ModelName. Leave it out of the endpoint configuration."
            )));
        }
    }
    Ok(name.to_owned())
}

fn copies(runtime: &Value) -> Option<u32> {
    super::number(runtime, "CopyCount")
}

fn put(context: &Context<'_>, component: Component) -> Outcome {
    let arn = context.arn(Kind::InferenceComponent, &component.name).to_string();
    Outcome::put(json!({ "InferenceComponentArn": arn }), Resource::Component(component.into()))
}

pub(super) fn describe(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let component: &Component = context.find(specification::name(input))?;
    let specs = component.specs.iter();
    let mut specs: Vec<Value> =
        specs.map(|spec| specification::summary(spec, component.created)).collect();
    let mut output = json!({
        "InferenceComponentName": component.name,
        "InferenceComponentArn": context.arn(Kind::InferenceComponent, &component.name).to_string(),
        "EndpointName": component.endpoint,
        "EndpointArn": context.arn(Kind::Endpoint, &component.endpoint).to_string(),
        "VariantName": component.variant,
        "InferenceComponentStatus": component.status.as_str(),
        "CreationTime": json::seconds(component.created),
        "LastModifiedTime": json::seconds(component.modified),
        "RuntimeConfig": {
            "DesiredCopyCount": component.copies.desired,
            "CurrentCopyCount": component.copies.current,
        },
    });
    if component.plural {
        output["Specifications"] = specs.into();
    } else if let Some(spec) = specs.pop() {
        output["Specification"] = spec;
    }
    let failure = component.failure.as_deref().map(describe_endpoint::shortened);
    set(&mut output, "FailureReason", failure.map(Value::from));
    set(&mut output, "LastDeploymentConfig", component.deployment_config.clone());
    Ok(Outcome::read(output))
}

pub(super) fn list(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let (endpoint, variant) =
        (input["EndpointNameEquals"].as_str(), input["VariantNameEquals"].as_str());
    let fits = |it: &&Component| {
        endpoint.is_none_or(|name| it.endpoint == name)
            && variant.is_none_or(|name| it.variant == name)
    };
    let items = context.all().filter(fits).map(|component: &Component| Item {
        name: &component.name,
        created: component.created,
        modified: component.modified,
        status: component.status.as_str(),
        summary: json!({
            "InferenceComponentName": component.name,
            "InferenceComponentArn": context.arn(Kind::InferenceComponent, &component.name).to_string(),
            "EndpointName": component.endpoint,
            "EndpointArn": context.arn(Kind::Endpoint, &component.endpoint).to_string(),
            "VariantName": component.variant,
            "InferenceComponentStatus": component.status.as_str(),
            "CreationTime": json::seconds(component.created),
            "LastModifiedTime": json::seconds(component.modified),
        }),
    });
    list::list("ListInferenceComponents", "InferenceComponents", input, items)
}

/// A component that may be changed now.
fn at_rest<'a>(context: &Context<'a>, input: &Value) -> Result<&'a Component, AwsError> {
    let component: &Component = context.changeable(specification::name(input))?;
    let arn = context.arn(Kind::InferenceComponent, &component.name);
    let state = match component.status {
        ComponentStatus::Creating => "CREATE_IN_PROGRESS",
        ComponentStatus::Updating => "UPDATE_IN_PROGRESS",
        ComponentStatus::Deleting => "DELETE_IN_PROGRESS",
        ComponentStatus::InService | ComponentStatus::Failed => return Ok(component),
    };
    Err(AwsError::validation(format!(
        "Inference component \"{arn}\" cannot be changed while it is in {state}."
    )))
}

pub(super) fn delete(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let component = at_rest(context, input)?;
    let is_base = |other: &Component| {
        other.specs.iter().any(|spec| spec.base.as_ref() == Some(&component.name))
    };
    if let Some(adapter) = context.all::<Component>().find(|other| is_base(other)) {
        return Err(AwsError::validation(format!(
            "Inference component \"{}\" is a base inference component for one or more associated \
             adapters, such as {:?}: delete them first.",
            context.arn(Kind::InferenceComponent, &component.name),
            adapter.name
        )));
    }
    let next = Component { status: ComponentStatus::Deleting, ..changed(context, component) };
    Ok(Outcome::silent(Change::Put(Resource::Component(next.into()))))
}

pub(super) fn update(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let was = at_rest(context, input)?;
    let place = Place { name: &was.name, endpoint: &was.endpoint, variant: &was.variant };
    let input = &specification::completed(input, was);
    let (specs, plural) = specification::read(context, place, input)?;
    specification::same_kind(&specs)?;
    let copies = copies(&input["RuntimeConfig"]);
    if specs.is_empty() && copies.is_none() {
        return Err(AwsError::validation(
            "There is nothing to update: specify Specification, Specifications or RuntimeConfig.",
        ));
    }
    let mut next = Component { status: ComponentStatus::Updating, ..changed(context, was) };
    if !specs.is_empty() {
        if specification::is_adapter(&specs) != specification::is_adapter(&was.specs) {
            return Err(AwsError::validation(
                "An adapter stays one, with its BaseInferenceComponentName, and what is none cannot \
                 become one: create another inference component.",
            ));
        }
        (next.specs, next.plural) = (specs, plural);
    }
    next.copies.desired = copies.unwrap_or(was.copies.desired);
    if input["DeploymentConfig"].is_object() {
        next.deployment_config = Some(input["DeploymentConfig"].clone());
    }
    Ok(put(context, next))
}

pub(super) fn update_runtime_config(
    context: &Context<'_>,
    input: &Value,
) -> Result<Outcome, AwsError> {
    let was = at_rest(context, input)?;
    let mut next = Component { status: ComponentStatus::Updating, ..changed(context, was) };
    next.copies.desired = copies(&input["DesiredRuntimeConfig"]).unwrap_or(was.copies.desired);
    Ok(put(context, next))
}

fn changed(context: &Context<'_>, was: &Component) -> Component {
    Component {
        failure: None,
        modified: context.now,
        generation: was.generation + 1,
        ..was.clone()
    }
}
