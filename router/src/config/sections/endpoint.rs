//! `[[endpoint]]`: named services, their variants and instances.

use std::num::NonZeroU32;

use crate::config::{
    InstanceUrl, Strategy,
    section::Section,
    sections::setting,
    setting::{Kind, Setting},
    strategy::STRATEGIES,
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "endpoint.name",
        kind: Kind::Name,
        default: None,
        live: true,
        about: "Name in `/endpoints/{name}/...`. The first endpoint of the file also serves \
                requests that name none, such as `/v1/chat/completions`.",
    },
    Setting {
        path: "endpoint.variant.name",
        kind: Kind::Name,
        default: None,
        live: true,
        about: "Name that a client may ask for in `X-Amzn-SageMaker-Target-Variant`, unique in \
                its endpoint.",
    },
    Setting {
        path: "endpoint.variant.weight",
        kind: Kind::WeightOrZero,
        default: Some("1"),
        live: true,
        about: "Share of the endpoint's requests, relative to its other variants. With 0 it gets those \
                alone that ask for it by its name.",
    },
    Setting {
        path: "endpoint.variant.shadow",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether the variant answers nobody, but gets copies of what others answer. `weight` then is the \
                share of requests that are copied, relative to the weights of all others together: as much as \
                theirs, or more, is every request. See [sagemaker.md](sagemaker.md#shadow-variants).",
    },
    Setting {
        path: "endpoint.variant.strategy",
        kind: Kind::Choice(STRATEGIES),
        default: Some(r#""prefix-aware""#),
        live: true,
        about: "How an instance is chosen: by the start of the prompt, by the fewest requests in \
                flight, or at random. The names of the SageMaker API (`PREFIX_AWARE`, ...) are \
                taken as well.",
    },
    Setting {
        path: "endpoint.variant.prefix_length",
        kind: Kind::Integer { min: 1024, max: 65536, unit: "characters or bytes" },
        default: Some("4096"),
        live: true,
        about: "How much of the start of a request decides where it goes: characters of message \
                text on the JSON APIs, body bytes on `/invocations`. See above how to choose it.",
    },
    Setting {
        path: "endpoint.variant.concurrency_threshold",
        kind: Kind::Integer { min: 1, max: 1024, unit: "requests" },
        default: Some("10"),
        live: true,
        about: "Requests in flight at an instance from which further ones of its prefixes go to a \
                less busy instance. See above how to choose it.",
    },
    Setting {
        path: "endpoint.variant.max_in_flight",
        kind: Kind::OptionalInteger { min: 1, max: u32::MAX as u64, unit: "requests" },
        default: None,
        live: true,
        about: "Requests in flight that no instance of the variant ever exceeds, whatever the \
                strategy. When all are there, a request is answered with 429. Absent: no limit. \
                At least `concurrency_threshold` with `prefix-aware`.",
    },
    Setting {
        path: "endpoint.variant.invocations_path",
        kind: Kind::Path,
        default: Some(r#""/invocations""#),
        live: true,
        about: "Where its instances take the body of SageMaker's InvokeEndpoint, such as \
                `/v1/chat/completions` for servers that have no `/invocations`.",
    },
    Setting {
        path: "endpoint.variant.instance.url",
        kind: Kind::Url,
        default: None,
        live: true,
        about: "Where the inference server listens. Its normal form alone decides which prefixes \
                it gets, so write it the same on every gateway host.",
    },
    Setting {
        path: "endpoint.variant.instance.weight",
        kind: Kind::Weight,
        default: Some("1"),
        live: true,
        about: "Share of prefixes and requests, relative to the variant's other instances: 2 for a \
                host that serves twice as much.",
    },
    Setting {
        path: "endpoint.variant.instance.drain",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether the instance takes no new requests, while its open ones end. Set it before \
                you take a host down.",
    },
];

/// `[[endpoint]]`
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// The name that clients call.
    pub name: String,
    /// Its variants, at least one.
    pub variants: Vec<VariantConfig>,
    /// Its inference components. The control API makes them; a file never has any.
    pub components: Vec<ComponentConfig>,
    /// Whether its hosts serve components alone, so that each request has to name one.
    pub needs_component: bool,
}

/// A model that shares the hosts of a variant: an inference component.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentConfig {
    /// The name that clients call.
    pub name: String,
    /// The variant whose hosts and routing it has.
    pub variant: String,
    /// Where instances take what InvokeEndpoint sends.
    pub invocations_path: String,
    /// Where copies with servers of their own are asked for their health, if not where all are.
    pub health_path: Option<String>,
    /// Its copies; none while it is scaled to zero.
    pub copies: Vec<CopyConfig>,
    /// What it is an adapter of, if it is one. Its copies are then those of its base that are to load it, and
    /// it comes after its base.
    pub adapter: Option<AdapterConfig>,
}

/// An adapter (LoRA), which servers load beside their model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// The component whose copies load it.
    pub base: String,
    /// Where its weights are, as the servers find them.
    pub weights: String,
    /// Path of the call that loads it.
    pub load: String,
    /// Path of the call that unloads it.
    pub unload: String,
}

/// A copy of a component on a host.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyConfig {
    /// The host, as the variant has it.
    pub host: InstanceUrl,
    /// Which of the host's copies it is, from 0 on.
    pub slot: u32,
    /// Where it serves, if not at the host's own address.
    pub url: Option<InstanceUrl>,
    /// What goes in front of a request's path.
    pub path_prefix: Option<String>,
}

/// `[[endpoint.variant]]`
#[derive(Clone, Debug, PartialEq)]
pub struct VariantConfig {
    /// The name that clients may ask for.
    pub name: String,
    /// Share of the endpoint's requests, relative to the other variants.
    pub weight: f64,
    /// Whether it answers nobody, and gets copies of requests.
    pub shadow: bool,
    /// How an instance is chosen.
    pub strategy: Strategy,
    /// Units of a request that decide where it goes.
    pub prefix_length: usize,
    /// Requests in flight from which an instance takes no more by affinity.
    pub concurrency_threshold: u32,
    /// Requests in flight that an instance never exceeds; more are refused.
    pub max_in_flight: Option<NonZeroU32>,
    /// Where instances take what InvokeEndpoint sends.
    pub invocations_path: String,
    /// Where its instances are asked for their health, if not where all are. The control API may say so.
    pub health_path: Option<String>,
    /// Its instances; may be empty.
    pub instances: Vec<InstanceConfig>,
    /// Whether it is about to replace the one of the same name beside it. The control API has such
    /// pairs while requests move from one deployment to the next; a file never has.
    pub incoming: bool,
}

/// `[[endpoint.variant.instance]]`
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceConfig {
    /// Where it serves.
    pub url: InstanceUrl,
    /// Share of prefixes and requests, relative to the variant's other instances.
    pub weight: f64,
    /// Whether it takes no new requests while its open ones end.
    pub drain: bool,
}

impl EndpointConfig {
    /// With these variants, and no inference components.
    pub fn new(name: &str, variants: Vec<VariantConfig>) -> Self {
        let components = Vec::new();
        Self { name: name.to_owned(), variants, components, needs_component: false }
    }
}

impl VariantConfig {
    /// With every setting at its default, and no instance.
    pub fn named(name: &str) -> Self {
        let text = |key: &str| {
            let setting = setting(&format!("endpoint.variant.{key}"));
            setting.default.unwrap_or_default().trim_matches('"')
        };
        let default = |key| -> usize { text(key).parse().expect("the table has a number") };
        Self {
            name: name.to_owned(),
            weight: 1.0,
            shadow: false,
            strategy: Strategy::PrefixAware,
            prefix_length: default("prefix_length"),
            concurrency_threshold: default("concurrency_threshold") as u32,
            max_in_flight: None,
            invocations_path: text("invocations_path").to_owned(),
            health_path: None,
            instances: Vec::new(),
            incoming: false,
        }
    }
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Option<EndpointConfig> {
    let name = s.required("name", name);
    let variants: Vec<VariantConfig> = s.list("variant", variant);
    if !s.has("variant") {
        s.issue("variant", "there is none: add an [[endpoint.variant]]");
    }
    if !variants.is_empty() && variants.iter().all(|variant| variant.shadow) {
        s.issue("variant", "there are shadows alone: one variant has to answer");
    }
    s.unique("variant", "name", |name| Some(name.to_owned()));
    Some(EndpointConfig::new(&name?, variants))
}

fn variant(s: &Section<'_, '_>) -> Option<VariantConfig> {
    let name = s.required("name", name);
    let strategy = s.value("strategy", |value| value.text()?.parse::<Strategy>());
    let concurrency_threshold = s.integer("concurrency_threshold");
    let max_in_flight: Option<u32> = s.optional_integer("max_in_flight");
    if strategy == Strategy::PrefixAware
        && max_in_flight.is_some_and(|max| max < concurrency_threshold)
    {
        s.issue(
            "max_in_flight",
            format!(
                "is below concurrency_threshold ({concurrency_threshold}): raise it, or lower \
                 the threshold"
            ),
        );
    }
    let invocations_path = s.path("invocations_path");
    if invocations_path.contains('?') {
        s.issue("invocations_path", "has a query: that is up to each request, so leave it out");
    }
    let instances: Vec<InstanceConfig> = s.list("instance", instance);
    s.unique("instance", "url", |url| InstanceUrl::parse(url).ok());
    Some(VariantConfig {
        weight: weight(s, true),
        shadow: s.bool("shadow"),
        prefix_length: s.integer("prefix_length"),
        name: name?,
        strategy,
        concurrency_threshold,
        max_in_flight: max_in_flight.and_then(NonZeroU32::new),
        invocations_path,
        health_path: None,
        instances,
        incoming: false,
    })
}

fn instance(s: &Section<'_, '_>) -> Option<InstanceConfig> {
    let url = s.required("url", |text| InstanceUrl::parse(text).map_err(|e| e.to_string()));
    let (weight, drain) = (weight(s, false), s.bool("drain"));
    Some(InstanceConfig { url: url?, weight, drain })
}

fn weight(s: &Section<'_, '_>, may_be_zero: bool) -> f64 {
    s.value("weight", |value| {
        let weight = value.number()?;
        // Beyond these bounds a share is zero or all for every practical purpose, and a product of
        // two of them could leave the range of the type.
        let ok = (1e-6..=1e6).contains(&weight) || may_be_zero && weight == 0.0;
        let zero = if may_be_zero { "0, or " } else { "" };
        ok.then_some(weight).ok_or_else(|| {
            format!("{weight} is no weight: write {zero}a number from 0.000001 to 1000000")
        })
    })
}

/// Endpoint and variant names follow SageMaker's rule, `^[a-zA-Z0-9](-*[a-zA-Z0-9])*`, up to 63.
pub(super) fn name(text: &str) -> Result<String, String> {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let ok = bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    ok.then(|| text.to_owned()).ok_or_else(|| {
        format!("`{text}` is no name: use 1 to 63 letters, digits and hyphens between them")
    })
}
