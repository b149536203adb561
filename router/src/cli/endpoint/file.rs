//! The file that `atalho endpoint apply` reads, and what it means to the control API.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Strategy;

/// Longest name of an endpoint configuration that the API takes.
const MAX_NAME: usize = 63;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    endpoint: Vec<Endpoint>,
}

/// `[[endpoint]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endpoint {
    pub(super) name: String,
    variant: Vec<Variant>,
}

/// `[[endpoint.variant]]`, with the configuration's defaults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    /// The endpoint's name, unless it is given.
    model: Option<String>,
    instance_type: String,
    #[serde(default = "one")]
    instances: u32,
    #[serde(default = "weight")]
    weight: f64,
    #[serde(default = "strategy")]
    strategy: String,
    #[serde(default = "prefix_length")]
    prefix_length: u32,
    #[serde(default = "concurrency_threshold")]
    concurrency_threshold: u32,
}

fn one() -> u32 {
    1
}

fn weight() -> f64 {
    1.0
}

fn strategy() -> String {
    Strategy::PrefixAware.to_string()
}

fn prefix_length() -> u32 {
    4096
}

fn concurrency_threshold() -> u32 {
    10
}

/// Reads the file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Endpoint>> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} does not describe endpoints", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Vec<Endpoint>> {
    let file: File = toml::from_str(text)?;
    for (at, endpoint) in file.endpoint.iter().enumerate() {
        if endpoint.variant.is_empty() {
            bail!("endpoint {:?} has no [[endpoint.variant]]", endpoint.name);
        }
        if file.endpoint[..at].iter().any(|other| other.name == endpoint.name) {
            bail!("endpoint {:?} is there twice", endpoint.name);
        }
        for variant in &endpoint.variant {
            let strategy = variant.strategy.parse::<Strategy>();
            strategy.map_err(anyhow::Error::msg).with_context(|| {
                format!("variant {:?} of endpoint {:?}", variant.name, endpoint.name)
            })?;
        }
    }
    Ok(file.endpoint)
}

impl Endpoint {
    /// Names of the models that its variants have, each once.
    pub(super) fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = self.variant.iter().map(|it| self.model(it)).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    fn model<'a>(&'a self, variant: &'a Variant) -> &'a str {
        variant.model.as_deref().unwrap_or(&self.name)
    }

    /// The endpoint configuration that says the same. Its name comes from what it says: an endpoint that has
    /// it is as the file wants it.
    pub(super) fn config(&self) -> Value {
        let variants: Vec<Value> = self.variant.iter().map(|it| self.production(it)).collect();
        let digest = xxh3_64(Value::from(variants.clone()).to_string().as_bytes());
        let digest = &format!("{digest:016x}")[..10];
        let room = MAX_NAME - digest.len() - 1;
        let start: String = self.name.chars().take(room).collect();
        json!({
            "EndpointConfigName": format!("{start}-{digest}"),
            "ProductionVariants": variants,
        })
    }

    fn production(&self, variant: &Variant) -> Value {
        let strategy = variant.strategy.to_ascii_uppercase().replace('-', "_");
        let mut routing = json!({ "RoutingStrategy": strategy });
        if strategy == "PREFIX_AWARE" {
            routing["PrefixAwareRoutingConfig"] = json!({
                "PrefixLength": variant.prefix_length,
                "ConcurrencyThreshold": variant.concurrency_threshold,
            });
        }
        json!({
            "VariantName": variant.name,
            "ModelName": self.model(variant),
            "InstanceType": variant.instance_type,
            "InitialInstanceCount": variant.instances,
            "InitialVariantWeight": variant.weight,
            "RoutingConfig": routing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::service;

    fn one_of(text: &str) -> Endpoint {
        parse(text).expect("a valid file").remove(0)
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("it is wrong"))
    }

    const SHORT: &str = "[[endpoint]]\nname = \"chat\"\n[[endpoint.variant]]\nname = \"main\"\n\
                         instance_type = \"ml.p5.48xlarge\"\n";

    #[test]
    fn defaults_are_those_of_the_configuration() {
        let endpoint = one_of(SHORT);
        assert_eq!(endpoint.models(), ["chat"]);
        let input = endpoint.config();
        let check = service::operation("CreateEndpointConfig").expect("an operation");
        check.check(&input).expect("the API takes it");
        let variant = &input["ProductionVariants"][0];
        let text = "[[endpoint]]\nname = \"chat\"\n[[endpoint.variant]]\nname = \"main\"\n";
        let config = crate::config::parse("atalho.toml", text).expect("a valid configuration");
        let expected = &config.endpoints[0].variants[0];
        assert_eq!(variant["InitialVariantWeight"], expected.weight);
        assert_eq!(variant["RoutingConfig"]["RoutingStrategy"], "PREFIX_AWARE");
        let routing = &variant["RoutingConfig"]["PrefixAwareRoutingConfig"];
        assert_eq!(routing["PrefixLength"], expected.prefix_length);
        assert_eq!(routing["ConcurrencyThreshold"], expected.concurrency_threshold);
        assert_eq!(expected.strategy, Strategy::PrefixAware);
    }

    #[test]
    fn a_configuration_is_named_by_what_it_says() {
        let name = |text: &str| one_of(text).config()["EndpointConfigName"].clone();
        assert_eq!(name(SHORT), name(&format!("{SHORT}weight = 1.0\ninstances = 1\n")));
        let names = [
            name(SHORT),
            name(&format!("{SHORT}weight = 2.0\n")),
            name(&format!("{SHORT}instances = 2\n")),
            name(&format!("{SHORT}strategy = \"random\"\n")),
            name(&SHORT.replace("\"main\"", "\"other\"")),
        ];
        let unique: std::collections::BTreeSet<_> =
            names.iter().map(|name| name.as_str().expect("a name")).collect();
        assert_eq!(unique.len(), names.len());
        let long = "a".repeat(63);
        let name = name(&SHORT.replace("chat", &long));
        assert_eq!(name.as_str().expect("a name").len(), 63);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refusal("").contains("endpoint"));
        assert!(refusal(&SHORT.replace("instance_type", "instance_typ")).contains("instance_typ"));
        assert!(
            refusal(&format!("{SHORT}strategy = \"fast\"\n")).contains("`fast` is no strategy")
        );
        assert!(refusal(&format!("{SHORT}{SHORT}")).contains("twice"));
        let hosts = format!("{SHORT}[[endpoint.variant.instance]]\nurl = \"http://10.0.0.1\"\n");
        assert!(refusal(&hosts).contains("instance"));
        assert!(
            refusal("[[endpoint]]\nname = \"a\"\nvariant = []\n")
                .contains("no [[endpoint.variant]]")
        );
    }
}
