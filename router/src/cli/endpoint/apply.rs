//! `atalho endpoint apply`

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{client::Client, file::Endpoint, report, wait};

/// Marks what was made for an endpoint, so that it can go with it. Its value is the endpoint's name.
const TAG: &str = "atalho-endpoint";

/// What the API wants to be told of a model's container: instances run already, whatever they run.
const IMAGE: &str = "on-the-hosts";

/// What was done to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Created,
    Updated,
    Unchanged,
}

pub(super) async fn apply(
    client: &mut Client,
    endpoints: &[Endpoint],
    wait: bool,
) -> anyhow::Result<ExitCode> {
    let mut begun = Vec::new();
    for endpoint in endpoints {
        let (done, former) = begin(client, endpoint).await?;
        begun.push((endpoint, done, former));
    }
    let mut all_serve = true;
    for (endpoint, done, former) in begun {
        let config = endpoint.config();
        let name = &*endpoint.name;
        let word = match done {
            Done::Created => "created",
            Done::Updated => "updated",
            Done::Unchanged => "unchanged",
        };
        if !wait {
            crate::cli::print(&format!("{name}: {word}\n"))?;
            continue;
        }
        let described = wait::at_rest(client, name).await?.unwrap_or_default();
        let serves = described["EndpointStatus"] == "InService"
            && described["EndpointConfigName"] == config["EndpointConfigName"];
        if serves {
            crate::cli::print(&format!("{name}: {word}, {}\n", report::summary(&described)))?;
            if let Some(former) = former.filter(|_| done == Done::Updated) {
                forget_config(client, name, &former).await?;
            }
        } else {
            all_serve = false;
            let why = described["FailureReason"].as_str().unwrap_or("it is gone");
            eprintln!("{name}: not {word}: {why}");
        }
    }
    Ok(if all_serve { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks for what the file says, and tells the configuration that the endpoint had.
async fn begin(client: &mut Client, wanted: &Endpoint) -> anyhow::Result<(Done, Option<String>)> {
    let name = &*wanted.name;
    let mut config = wanted.config();
    let config_name = config["EndpointConfigName"].clone();
    // Another change may be under way; nothing is asked for before it has ended.
    let there = wait::at_rest(client, name).await?;
    let failed = there.as_ref().is_some_and(|there| there["EndpointStatus"] == "Failed");
    if let Some(there) = there.as_ref().filter(|_| !failed) {
        let same = there["EndpointConfigName"] == config_name && is_as_configured(there, &config);
        if same {
            return Ok((Done::Unchanged, None));
        }
    }
    if failed {
        // The API has nothing else for an endpoint that never came into service.
        client.call("DeleteEndpoint", &json!({ "EndpointName": name })).await?;
        wait::at_rest(client, name).await?;
    }
    let tags = json!([{ "Key": TAG, "Value": name }]);
    for model in wanted.models() {
        let named = json!({ "ModelName": model });
        if client.find("DescribeModel", &named).await?.is_none() {
            let container = json!({ "Image": IMAGE });
            let input = json!({ "ModelName": model, "PrimaryContainer": container, "Tags": tags });
            client.call("CreateModel", &input).await?;
        }
    }
    let described = client
        .find("DescribeEndpointConfig", &json!({ "EndpointConfigName": config_name }))
        .await?;
    if described.is_none() {
        config["Tags"] = tags;
        client.call("CreateEndpointConfig", &config).await?;
    }
    let input = json!({ "EndpointName": name, "EndpointConfigName": config_name });
    match there.filter(|_| !failed) {
        None => {
            client.call("CreateEndpoint", &input).await?;
            Ok((Done::Created, None))
        }
        Some(there) => {
            client.call("UpdateEndpoint", &input).await?;
            let former = there["EndpointConfigName"].as_str().map(str::to_owned);
            Ok((Done::Updated, former.filter(|former| *former != config_name)))
        }
    }
}

/// Whether nobody has changed weights or numbers of instances since.
fn is_as_configured(endpoint: &Value, config: &Value) -> bool {
    let variants = config["ProductionVariants"].as_array().into_iter().flatten();
    let summaries = endpoint["ProductionVariants"].as_array().into_iter().flatten();
    variants.zip(summaries).all(|(variant, summary)| {
        summary["DesiredInstanceCount"] == variant["InitialInstanceCount"]
            && summary["DesiredWeight"].as_f64() == variant["InitialVariantWeight"].as_f64()
    })
}

/// Deletes an endpoint configuration that `apply` made for this endpoint; others stay.
pub(super) async fn forget_config(
    client: &mut Client,
    endpoint: &str,
    config: &str,
) -> anyhow::Result<()> {
    let named = json!({ "EndpointConfigName": config });
    forget(client, endpoint, "EndpointConfig", &named).await
}

/// Deletes a model that `apply` made for this endpoint; others stay.
pub(super) async fn forget_model(client: &mut Client, endpoint: &str) -> anyhow::Result<()> {
    forget(client, endpoint, "Model", &json!({ "ModelName": endpoint })).await
}

async fn forget(
    client: &mut Client,
    endpoint: &str,
    kind: &str,
    named: &Value,
) -> anyhow::Result<()> {
    let Some(described) = client.find(&format!("Describe{kind}"), named).await? else {
        return Ok(());
    };
    let arn = json!({ "ResourceArn": described[format!("{kind}Arn")] });
    let tags = client.find("ListTags", &arn).await?.unwrap_or_default();
    let mut tags = tags["Tags"].as_array().into_iter().flatten();
    if tags.any(|tag| tag["Key"] == TAG && tag["Value"] == endpoint) {
        client.find(&format!("Delete{kind}"), named).await?;
    }
    Ok(())
}
