//! Models.

use serde_json::{Value, json};

use super::{
    Context, Outcome, items,
    list::{self, Item},
    offered, tags, text, without,
};
use crate::{
    aws::{
        AwsError,
        arn::Kind,
        json::{self},
    },
    control::resources::{Change, Key, Model, Resource},
};

pub(super) fn create(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let name = text(input, "ModelName");
    offered::model(input)?;
    context.creatable::<Model>(name)?;
    let model = Model {
        name: name.to_owned(),
        created: context.now,
        input: without(input, "Tags"),
        tags: tags::read(items(input, "Tags"))?,
    };
    let arn = context.arn(Kind::Model, name).to_string();
    Ok(Outcome::put(json!({ "ModelArn": arn }), Resource::Model(model.into())))
}

pub(super) fn describe(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let model: &Model = context.find(text(input, "ModelName"))?;
    let mut output = model.input.clone();
    output["CreationTime"] = json::seconds(model.created);
    output["ModelArn"] = context.arn(Kind::Model, &model.name).to_string().into();
    Ok(Outcome::read(output))
}

pub(super) fn list(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let items = context.all().map(|model: &Model| Item {
        name: &model.name,
        created: model.created,
        modified: model.created,
        status: "",
        summary: json!({
            "ModelName": model.name,
            "ModelArn": context.arn(Kind::Model, &model.name).to_string(),
            "CreationTime": json::seconds(model.created),
        }),
    });
    list::list("ListModels", "Models", input, items)
}

/// Endpoints that have it keep what it said when they were made, as they do on SageMaker.
pub(super) fn delete(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let model: &Model = context.changeable(text(input, "ModelName"))?;
    Ok(Outcome::silent(Change::Delete(Key::model(&model.name))))
}
