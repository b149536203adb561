//! `atalho endpoint delete`

use std::process::ExitCode;

use serde_json::json;

use super::{apply, client::Client, wait};

pub(super) async fn delete(
    client: &mut Client,
    name: &str,
    wait: bool,
) -> anyhow::Result<ExitCode> {
    let named = json!({ "EndpointName": name });
    let described = client.call("DescribeEndpoint", &named).await?;
    client.call("DeleteEndpoint", &named).await?;
    if !wait {
        crate::cli::print(&format!("{name}: is being deleted\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    wait::at_rest(client, name).await?;
    if let Some(config) = described["EndpointConfigName"].as_str() {
        apply::forget_config(client, name, config).await?;
    }
    apply::forget_model(client, name).await?;
    crate::cli::print(&format!("{name}: deleted\n"))?;
    Ok(ExitCode::SUCCESS)
}
