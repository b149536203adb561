//! The operations of SageMaker's control API that are offered, and what their inputs have to be.
//!
//! The facts come from the service model that AWS's own SDKs are made of, without its prose:
//! `cargo xtask service-model` writes `sagemaker.json`.

mod check;
mod constraint;
mod model;
mod rules;
mod shape;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::AwsError;
use model::Model;
use shape::ShapeId;

/// An operation of the control API.
#[derive(Debug)]
pub struct Operation {
    name: String,
    input: ShapeId,
    output: Option<ShapeId>,
}

/// The operation of this name, as in `CreateEndpoint`; `None` for those that are not offered.
#[must_use]
pub fn operation(name: &str) -> Option<&'static Operation> {
    operations().iter().find(|operation| operation.name == name)
}

/// All operations that are offered, by name.
#[must_use]
pub fn operations() -> &'static [Operation] {
    &Model::get().operations
}

/// What stands before the operation's name in `X-Amz-Target`, without the dot.
#[must_use]
pub fn target_prefix() -> &'static str {
    &Model::get().target_prefix
}

impl Operation {
    /// As in `CreateEndpoint`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks an input: types, required members, ranges, lengths, patterns, enums, and the rules that the
    /// service's documentation has beyond its model. Members that the service does not know are ignored, as
    /// it ignores them.
    ///
    /// # Errors
    /// `SerializationException` where a type is wrong; else `ValidationException`, which names each member
    /// that breaks a constraint.
    pub fn check(&self, input: &Value) -> Result<(), AwsError> {
        check::check(Model::get(), self.input, input)?;
        rules::check(&self.name, input)
    }

    /// Checks an output by the same rules: an operation that answers nothing has an empty output, and
    /// members that the service does not have are wrong here.
    ///
    /// # Errors
    /// `InternalFailure` with what is wrong.
    pub fn check_output(&self, output: &Value) -> Result<(), AwsError> {
        check::check_output(Model::get(), self.output, output)
    }
}
