//! The operations of the control API: one file per kind of resource.
//!
//! An operation reads what exists and its input, and says what it answers and what it changes. It does no I/O
//! and keeps nothing, so that it can be made again when somebody else changed something meanwhile.

use serde_json::Value;

use super::{
    Identity,
    resources::{Change, Resources},
};
use crate::aws::{AwsError, service};

/// What an operation can see.
pub struct Context<'a> {
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Whose resources they are.
    pub identity: &'a Identity,
    /// What exists in the store.
    pub resources: &'a Resources,
    /// What the configuration file defines.
    pub file: &'a Resources,
}

/// What an operation does.
#[derive(Debug, Default, PartialEq)]
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
const OPERATIONS: &[Operation] = &[];

/// The operation of a name.
///
/// # Errors
///
/// `UnknownOperationException` for a name of none that is offered.
pub fn find(name: &str) -> Result<&'static Operation, AwsError> {
    OPERATIONS.iter().find(|operation| operation.name == name).ok_or_else(|| {
        AwsError::unknown_operation(format!("`{name}` is no operation that this gateway offers"))
    })
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
