//! Rules that the service's documentation has beyond its model.
//!
//! Those that need to know what exists, or which instances there are, are not here.

use std::collections::HashSet;

use serde_json::Value;

use crate::aws::AwsError;

/// What breaks a rule, in a sentence.
type Broken = Result<(), String>;

/// Checks an input that fits its shape.
///
/// # Errors
/// `ValidationException` that names the first rule that it breaks.
pub(super) fn check(operation: &str, input: &Value) -> Result<(), AwsError> {
    let broken = match operation {
        "CreateModel" => containers(input),
        "CreateEndpointConfig" => variants(input),
        "CreateEndpoint" | "UpdateEndpoint" => deployment(&input["DeploymentConfig"]),
        "UpdateEndpointWeightsAndCapacities" => {
            distinct(list(input, "DesiredWeightsAndCapacities"), "VariantName")
        }
        "CreateInferenceComponent" => one_of(input, "Specification", "Specifications")
            .and_then(|()| specifications(input, complete)),
        "UpdateInferenceComponent" => at_most_one_of(input, "Specification", "Specifications")
            .and_then(|()| specifications(input, |_| Ok(()))),
        _ => Ok(()),
    };
    broken.and_then(|()| tags(input)).map_err(AwsError::validation)
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModel.html>
fn containers(input: &Value) -> Broken {
    one_of(input, "PrimaryContainer", "Containers")?;
    let primary = is_given(&input["PrimaryContainer"]).then_some(&input["PrimaryContainer"]);
    let mut all = primary.into_iter().chain(list(input, "Containers")).peekable();
    if all.peek().is_none() {
        return Err("Containers must have at least one container.".to_owned());
    }
    for container in all {
        if !is_given(&container["Image"]) && !is_given(&container["ModelPackageName"]) {
            return Err("Each container must have an Image or ModelPackageName.".to_owned());
        }
    }
    Ok(())
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpointConfig.html>
fn variants(input: &Value) -> Broken {
    let production = list(input, "ProductionVariants");
    let shadow = list(input, "ShadowProductionVariants");
    if shadow.len() > 1 || shadow.len() == 1 && production.len() > 1 {
        return Err("With ShadowProductionVariants there can be only one variant in \
                    ProductionVariants and one in ShadowProductionVariants."
            .to_owned());
    }
    distinct(production.iter().chain(shadow), "VariantName")?;
    for variant in production.iter().chain(shadow) {
        instances(variant)
            .and_then(|()| routing(&variant["RoutingConfig"]))
            .map_err(|why| format!("Variant {}: {why}", variant["VariantName"]))?;
    }
    Ok(())
}

/// What a variant runs on.
fn instances(variant: &Value) -> Broken {
    if is_given(&variant["ServerlessConfig"]) {
        return absent(variant, &["InstanceType", "InstancePools", "InitialInstanceCount"])
            .map_err(|name| format!("{name} cannot be specified with ServerlessConfig."));
    }
    one_of(variant, "InstanceType", "InstancePools")?;
    if !is_given(&variant["InitialInstanceCount"]) {
        return Err("InitialInstanceCount must be specified.".to_owned());
    }
    Ok(())
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_PrefixAwareRoutingConfig.html>
fn routing(config: &Value) -> Broken {
    let prefix_aware = &config["PrefixAwareRoutingConfig"];
    let strategy = config["RoutingStrategy"].as_str().unwrap_or_default();
    if strategy != "PREFIX_AWARE" {
        return match is_given(prefix_aware) {
            true => Err(format!(
                "PrefixAwareRoutingConfig can be specified only when RoutingStrategy is \
                 PREFIX_AWARE; it is {strategy}."
            )),
            false => Ok(()),
        };
    }
    for name in ["PrefixLength", "ConcurrencyThreshold"] {
        if !is_given(&prefix_aware[name]) {
            return Err(format!(
                "PrefixAwareRoutingConfig with {name} must be specified when RoutingStrategy is \
                 PREFIX_AWARE."
            ));
        }
    }
    Ok(())
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeploymentConfig.html>
fn deployment(config: &Value) -> Broken {
    at_most_one_of(config, "BlueGreenUpdatePolicy", "RollingUpdatePolicy")?;
    let blue_green = &config["BlueGreenUpdatePolicy"];
    if is_given(blue_green) {
        traffic(&blue_green["TrafficRoutingConfiguration"])?;
    }
    percent(&config["RollingUpdatePolicy"], "MaximumBatchSize", 5, 50)
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_TrafficRoutingConfig.html>
fn traffic(config: &Value) -> Broken {
    let kind = config["Type"].as_str().unwrap_or_default();
    for (name, of) in [("CanarySize", "CANARY"), ("LinearStepSize", "LINEAR")] {
        match (is_given(&config[name]), kind == of) {
            (false, true) => return Err(format!("{name} must be specified for {of}.")),
            (true, false) => {
                return Err(format!("{name} can be specified only for {of}; Type is {kind}."));
            }
            _ => {}
        }
    }
    percent(config, "CanarySize", 1, 50)?;
    percent(config, "LinearStepSize", 10, 50)
}

/// A size that is a share of a fleet, which has to be in a range.
fn percent(of: &Value, name: &str, min: i64, max: i64) -> Broken {
    let size = &of[name];
    match size["Value"].as_i64() {
        Some(value) if size["Type"] == "CAPACITY_PERCENT" && !(min..=max).contains(&value) => {
            Err(format!("{name} must be {min} to {max} percent; it is {value}."))
        }
        _ => Ok(()),
    }
}

/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InferenceComponentSpecification.html>
fn specifications(input: &Value, also: fn(&Value) -> Broken) -> Broken {
    let single = is_given(&input["Specification"]).then_some(&input["Specification"]);
    let several = list(input, "Specifications");
    if several.len() > 1 && several.iter().any(|one| !is_given(&one["InstanceType"])) {
        return Err("Each of several Specifications must have an InstanceType.".to_owned());
    }
    distinct(several.iter().filter(|one| is_given(&one["InstanceType"])), "InstanceType")?;
    for one in single.into_iter().chain(several) {
        specification(one)?;
        also(one)?;
    }
    percent(&input["DeploymentConfig"]["RollingUpdatePolicy"], "MaximumBatchSize", 5, 50)
}

fn specification(of: &Value) -> Broken {
    let required = &of["ComputeResourceRequirements"];
    if is_given(&of["BaseInferenceComponentName"]) {
        if is_given(required) {
            return Err("ComputeResourceRequirements cannot be specified with \
                        BaseInferenceComponentName: an adapter uses what its base component has."
                .to_owned());
        }
        if is_given(&of["ModelName"]) {
            return Err("ModelName cannot be specified with BaseInferenceComponentName: an \
                        adapter's artifacts are at the ArtifactUrl of its Container."
                .to_owned());
        }
        return match is_given(&of["Container"]["ArtifactUrl"]) {
            true => Ok(()),
            false => Err("An adapter's Container must have an ArtifactUrl.".to_owned()),
        };
    }
    if let (Some(min), Some(max)) =
        (required["MinMemoryRequiredInMb"].as_i64(), required["MaxMemoryRequiredInMb"].as_i64())
        && max < min
    {
        return Err(format!(
            "MaxMemoryRequiredInMb, {max}, is less than MinMemoryRequiredInMb, {min}."
        ));
    }
    Ok(())
}

/// What a component that is made must have, and one that is changed may leave as it is.
fn complete(of: &Value) -> Broken {
    if is_given(&of["BaseInferenceComponentName"]) {
        return Ok(());
    }
    if !is_given(&of["ModelName"]) && !is_given(&of["Container"]["Image"]) {
        return Err("ModelName or a Container with an Image must be specified.".to_owned());
    }
    if !is_given(&of["ComputeResourceRequirements"]) {
        return Err(
            "ComputeResourceRequirements must be specified, but for an adapter, which has a \
                    BaseInferenceComponentName."
                .to_owned(),
        );
    }
    Ok(())
}

/// Keys of tags.
fn tags(input: &Value) -> Broken {
    let tags = list(input, "Tags");
    distinct(tags, "Key")?;
    let reserved = tags
        .iter()
        .filter_map(|tag| tag["Key"].as_str())
        .find(|key| key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:")));
    match reserved {
        Some(key) => Err(format!("Keys of tags cannot begin with aws:, as {key} does.")),
        None => Ok(()),
    }
}

fn is_given(value: &Value) -> bool {
    !value.is_null()
}

fn list<'a>(input: &'a Value, name: &str) -> &'a [Value] {
    input[name].as_array().map_or(&[], Vec::as_slice)
}

/// # Errors
/// The first of the members that is there.
fn absent<'n>(of: &Value, names: &[&'n str]) -> Result<(), &'n str> {
    names.iter().find(|name| is_given(&of[**name])).map_or(Ok(()), |name| Err(*name))
}

fn at_most_one_of(of: &Value, one: &str, other: &str) -> Broken {
    match (is_given(&of[one]), is_given(&of[other])) {
        (true, true) => Err(format!("{one} and {other} cannot both be specified.")),
        _ => Ok(()),
    }
}

fn one_of(of: &Value, one: &str, other: &str) -> Broken {
    match (is_given(&of[one]), is_given(&of[other])) {
        (false, false) => Err(format!("Either {one} or {other} must be specified.")),
        _ => at_most_one_of(of, one, other),
    }
}

/// A member that has to be another one in each of some structures.
fn distinct<'v>(structures: impl IntoIterator<Item = &'v Value>, name: &str) -> Broken {
    let mut seen = HashSet::new();
    for value in structures.into_iter().map(|structure| &structure[name]) {
        if !seen.insert(value) {
            return Err(format!("{name} {value} is there more than once."));
        }
    }
    Ok(())
}
