//! Checking an input or output against its shape.

use std::fmt::Write;

use serde_json::Value;

use super::{
    constraint::{broken, quoted},
    model::Model,
    shape::{Kind, Shape, ShapeId},
};
use crate::aws::AwsError;

/// Broken constraints that an error spells out; the rest are counted.
const MAX_SPELLED_OUT: usize = 10;

/// Checks an input; members that its shapes do not have are ignored.
pub(super) fn check(model: &Model, shape: ShapeId, input: &Value) -> Result<(), AwsError> {
    let mut walk = Walk::new(model);
    walk.value(shape, input).map_err(AwsError::serialization)?;
    match walk.broken.len() {
        0 => Ok(()),
        _ => Err(AwsError::validation(walk.message())),
    }
}

/// Checks an output, where no member may be that its shapes do not have.
pub(super) fn check_output(
    model: &Model,
    shape: Option<ShapeId>,
    output: &Value,
) -> Result<(), AwsError> {
    let Some(shape) = shape else {
        let empty = output.as_object().is_some_and(serde_json::Map::is_empty);
        return if empty { Ok(()) } else { Err(AwsError::internal("the output is not empty")) };
    };
    let mut walk = Walk::new(model);
    walk.value(shape, output).map_err(AwsError::internal)?;
    if let Some(name) = walk.unknown.first() {
        return Err(AwsError::internal(format!("the output has no member {name}")));
    }
    match walk.broken.len() {
        0 => Ok(()),
        _ => Err(AwsError::internal(walk.message())),
    }
}

/// A walk through a value, by its shapes.
struct Walk<'m> {
    model: &'m Model,
    /// Where it is, as the service writes it: `productionVariants.1.member.modelName`.
    path: String,
    /// What is broken, each in a sentence.
    broken: Vec<String>,
    /// Paths of members that no shape has.
    unknown: Vec<String>,
}

impl<'m> Walk<'m> {
    fn new(model: &'m Model) -> Self {
        Self { model, path: String::new(), broken: Vec::new(), unknown: Vec::new() }
    }

    /// In the form that the service gives them.
    fn message(&self) -> String {
        let count = self.broken.len();
        let errors = if count == 1 { "error" } else { "errors" };
        let spelled_out = self.broken[..count.min(MAX_SPELLED_OUT)].join("; ");
        let mut message = format!("{count} validation {errors} detected: {spelled_out}");
        if count > MAX_SPELLED_OUT {
            message.push_str("; ...");
        }
        message
    }

    /// # Errors
    /// Where the value is of another type.
    fn value(&mut self, id: ShapeId, value: &Value) -> Result<(), String> {
        let model = self.model;
        let shape = model.shape(id);
        expect_type(shape, value).map_err(|why| {
            if self.path.is_empty() { why } else { format!("{why}, at '{}'", self.path) }
        })?;
        for constraint in broken(shape, value) {
            self.fail(value, &constraint);
        }
        match (&shape.kind, value) {
            (Kind::Structure(members), Value::Object(entries)) => {
                for member in members {
                    // No value and null are the same in AWS's JSON.
                    let value = entries.get(&member.name).unwrap_or(&Value::Null);
                    let name = as_in_messages(&member.name);
                    self.at(&[&name], |walk| match value {
                        Value::Null if member.required => {
                            walk.fail(value, NOT_NULL);
                            Ok(())
                        }
                        Value::Null => Ok(()),
                        value => walk.value(member.shape, value),
                    })?;
                }
                for name in entries.keys() {
                    if !members.iter().any(|member| member.name == *name) {
                        let path = self.at(&[name], |walk| walk.path.clone());
                        self.unknown.push(path);
                    }
                }
            }
            (Kind::List(member), Value::Array(items)) => {
                self.elements(value, "Member must satisfy constraint", *member, items.iter())?;
                for (index, item) in items.iter().enumerate() {
                    let place = (index + 1).to_string();
                    self.at(&[&place, "member"], |walk| walk.inner(*member, item))?;
                }
            }
            (Kind::Map { key, value: of }, Value::Object(entries)) => {
                let keys: Vec<Value> = entries.keys().cloned().map(Value::String).collect();
                self.elements(value, "Map keys must satisfy constraint", *key, keys.iter())?;
                self.elements(value, "Map value must satisfy constraint", *of, entries.values())?;
                for (key, value) in entries {
                    self.at(&[key, "member"], |walk| walk.inner(*of, value))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An element of a list or map: what it has inside. [`Walk::elements`] tells of itself.
    fn inner(&mut self, id: ShapeId, value: &Value) -> Result<(), String> {
        match self.model.shape(id).kind {
            Kind::Structure(_) | Kind::List(_) | Kind::Map { .. } if !value.is_null() => {
                self.value(id, value)
            }
            _ => Ok(()),
        }
    }

    /// Simple elements: the service names the list or map as a whole, and what its elements have to be.
    fn elements<'v>(
        &mut self,
        whole: &Value,
        says: &str,
        id: ShapeId,
        elements: impl Iterator<Item = &'v Value>,
    ) -> Result<(), String> {
        let shape = self.model.shape(id);
        let is_simple =
            !matches!(shape.kind, Kind::Structure(_) | Kind::List(_) | Kind::Map { .. });
        let mut asked: Vec<String> = Vec::new();
        for element in elements {
            if element.is_null() {
                asked.push(NOT_NULL.to_owned());
            } else if is_simple {
                expect_type(shape, element).map_err(|why| format!("{why}, in '{}'", self.path))?;
                asked.extend(broken(shape, element));
            }
        }
        asked.sort();
        asked.dedup();
        if !asked.is_empty() {
            self.fail(whole, &format!("{says}: [{}]", asked.join(", ")));
        }
        Ok(())
    }

    /// Does something further inside.
    fn at<T>(&mut self, parts: &[&str], inside: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        for part in parts {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(part);
        }
        let result = inside(self);
        self.path.truncate(length);
        result
    }

    fn fail(&mut self, value: &Value, constraint: &str) {
        let mut text = String::from("Value ");
        match value {
            Value::Null => text.push_str("null"),
            value => write!(text, "'{}'", quoted(value)).expect("a string takes it"),
        }
        let path = &self.path;
        write!(text, " at '{path}' failed to satisfy constraint: {constraint}")
            .expect("a string takes it");
        self.broken.push(text);
    }
}

const NOT_NULL: &str = "Member must not be null";

/// Members have their first letter small in the service's messages.
pub(super) fn as_in_messages(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// # Errors
/// What was found and what it should be.
fn expect_type(shape: &Shape, value: &Value) -> Result<(), String> {
    let (fits, wanted) = match shape.kind {
        Kind::Structure(_) => (value.is_object(), "a structure"),
        Kind::Map { .. } => (value.is_object(), "a map"),
        Kind::List(_) => (value.is_array(), "a list"),
        Kind::String { .. } => (value.is_string(), "a String"),
        Kind::Integer => {
            (value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()), "an Integer")
        }
        Kind::Long => (value.is_i64(), "a Long"),
        Kind::Float => (value.is_number(), "a Float"),
        Kind::Boolean => (value.is_boolean(), "a Boolean"),
        Kind::Timestamp => (value.is_number(), "a Timestamp in seconds since 1970"),
    };
    let found = match value {
        Value::Null => "NULL_VALUE",
        Value::Bool(true) => "TRUE_VALUE",
        Value::Bool(false) => "FALSE_VALUE",
        Value::Number(number) if number.is_f64() => "DECIMAL_VALUE",
        Value::Number(_) => "NUMBER_VALUE",
        Value::String(_) => "STRING_VALUE",
        Value::Array(_) => "LIST_VALUE",
        Value::Object(_) => "STRUCTURE_VALUE",
    };
    if fits { Ok(()) } else { Err(format!("{found} can not be converted to {wanted}")) }
}
