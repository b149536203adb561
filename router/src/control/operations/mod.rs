//! The operations of the control API: one file per kind of resource.
//!
//! An operation reads what exists and its input, and says what it answers and what it changes. It does no I/O
//! and keeps nothing, so that it can be made again when somebody else changed something meanwhile. Its input
//! has passed the service model's checks: members have their types, and those that are required are there.

mod component;
mod context;
mod deployment;
mod describe_endpoint;
mod endpoint;
mod endpoint_config;
mod list;
mod model;
mod offered;
mod specification;
mod tags;
mod update_endpoint;
mod variant;

use serde_json::{Value, json};

pub use self::context::Context;
use super::resources::{Change, Resource};
use crate::aws::{AwsError, service};

/// What an operation does.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// What it answers.
    pub output: Value,
    /// What it changes: all of it or none.
    pub changes: Vec<Change>,
}

type Run = fn(&Context<'_>, &Value) -> Result<Outcome, AwsError>;

/// An operation that is offered.
#[derive(Debug)]
pub struct Operation {
    name: &'static str,
    run: Run,
}

/// All operations that are offered.
const OPERATIONS: &[Operation] = &[
    Operation { name: "AddTags", run: tags::add },
    Operation { name: "CreateEndpoint", run: endpoint::create },
    Operation { name: "CreateEndpointConfig", run: endpoint_config::create },
    Operation { name: "CreateInferenceComponent", run: component::create },
    Operation { name: "CreateModel", run: model::create },
    Operation { name: "DeleteEndpoint", run: endpoint::delete },
    Operation { name: "DeleteEndpointConfig", run: endpoint_config::delete },
    Operation { name: "DeleteInferenceComponent", run: component::delete },
    Operation { name: "DeleteModel", run: model::delete },
    Operation { name: "DeleteTags", run: tags::delete },
    Operation { name: "DescribeEndpoint", run: describe_endpoint::describe },
    Operation { name: "DescribeEndpointConfig", run: endpoint_config::describe },
    Operation { name: "DescribeInferenceComponent", run: component::describe },
    Operation { name: "DescribeModel", run: model::describe },
    Operation { name: "ListEndpointConfigs", run: endpoint_config::list },
    Operation { name: "ListEndpoints", run: endpoint::list },
    Operation { name: "ListInferenceComponents", run: component::list },
    Operation { name: "ListModels", run: model::list },
    Operation { name: "ListTags", run: tags::list },
    Operation { name: "UpdateEndpoint", run: update_endpoint::update },
    Operation {
        name: "UpdateEndpointWeightsAndCapacities",
        run: update_endpoint::update_weights_and_capacities,
    },
    Operation { name: "UpdateInferenceComponent", run: component::update },
    Operation {
        name: "UpdateInferenceComponentRuntimeConfig",
        run: component::update_runtime_config,
    },
];

/// The operation of a name.
///
/// # Errors
///
/// `UnknownOperationException` for a name of none that is offered.
pub fn find(name: &str) -> Result<&'static Operation, AwsError> {
    OPERATIONS.iter().find(|operation| operation.name == name).ok_or_else(|| {
        AwsError::unknown_operation(format!("{name:?} is no operation that this gateway offers."))
    })
}

/// The names of all operations that are offered.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().map(|operation| operation.name)
}

impl Operation {
    /// Checks an input against the service model.
    ///
    /// # Errors
    ///
    /// What the API answers to an input that is not valid.
    pub fn check(&self, input: &Value) -> Result<(), AwsError> {
        service::operation(self.name).map_or(Ok(()), |facts| facts.check(input))
    }

    /// Does it, but for making its changes durable.
    ///
    /// # Errors
    ///
    /// What the API answers instead of an output.
    pub fn run(&self, context: &Context<'_>, input: &Value) -> Result<Outcome, AwsError> {
        (self.run)(context, input)
    }
}

impl Outcome {
    /// An answer that changes nothing.
    fn read(output: Value) -> Self {
        Self { output, changes: vec![] }
    }

    /// A resource is made or changed.
    fn put(output: Value, resource: Resource) -> Self {
        Self { output, changes: vec![Change::Put(resource)] }
    }

    /// A change that answers nothing.
    fn silent(change: Change) -> Self {
        Self { output: json!({}), changes: vec![change] }
    }
}

/// A member that the service model requires.
fn text<'a>(input: &'a Value, member: &str) -> &'a str {
    input[member].as_str().unwrap_or_default()
}

/// A member that may be absent.
fn optional(input: &Value, member: &str) -> Option<String> {
    input[member].as_str().map(str::to_owned)
}

/// A number that may be absent.
fn number(input: &Value, member: &str) -> Option<u32> {
    input[member].as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// A list that may be absent.
fn items<'a>(input: &'a Value, member: &str) -> &'a [Value] {
    input[member].as_array().map_or(&[], Vec::as_slice)
}

/// The members of an input that are not null, but for one.
fn without(input: &Value, member: &str) -> Value {
    let members = input.as_object().into_iter().flatten();
    let kept = members.filter(|(name, value)| *name != member && !value.is_null());
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Puts a member into an output if there is a value for it.
fn set(output: &mut Value, member: &str, value: Option<Value>) {
    if let Some(value) = value.filter(|value| !value.is_null()) {
        output[member] = value;
    }
}
