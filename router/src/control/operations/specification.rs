//! What an inference component is: `Specification` and `Specifications`.

use serde_json::{Value, json};

use super::{
    Context, describe_endpoint::deployed_image, items, number, offered, optional, set, text,
};
use crate::{
    aws::{AwsError, arn::Kind},
    control::resources::{Component, ComponentSpec, ComponentStatus, Model, Requirements},
};

/// Where a component is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) endpoint: &'a str,
    pub(super) variant: &'a str,
}

/// The specifications of an input, and whether they came as a list; none when it has none.
pub(super) fn read(
    context: &Context<'_>,
    place: Place<'_>,
    input: &Value,
) -> Result<(Vec<ComponentSpec>, bool), AwsError> {
    let single = Some(&input["Specification"]).filter(|single| single.is_object());
    let several = items(input, "Specifications");
    let specs = single.into_iter().chain(several).map(|spec| read_one(context, place, spec));
    Ok((specs.collect::<Result<_, _>>()?, single.is_none()))
}

/// An update's input: members that its `Specification` does not have stay as they were.
pub(super) fn completed(input: &Value, was: &Component) -> Value {
    let mut input = input.clone();
    if let ([was], Some(given)) = (&*was.specs, input["Specification"].as_object_mut()) {
        for (member, value) in was.input.as_object().into_iter().flatten() {
            given.entry(member).or_insert_with(|| value.clone());
        }
    }
    input
}

fn read_one(
    context: &Context<'_>,
    place: Place<'_>,
    input: &Value,
) -> Result<ComponentSpec, AwsError> {
    offered::specification(input)?;
    let base = optional(input, "BaseInferenceComponentName");
    if let Some(base) = &base {
        adapter_of(context, place, base)?;
    }
    let model = optional(input, "ModelName");
    let model_input = model.as_deref().map(|name| context.find::<Model>(name)).transpose()?;
    let requires = &input["ComputeResourceRequirements"];
    Ok(ComponentSpec {
        input: input.clone(),
        instance_type: optional(input, "InstanceType"),
        model_input: model_input.map(|model| model.input.clone()),
        model,
        artifact: optional(&input["Container"], "ArtifactUrl"),
        base,
        requires: Requirements {
            cpus: requires["NumberOfCpuCoresRequired"].as_f64().unwrap_or(0.0),
            accelerators: requires["NumberOfAcceleratorDevicesRequired"].as_f64().unwrap_or(0.0),
            memory_mb: requires["MinMemoryRequiredInMb"].as_u64().unwrap_or(0),
        },
        ready_within: number(
            &input["StartupParameters"],
            "ContainerStartupHealthCheckTimeoutInSeconds",
        ),
    })
}

/// Whether a component may be an adapter of another.
fn adapter_of(context: &Context<'_>, place: Place<'_>, base: &str) -> Result<(), AwsError> {
    let found: &Component = context.find(base)?;
    let arn = context.arn(Kind::InferenceComponent, base);
    let wrong = if found.status == ComponentStatus::Deleting {
        "is being deleted"
    } else if base == place.name {
        "is this component itself"
    } else if found.specs.iter().any(|spec| spec.base.is_some()) {
        "is an adapter itself"
    } else if found.endpoint != place.endpoint || found.variant != place.variant {
        "is on another endpoint or variant"
    } else {
        return Ok(());
    };
    Err(AwsError::validation(format!(
        "Inference component \"{arn}\" cannot be the base of an adapter here: it {wrong}."
    )))
}

/// As descriptions have it.
pub(super) fn summary(spec: &ComponentSpec, created: u64) -> Value {
    let mut summary = spec.input.clone();
    let mut container = json!({});
    for member in ["ArtifactUrl", "Environment", "ContainerMetricsConfig"] {
        set(&mut container, member, spec.input["Container"].get(member).cloned());
    }
    let model = spec.model_input.as_ref().map(|model| &model["PrimaryContainer"]["Image"]);
    let image = spec.input["Container"]["Image"].as_str().or(model.and_then(Value::as_str));
    set(&mut container, "DeployedImage", image.map(|image| deployed_image(image, created)));
    if container.as_object().is_some_and(|members| !members.is_empty()) {
        summary["Container"] = container;
    }
    summary
}

/// Whether they describe an adapter.
pub(super) fn is_adapter(specs: &[ComponentSpec]) -> bool {
    specs.iter().any(|spec| spec.base.is_some())
}

/// All of a component's specifications describe an adapter, or none does.
pub(super) fn same_kind(specs: &[ComponentSpec]) -> Result<(), AwsError> {
    let adapters = specs.iter().filter(|spec| spec.base.is_some()).count();
    if adapters == 0 || adapters == specs.len() {
        return Ok(());
    }
    Err(AwsError::validation(
        "Either all Specifications name a BaseInferenceComponentName or none does.",
    ))
}

/// The variant of a base, for adapters that name none; `None` for what is no adapter.
pub(super) fn variant_of_base(
    context: &Context<'_>,
    input: &Value,
) -> Result<Option<String>, AwsError> {
    let mut specs = [&input["Specification"]].into_iter().chain(items(input, "Specifications"));
    let base = specs.find_map(|spec| spec["BaseInferenceComponentName"].as_str());
    base.map(|base| Ok(context.find::<Component>(base)?.variant.clone())).transpose()
}

/// The name of the component that an input is about.
pub(super) fn name(input: &Value) -> &str {
    text(input, "InferenceComponentName")
}
