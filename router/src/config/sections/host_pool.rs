//! `[[host_pool]]`: hosts that endpoints made through the control API can be given.

use crate::config::{
    InstanceUrl,
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "host_pool.instance_type",
        kind: Kind::InstanceType,
        default: None,
        live: true,
        about: "The type that the hosts are. A variant of an endpoint configuration gets hosts of its \
                own `InstanceType`. Several pools may have the same.",
    },
    Setting {
        path: "host_pool.models",
        kind: Kind::Names,
        default: Some("[]"),
        live: true,
        about: "Names of the models (`ModelName`) that these hosts serve. A host runs what it was \
                started with: the gateway installs no model. Empty: any, for hosts that are all \
                alike.",
    },
    Setting {
        path: "host_pool.hosts",
        kind: Kind::Urls,
        default: None,
        live: true,
        about: "The hosts, in the order in which they are given out. Each serves one variant of one \
                endpoint at a time. A host that leaves the list leaves its endpoint too, which gets \
                another one if there is any.",
    },
];

/// `[[host_pool]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPool {
    /// The instance type that the hosts are.
    pub instance_type: String,
    /// Models that the hosts serve; any, if empty.
    pub models: Vec<String>,
    /// The hosts, in the order in which they are given out.
    pub hosts: Vec<InstanceUrl>,
}

impl HostPool {
    /// Whether its hosts can be given to a variant of this type and model.
    pub fn suits(&self, instance_type: &str, model: &str) -> bool {
        self.instance_type == instance_type
            && (self.models.is_empty() || self.models.iter().any(|name| name == model))
    }
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Option<HostPool> {
    let instance_type = s.required("instance_type", |text| {
        let ok = text.len() <= 64
            && text.strip_prefix("ml.").is_some_and(|rest| {
                !rest.is_empty()
                    && rest.bytes().all(|b| {
                        b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-')
                    })
            });
        ok.then(|| text.to_owned()).ok_or_else(|| {
            format!("`{text}` is no instance type: write one such as \"ml.p5.48xlarge\"")
        })
    });
    let models = s.items("models", super::endpoint::name);
    let hosts = s.required_items("hosts", |text| {
        InstanceUrl::parse(text).map_err(|error| error.to_string())
    });
    let hosts = hosts?;
    for (index, host) in hosts.iter().enumerate() {
        if hosts[..index].contains(host) {
            s.issue("hosts", format!("has {host} twice: leave one out"));
        }
    }
    Some(HostPool { instance_type: instance_type?, models, hosts })
}
