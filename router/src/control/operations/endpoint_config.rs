//! Endpoint configurations.

use serde_json::{Value, json};

use super::{
    Context, Outcome, items,
    list::{self, Item},
    offered, tags, text, variant, without,
};
use crate::{
    aws::{AwsError, arn::Kind, json},
    control::resources::{Change, EndpointConfig, Key, Model, Resource, VariantSpec},
};

pub(super) fn create(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let name = text(input, "EndpointConfigName");
    offered::endpoint_config(input)?;
    context.creatable::<EndpointConfig>(name)?;
    let variants = variants(context, items(input, "ProductionVariants"))?;
    let shadows = self::variants(context, items(input, "ShadowProductionVariants"))?;
    let mut kept = without(input, "Tags");
    for member in ["ProductionVariants", "ShadowProductionVariants"] {
        if let Some(variants) = kept[member].as_array_mut() {
            variants.iter_mut().for_each(variant::complete);
        }
    }
    let config = EndpointConfig {
        name: name.to_owned(),
        created: context.now,
        input: kept,
        variants,
        shadows,
        tags: tags::read(items(input, "Tags"))?,
    };
    let arn = context.arn(Kind::EndpointConfig, name).to_string();
    Ok(Outcome::put(json!({ "EndpointConfigArn": arn }), Resource::Config(config.into())))
}

fn variants(context: &Context<'_>, inputs: &[Value]) -> Result<Vec<VariantSpec>, AwsError> {
    inputs
        .iter()
        .map(|input| {
            let spec = variant::spec(input)?;
            let overrides = spec.pools.iter().filter_map(|pool| pool.model.as_ref());
            for model in spec.model.iter().chain(overrides) {
                context.find::<Model>(model)?;
            }
            Ok(spec)
        })
        .collect()
}

pub(super) fn describe(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let config: &EndpointConfig = context.find(text(input, "EndpointConfigName"))?;
    let mut output = config.input.clone();
    output["CreationTime"] = json::seconds(config.created);
    output["EndpointConfigArn"] =
        context.arn(Kind::EndpointConfig, &config.name).to_string().into();
    Ok(Outcome::read(output))
}

pub(super) fn list(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let items = context.all().map(|config: &EndpointConfig| Item {
        name: &config.name,
        created: config.created,
        modified: config.created,
        status: "",
        summary: json!({
            "EndpointConfigName": config.name,
            "EndpointConfigArn": context.arn(Kind::EndpointConfig, &config.name).to_string(),
            "CreationTime": json::seconds(config.created),
        }),
    });
    list::list("ListEndpointConfigs", "EndpointConfigs", input, items)
}

/// Endpoints that were made of it keep what it said, as they do on SageMaker.
pub(super) fn delete(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let config: &EndpointConfig = context.changeable(text(input, "EndpointConfigName"))?;
    Ok(Outcome::silent(Change::Delete(Key::config(&config.name))))
}
