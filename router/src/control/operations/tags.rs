//! Tags of all kinds of resources.

use serde_json::{Value, json};

use super::{Context, Outcome, context::Named, items, set, text};
use crate::{
    aws::{
        AwsError,
        arn::{Arn, Kind, no_resource},
        page::{Order, page},
    },
    control::resources::{Component, Endpoint, EndpointConfig, Model, Resource, Tag},
};

/// Tags that a resource may have.
const MAX_TAGS: usize = 50;

/// `Tags` of an operation that makes a resource.
pub(super) fn read(inputs: &[Value]) -> Result<Vec<Tag>, AwsError> {
    let mut tags = vec![];
    merge(&mut tags, inputs)?;
    Ok(tags)
}

/// Adds tags, in place of those with the same keys.
fn merge(tags: &mut Vec<Tag>, inputs: &[Value]) -> Result<(), AwsError> {
    for input in inputs {
        let tag =
            Tag { key: text(input, "Key").to_owned(), value: text(input, "Value").to_owned() };
        if tag.key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:")) {
            return Err(AwsError::validation(format!(
                "The tag key {:?} begins with aws:, which is reserved.",
                tag.key
            )));
        }
        match tags.iter_mut().find(|known| known.key == tag.key) {
            Some(known) => *known = tag,
            None => tags.push(tag),
        }
    }
    if tags.len() > MAX_TAGS {
        return Err(AwsError::validation(format!(
            "A resource can have {MAX_TAGS} tags at most; it would have {}.",
            tags.len()
        )));
    }
    Ok(())
}

pub(super) fn add(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    change(context, input, |tags| {
        merge(tags, items(input, "Tags"))?;
        Ok(json!({ "Tags": tags }))
    })
}

pub(super) fn delete(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let keys = items(input, "TagKeys");
    change(context, input, |tags| {
        tags.retain(|tag| !keys.iter().any(|key| key == tag.key.as_str()));
        Ok(json!({}))
    })
}

pub(super) fn list(context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
    let arn = arn(context, input)?;
    let tags = match arn.kind {
        Kind::Model => found::<Model>(context, &arn)?.tags.clone(),
        Kind::EndpointConfig => found::<EndpointConfig>(context, &arn)?.tags.clone(),
        Kind::Endpoint => found::<Endpoint>(context, &arn)?.tags.clone(),
        Kind::InferenceComponent => found::<Component>(context, &arn)?.tags.clone(),
    };
    let page = page("ListTags", input, MAX_TAGS, Order::Ascending, tags, |tag| tag.key.clone())?;
    let mut output = json!({ "Tags": page.items });
    set(&mut output, "NextToken", page.next.map(Value::from));
    Ok(Outcome::read(output))
}

fn change(
    context: &Context<'_>,
    input: &Value,
    change: impl FnOnce(&mut Vec<Tag>) -> Result<Value, AwsError>,
) -> Result<Outcome, AwsError> {
    let arn = arn(context, input)?;
    let name = match arn.kind {
        Kind::Model => found::<Model>(context, &arn)?.name.clone(),
        Kind::EndpointConfig => found::<EndpointConfig>(context, &arn)?.name.clone(),
        Kind::Endpoint => found::<Endpoint>(context, &arn)?.name.clone(),
        Kind::InferenceComponent => found::<Component>(context, &arn)?.name.clone(),
    };
    let (output, resource) = match arn.kind {
        Kind::Model => {
            let mut next = context.changeable::<Model>(&name)?.clone();
            (change(&mut next.tags)?, Resource::Model(next.into()))
        }
        Kind::EndpointConfig => {
            let mut next = context.changeable::<EndpointConfig>(&name)?.clone();
            (change(&mut next.tags)?, Resource::Config(next.into()))
        }
        Kind::Endpoint => {
            let mut next = context.changeable::<Endpoint>(&name)?.clone();
            (change(&mut next.tags)?, Resource::Endpoint(next.into()))
        }
        Kind::InferenceComponent => {
            let mut next = context.changeable::<Component>(&name)?.clone();
            (change(&mut next.tags)?, Resource::Component(next.into()))
        }
    };
    Ok(Outcome::put(output, resource))
}

fn arn(context: &Context<'_>, input: &Value) -> Result<Arn, AwsError> {
    let arn = Arn::parse(text(input, "ResourceArn"))?;
    let ours = arn.region == context.identity.region && arn.account == context.identity.account;
    if ours { Ok(arn) } else { Err(no_resource()) }
}

/// A resource by the name in its ARN, which clients may have in lower case: SageMaker itself answers with
/// ARNs in lower case, whatever the name.
fn found<'a, T: Named>(context: &Context<'a>, arn: &Arn) -> Result<&'a T, AwsError> {
    let names = T::of(context.file).keys().chain(T::of(context.resources).keys());
    let name = names.into_iter().find(|name| name.eq_ignore_ascii_case(&arn.name));
    name.and_then(|name| context.find(name).ok()).ok_or_else(no_resource)
}
