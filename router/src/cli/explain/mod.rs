//! `atalho explain`: what the gateway would do with a request, and why.

mod input;
mod report;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, anyhow, bail};
use clap::Args;

use super::fleet_flags::FleetFlags;
use crate::{
    api::Prompt,
    config::{Flags, Strategy},
    fleet::{Counters, Endpoint, Fleet, Variant},
    gateway,
    http::{Failure, Method},
    metrics::Metrics,
    prefix::{self, Api, Decider, Findings, KeyParts, Known, Shortfall, Target, tenant},
    routing,
};
use input::Request;
use report::{Explanation, PrefixReport, Ranked, Sourced};

/// Say where a request would go, and why: which bytes are the prefix, the key, the ranking of the
/// instances, the choice.
///
/// The answer is computed, no instance is asked: all instances count as healthy and idle, and as
/// serving every model, so the choice is the one of a quiet fleet, and the ranking says where the
/// request would go instead. It is the same on every gateway with the same configuration.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Options {
    #[command(flatten)]
    fleet: FleetFlags,

    /// A file with the request; `-` is standard input. Either a whole HTTP/1.1 request, head and
    /// body, or the JSON body alone (then --path says where it is sent).
    #[arg(value_name = "FILE", required_unless_present = "data")]
    file: Option<String>,

    /// The body, as with curl; `@FILE` reads it from a file.
    #[arg(long, short, value_name = "BODY", conflicts_with = "file")]
    data: Option<String>,

    /// Method of a request that is given by its body.
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "POST")]
    request: String,

    /// Path of a request that is given by its body. [default: /v1/chat/completions]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// A header field of a request that is given by its body, as with curl; repeat it for several.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The variant to explain; by default the one that the request names, or the first one.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,

    /// Show the whole prefix instead of its ends.
    #[arg(long)]
    full: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  atalho explain --backend http://10.0.0.11:8000 --backend http://10.0.0.12:8000 request.json
  atalho explain --config atalho.toml --path /v1/completions -d '{\"prompt\":\"Once upon a time\"}'
  atalho explain --config atalho.toml -H 'X-Amzn-SageMaker-Prefix-Aware-Id: tenant-7' request.json
  atalho explain --config atalho.toml --json recorded-request.http | jq .choice";

/// The header that asks for a variant by name.
const TARGET_VARIANT: &str = "x-amzn-sagemaker-target-variant";

pub(super) fn explain(options: &Options) -> anyhow::Result<ExitCode> {
    let config = Arc::new(options.fleet.config(Flags::default())?);
    let instances = config.endpoints.iter().flat_map(|endpoint| &endpoint.variants);
    let instances: usize = instances.map(|variant| variant.instances.len()).sum();
    let counters = Counters::heap(u32::try_from(instances)?.max(1));
    let fleet = Fleet::build(&config, None, &counters, &Metrics::new())?;
    let request = input::read(options)?;
    let explanation = explain_request(&fleet, &request, options.variant.as_deref())?;
    let report = match options.json {
        true => serde_json::to_string_pretty(&explanation)? + "\n",
        false => explanation.to_text(options.full),
    };
    super::print(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Goes the gateway's way with a request, as far as the choice.
fn explain_request(
    fleet: &Fleet,
    request: &Request,
    wanted: Option<&str>,
) -> anyhow::Result<Explanation> {
    let target = match gateway::reachable(fleet.config(), request.method, &request.path) {
        Ok(Some(target)) => target,
        Ok(None) => bail!("the gateway answers this by itself"),
        Err(Failure { status, message, .. }) => {
            bail!("the gateway would answer with {status}: {message}")
        }
    };
    let (endpoint, variant) = find(fleet, &target, request, wanted)?;
    let mut explanation = Explanation::new(request, target.api, endpoint, variant);
    let header_tenant = match request.header(tenant::HEADER) {
        Some(value) => {
            Some(tenant::validate(value).map_err(|reject| anyhow!("{}", reject.message))?)
        }
        None => None,
    };
    if target.api == Api::Models {
        explanation.choice.why =
            "The gateway answers this itself, from what the instances of the endpoint list.".into();
        return Ok(explanation);
    }
    let several = endpoint.instances().nth(1).is_some();
    if target.api == Api::StoredResponse && several {
        explanation.choice.why =
            "The instance that keeps this response serves it. Where none does, the \
                                  least loaded one says so."
                .into();
        return Ok(explanation);
    }
    if !target.api.has_prefix() {
        explanation.choice.why =
            "This path has no prompt: the least loaded instance serves it.".into();
        return Ok(explanation);
    }
    let config = fleet.config();
    let (limit, prefix) = (config.limits.decision_bytes, &config.prefix);
    let known = Known::new(&target, header_tenant, variant.routing.prefix_length, limit, prefix);
    let (found, read) = scan(known, request);
    explanation.notes = notes(&found, known, request);
    let scanned = found.prefix;
    if let Some(id) = scanned.previous.as_deref().filter(|_| several) {
        explanation.notes.push(format!(
            "it follows the stored response `{}`: the instance that keeps that one serves it, whatever \
             the ranking; only if none does is it as shown here",
            String::from_utf8_lossy(id)
        ));
    }
    let parts = KeyParts::of(
        &endpoint.name,
        &variant.name,
        header_tenant.map(str::as_bytes),
        target.named_model(),
        &scanned,
    );
    let tenant_source = if header_tenant.is_some() { "header" } else { "prompt_cache_key" };
    explanation.tenant = Sourced::new(parts.tenant, tenant_source);
    let model_source = if target.named_model().is_some() { "path" } else { "body" };
    explanation.model = Sourced::new(parts.model, model_source);
    if !found.has_prefix {
        explanation.choice.reason = Some(routing::Reason::Undecodable.as_str());
        explanation.choice.why =
            "The prompt could not be read, so the least loaded instance serves it.".into();
        return Ok(explanation);
    }
    let key = prefix::key(&parts);
    explanation.key = Some(format!("{:016x}", key.0));
    explanation.prefix =
        Some(PrefixReport::new(&scanned, variant.routing.prefix_length, read, request.body.len()));
    explanation.ranking = routing::rank(variant, key)
        .into_iter()
        .map(|(instance, score)| Ranked {
            instance: instance.url.clone(),
            score,
            weight: instance.weight(),
            draining: instance.is_draining(),
        })
        .collect();
    choose(&mut explanation, variant);
    Ok(explanation)
}

/// The endpoint and the variant that serve the request.
fn find<'f>(
    fleet: &'f Fleet,
    target: &Target<'_>,
    request: &Request,
    wanted: Option<&str>,
) -> anyhow::Result<(&'f Endpoint, &'f Variant)> {
    let endpoint = match target.endpoint {
        None => fleet.default_endpoint().context("the configuration has no endpoint")?,
        Some(name) => fleet.endpoint(name).with_context(|| {
            format!("there is no endpoint `{name}`: the gateway would answer with 404")
        })?,
    };
    let asked = request.header(TARGET_VARIANT).map(String::from_utf8_lossy);
    let variant = match wanted.or(asked.as_deref()) {
        None => endpoint.variants.first(),
        Some(name) => endpoint.variants.iter().find(|variant| variant.name == name),
    };
    match variant {
        Some(variant) => Ok((endpoint, variant)),
        None => {
            let names: Vec<_> = endpoint.variants.iter().map(|v| v.name.as_str()).collect();
            bail!(
                "endpoint `{}` has no such variant: the gateway would answer with 400; there are {}",
                endpoint.name,
                names.join(", ")
            )
        }
    }
}

/// What the body tells, and how many bytes of it had to be read for the decision.
fn scan(known: Known<'_>, request: &Request) -> (Findings, usize) {
    let mut decider = Decider::new(known, request.fields());
    // A byte at a time, to know at which one it had enough.
    let enough = request.body.iter().position(|byte| decider.feed(std::slice::from_ref(byte)));
    (decider.finish(), enough.map_or(request.body.len(), |at| at + 1))
}

/// What is wrong with the body, or was left out of account.
fn notes(found: &Findings, known: Known<'_>, request: &Request) -> Vec<String> {
    let mut notes = Vec::new();
    let coded = request.header("content-encoding").is_some();
    let json = matches!(known.api.info().prompt, Prompt::Json(_));
    let body = request.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&request.body);
    // The scanner does not validate: this says what and where.
    let broken = serde_json::from_slice::<serde::de::IgnoredAny>(body).err();
    if let Some(error) = broken.filter(|_| json && !coded) {
        notes.push(format!(
            "the body is not valid JSON ({error}): the instance will refuse it; the key is made of \
             what was found until then, or else of the body's first bytes"
        ));
    }
    let limit = known.decision_bytes;
    notes.extend(match found.shortfall {
        Some(Shortfall::DecisionBytes) => Some(format!(
            "only the first {limit} bytes are looked at (limits.decision_bytes): what comes behind, such \
             as the model, is not known"
        )),
        Some(Shortfall::UnknownCoding) => {
            Some("the body's Content-Encoding is not known: its prompt cannot be read".into())
        }
        Some(Shortfall::CorruptCoding) => {
            Some("the body is not of its Content-Encoding: its prompt cannot be read".into())
        }
        Some(Shortfall::Expansion) => Some(
            "the body grows beyond all proportion when it is decoded: it is not read to its end".into(),
        ),
        Some(Shortfall::NotJson) if coded => Some("the decoded body is not valid JSON".into()),
        Some(Shortfall::NotJson) | None => None,
    });
    if found.prefix.opening {
        notes.push(
            "the prefix ends with the first message of the user (prefix.end), so that all turns of the \
             conversation have it"
                .into(),
        );
    }
    notes
}

/// The choice of a quiet fleet.
fn choose(explanation: &mut Explanation, variant: &Variant) {
    let able: Vec<_> = explanation
        .ranking
        .iter()
        .filter(|ranked| !ranked.draining)
        .map(|r| r.instance.clone())
        .collect();
    let threshold = variant.routing.concurrency_threshold;
    let choice = &mut explanation.choice;
    match (variant.routing.strategy, able.as_slice()) {
        (_, []) => choice.why = "No instance can serve: the gateway would answer with 503.".into(),
        (_, [only]) => {
            choice.instance = Some(only.clone());
            choice.reason = Some(routing::Reason::Single.as_str());
            choice.why = "Only one instance can serve: there is nothing to choose.".into();
        }
        (Strategy::PrefixAware, [home, next, ..]) => {
            choice.instance = Some(home.clone());
            choice.reason = Some(routing::Reason::Home.as_str());
            choice.why = format!(
                "It ranks first for this key. With {threshold} requests in flight there, a less \
                 busy instance would take the next one (overflow); if it could not serve, {next} \
                 would (failover)."
            );
        }
        (Strategy::LeastOutstandingRequests, _) => {
            choice.reason = Some(routing::Reason::LeastOutstanding.as_str());
            choice.why =
                "The strategy asks for the fewest requests in flight, whatever the prefix; \
                          the ranking shows where PREFIX_AWARE would send it."
                    .into();
        }
        (Strategy::Random, _) => {
            choice.reason = Some(routing::Reason::Random.as_str());
            choice.why = "The strategy is chance, whatever the prefix; the ranking shows where \
                          PREFIX_AWARE would send it."
                .into();
        }
    }
}

/// What `Method` a word is.
fn method(word: &str) -> Method {
    Method::from_bytes(word.as_bytes())
}

#[cfg(test)]
mod tests;
