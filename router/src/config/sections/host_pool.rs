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
        path: "host_pool.cpus",
        kind: Kind::OptionalInteger { min: 1, max: 65536, unit: "processor cores" },
        default: None,
        live: true,
        about: "What each host has for copies of inference components \
                (`NumberOfCpuCoresRequired`). Absent: it is not counted.",
    },
    Setting {
        path: "host_pool.accelerators",
        kind: Kind::OptionalInteger { min: 1, max: 65536, unit: "devices" },
        default: None,
        live: true,
        about: "The same for `NumberOfAcceleratorDevicesRequired`.",
    },
    Setting {
        path: "host_pool.memory_mb",
        kind: Kind::OptionalInteger { min: 128, max: u32::MAX as u64, unit: "MiB" },
        default: None,
        live: true,
        about: "The same for `MinMemoryRequiredInMb`.",
    },
    Setting {
        path: "host_pool.copies",
        kind: Kind::Choice(COPIES),
        default: Some(r#""name""#),
        live: true,
        about: "How copies of inference components on one host are told apart. `name`: one server has them all, and \
                goes by the field `X-Amzn-SageMaker-Inference-Component`. `port`: a server for each, the first \
                at the host's port, the next at the port above. `path`: as `name`, with `/{component}` in front \
                of the request's path.",
    },
    Setting {
        path: "host_pool.adapters",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether the servers load adapters (LoRA) while they run, as vLLM does with \
                `VLLM_ALLOW_RUNTIME_LORA_UPDATING=true`, and SGLang with `--enable-lora`. Their calls must be \
                reachable by the gateway alone.",
    },
    Setting {
        path: "host_pool.adapter_load_path",
        kind: Kind::Path,
        default: Some(r#""/v1/load_lora_adapter""#),
        live: true,
        about: "Path of the call that loads one, a POST with `lora_name` and `lora_path` in JSON. Of SGLang: \
                `/load_lora_adapter`.",
    },
    Setting {
        path: "host_pool.adapter_unload_path",
        kind: Kind::Path,
        default: Some(r#""/v1/unload_lora_adapter""#),
        live: true,
        about: "Path of the call that unloads one, with `lora_name`. Of SGLang: `/unload_lora_adapter`.",
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

/// How copies of inference components on one host are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// By the component's name in a field of the request.
    #[default]
    Name,
    /// By their ports: the host's, and those above it.
    Port,
    /// By the component's name in front of the request's path.
    Path,
}

const COPIES: &[&str] = &["name", "port", "path"];

impl std::str::FromStr for Copies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "name" => Ok(Self::Name),
            "port" => Ok(Self::Port),
            "path" => Ok(Self::Path),
            _ => Err(format!("`{text}` is none of {}", COPIES.join(", "))),
        }
    }
}

/// Paths of a server's calls for adapters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterCalls {
    /// Loads one.
    pub load: String,
    /// Unloads one.
    pub unload: String,
}

/// `[[host_pool]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPool {
    /// The instance type that the hosts are.
    pub instance_type: String,
    /// Models that the hosts serve; any, if empty.
    pub models: Vec<String>,
    /// Processor cores that each host has for inference components; `None` if they are not counted.
    pub cpus: Option<u32>,
    /// Accelerators that each host has for them.
    pub accelerators: Option<u32>,
    /// Memory that each host has for them, in MiB.
    pub memory_mb: Option<u32>,
    /// How copies on one host are told apart.
    pub copies: Copies,
    /// The calls that load and unload adapters, where the servers have them.
    pub adapters: Option<AdapterCalls>,
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
    let (cpus, accelerators) = (s.optional_integer("cpus"), s.optional_integer("accelerators"));
    let memory_mb = s.optional_integer("memory_mb");
    let copies = s.value("copies", |value| value.text()?.parse::<Copies>());
    let (load, unload) = (s.path("adapter_load_path"), s.path("adapter_unload_path"));
    let adapters = s.bool("adapters").then_some(AdapterCalls { load, unload });
    let hosts = s.required_items("hosts", |text| {
        InstanceUrl::parse(text).map_err(|error| error.to_string())
    });
    let hosts = hosts?;
    for (index, host) in hosts.iter().enumerate() {
        if hosts[..index].contains(host) {
            s.issue("hosts", format!("has {host} twice: leave one out"));
        }
    }
    Some(HostPool {
        instance_type: instance_type?,
        models,
        cpus,
        accelerators,
        memory_mb,
        copies,
        adapters,
        hosts,
    })
}
