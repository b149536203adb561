//! Waiting for an endpoint to come to rest.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// Whether something is under way, so that the gateway takes no further change.
fn is_in_progress(endpoint: &Value) -> bool {
    let status = endpoint["EndpointStatus"].as_str().unwrap_or_default();
    matches!(status, "Creating" | "Updating" | "SystemUpdating" | "RollingBack" | "Deleting")
}

/// The endpoint once nothing is under way; `None` when it is gone by then. The gateway itself gives up on
/// what takes too long (`control.ready_within`).
pub(super) async fn at_rest(client: &mut Client, name: &str) -> anyhow::Result<Option<Value>> {
    loop {
        let described = client.find("DescribeEndpoint", &json!({ "EndpointName": name })).await?;
        match described {
            Some(endpoint) if is_in_progress(&endpoint) => tokio::time::sleep(INTERVAL).await,
            described => return Ok(described),
        }
    }
}
