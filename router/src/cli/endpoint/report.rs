//! `atalho endpoint list` and `atalho endpoint show`: what people read.

use std::{fmt::Write, process::ExitCode, time::SystemTime};

use serde_json::{Value, json};

use super::client::Client;
use crate::{aws, cli::counted};

pub(super) async fn list(client: &mut Client, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut input = json!({ "SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 100 });
    let mut all: Vec<Value> = Vec::new();
    loop {
        let mut page = client.call("ListEndpoints", &input).await?;
        if let Value::Array(endpoints) = page["Endpoints"].take() {
            all.extend(endpoints);
        }
        match page["NextToken"].take() {
            Value::Null => break,
            token => input["NextToken"] = token,
        }
    }
    let text = match as_json {
        true => format!("{:#}\n", json!({ "Endpoints": all })),
        false => table(&all),
    };
    crate::cli::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(endpoints: &[Value]) -> String {
    if endpoints.is_empty() {
        return "There are no endpoints.\n".to_owned();
    }
    let name = |endpoint: &Value| endpoint["EndpointName"].as_str().unwrap_or("?").to_owned();
    let width = endpoints.iter().map(|it| name(it).len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}  {:12}  CHANGED\n", "NAME", "STATUS");
    for endpoint in endpoints {
        let status = endpoint["EndpointStatus"].as_str().unwrap_or("?");
        let changed = time(&endpoint["LastModifiedTime"]);
        let _ = writeln!(text, "{:width$}  {status:12}  {changed}", name(endpoint));
    }
    text
}

pub(super) async fn show(
    client: &mut Client,
    name: &str,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let endpoint = client.call("DescribeEndpoint", &json!({ "EndpointName": name })).await?;
    let text = if as_json { format!("{endpoint:#}\n") } else { description(&endpoint) };
    crate::cli::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn description(endpoint: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut out = format!(
        "{}: {}, configuration {}\n  made {}, changed {}\n",
        text(&endpoint["EndpointName"]),
        text(&endpoint["EndpointStatus"]),
        text(&endpoint["EndpointConfigName"]),
        time(&endpoint["CreationTime"]),
        time(&endpoint["LastModifiedTime"]),
    );
    if let Some(failure) = endpoint["FailureReason"].as_str() {
        let _ = writeln!(out, "  {failure}");
    }
    variants(&mut out, "variant", &endpoint["ProductionVariants"]);
    variants(&mut out, "shadow variant", &endpoint["ShadowProductionVariants"]);
    let pending = &endpoint["PendingDeploymentSummary"];
    if pending.is_object() {
        let config = text(&pending["EndpointConfigName"]);
        let _ = writeln!(out, "  on its way since {}: {config}", time(&pending["StartTime"]));
        variants(&mut out, "variant", &pending["ProductionVariants"]);
        variants(&mut out, "shadow variant", &pending["ShadowProductionVariants"]);
    }
    out
}

fn variants(out: &mut String, word: &str, variants: &Value) {
    for variant in variants.as_array().into_iter().flatten() {
        let name = variant["VariantName"].as_str().unwrap_or("?");
        let instances = wanted(variant, "InstanceCount");
        let weight = wanted(variant, "Weight");
        let routing = &variant["RoutingConfig"];
        let strategy = routing["RoutingStrategy"].as_str().unwrap_or("?");
        let strategy = strategy.to_ascii_lowercase().replace('_', "-");
        let _ =
            write!(out, "    {word} {name}: {instances} instances, weight {weight}, {strategy}");
        let prefix_aware = &routing["PrefixAwareRoutingConfig"];
        if prefix_aware.is_object() {
            let (length, threshold) =
                (&prefix_aware["PrefixLength"], &prefix_aware["ConcurrencyThreshold"]);
            let _ = write!(out, " (prefix_length {length}, concurrency_threshold {threshold})");
        }
        out.push('\n');
    }
}

/// What something is, and what it is to be where that is something else.
fn wanted(variant: &Value, what: &str) -> String {
    let (current, desired) =
        (&variant[format!("Current{what}")], &variant[format!("Desired{what}")]);
    if current == desired { current.to_string() } else { format!("{current} of {desired}") }
}

/// One line about an endpoint in service.
pub(super) fn summary(endpoint: &Value) -> String {
    let variants = endpoint["ProductionVariants"].as_array().map_or(&[][..], Vec::as_slice);
    let instances =
        variants.iter().filter_map(|it| it["CurrentInstanceCount"].as_u64()).sum::<u64>();
    format!(
        "in service with {} of {}",
        counted(usize::try_from(instances).unwrap_or(usize::MAX), "instance"),
        counted(variants.len(), "variant"),
    )
}

/// A time of the API as people write it.
fn time(seconds: &Value) -> String {
    let millis = aws::json::millis(seconds).and_then(|millis| u64::try_from(millis).ok());
    let at = millis.map(|millis| SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(millis));
    at.map_or("?".to_owned(), |at| humantime::format_rfc3339_seconds(at).to_string())
}
