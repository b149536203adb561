//! Rules that the service's documentation has beyond its model.

use serde_json::Value;

use crate::aws::AwsError;

/// Checks an input that fits its shape.
pub(super) fn check(operation: &str, input: &Value) -> Result<(), AwsError> {
    let _ = (operation, input);
    Ok(())
}
