//! The constraints on a single value, in the service's words.

use serde_json::Value;

use super::shape::{Kind, Shape};

/// Characters of a value that an error quotes.
const MAX_QUOTED: usize = 256;

/// What each constraint that a value breaks asks for. The value has the shape's type.
pub(super) fn broken(shape: &Shape, value: &Value) -> Vec<String> {
    let mut asked = Vec::new();
    match (&shape.kind, value) {
        (Kind::String { pattern, values }, Value::String(text)) => {
            out_of_range(shape, "length", text.chars().count() as f64, &mut asked);
            if let Some(pattern) = pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
                let text = &pattern.text;
                asked.push(format!("Member must satisfy regular expression pattern: {text}"));
            }
            if !values.is_empty() && !values.contains(text) {
                let values = values.join(", ");
                asked.push(format!("Member must satisfy enum value set: [{values}]"));
            }
        }
        (Kind::List(_), Value::Array(items)) => {
            out_of_range(shape, "length", items.len() as f64, &mut asked);
        }
        (Kind::Map { .. }, Value::Object(entries)) => {
            out_of_range(shape, "length", entries.len() as f64, &mut asked);
        }
        (Kind::Integer | Kind::Long | Kind::Float, Value::Number(number)) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            out_of_range(shape, "value", number, &mut asked);
        }
        _ => {}
    }
    asked
}

/// `what` is what has the bounds: a value or a length.
fn out_of_range(shape: &Shape, what: &str, number: f64, asked: &mut Vec<String>) {
    if let Some(max) = shape.max.filter(|max| number > *max) {
        asked.push(format!("Member must have {what} less than or equal to {max}"));
    }
    if let Some(min) = shape.min.filter(|min| number < *min) {
        asked.push(format!("Member must have {what} greater than or equal to {min}"));
    }
}

/// A value as errors quote it: text without quotation marks, lists and maps with their brackets, no more
/// than a line of it.
pub(super) fn quoted(value: &Value) -> String {
    let mut text = String::new();
    quote(value, &mut text);
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn quote(value: &Value, text: &mut String) {
    if text.len() > 4 * MAX_QUOTED {
        return;
    }
    let separate = |text: &mut String, index| text.push_str(if index > 0 { ", " } else { "" });
    match value {
        Value::String(string) => text.extend(string.chars().take(MAX_QUOTED + 1)),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(text, index);
                quote(item, text);
            }
            text.push(']');
        }
        Value::Object(entries) => {
            text.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                separate(text, index);
                text.extend(key.chars().take(MAX_QUOTED + 1));
                text.push('=');
                quote(value, text);
            }
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}
