//! Endpoints: what was asked for, what serves now, and how far the one is from the other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Tag, VariantSpec};

/// An endpoint.
///
/// Operations say what is wanted, and raise [`generation`](Self::generation) when they do. Who gives hosts to
/// variants says through `settle` what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Unique among endpoints, whatever the case of its letters.
    pub name: String,
    /// Where it is on its way.
    pub status: EndpointStatus,
    /// Why it failed, or what the last change failed of.
    #[serde(default)]
    pub failure: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it was changed, or its status moved, in milliseconds since 1970.
    pub modified: u64,
    /// Rises with each change that was asked for. What was worked out for an older one is refused.
    pub generation: u64,
    /// What serves requests. Absent until the endpoint is in service for the first time.
    #[serde(default)]
    pub serving: Option<Deployment>,
    /// What is to serve instead, while it is created or updated.
    #[serde(default)]
    pub pending: Option<Pending>,
    /// `DeploymentConfig` of the last update, as it was given.
    #[serde(default)]
    pub deployment_config: Option<Value>,
    /// In the order in which they were added.
    #[serde(default)]
    pub tags: Vec<Tag>,
}

/// `EndpointStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndpointStatus {
    /// Waits for its first hosts.
    Creating,
    /// Serves, and is to serve otherwise.
    Updating,
    /// Serves as it was asked to.
    InService,
    /// A deployment failed, and what served before is coming back.
    RollingBack,
    /// A deployment failed, and so did the way back.
    UpdateRollbackFailed,
    /// It never came into service.
    Failed,
    /// Its last requests are ending.
    Deleting,
    /// Exists, and takes no requests.
    OutOfService,
}

/// Variants of one endpoint configuration, with what they have of hosts.
///
/// It holds what its configuration and its models said when it was made: both may be deleted while it
/// serves, as they may be on SageMaker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The configuration's name.
    pub config: String,
    /// Its production variants.
    pub variants: Vec<Placed>,
    /// Its shadow variants.
    #[serde(default)]
    pub shadows: Vec<Placed>,
}

/// A variant and its hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// As the configuration describes it. Weight and number of instances are where it starts: what holds is
    /// below.
    pub spec: VariantSpec,
    /// The members of `CreateModel` of its model, as they were then; absent when it names none.
    #[serde(default)]
    pub model: Option<Value>,
    /// Share of the endpoint's requests.
    pub weight: Wanted<f64>,
    /// Number of instances.
    pub count: Wanted<u32>,
    /// URLs of its hosts, in the order in which they were given to it. When there are to be fewer, the last
    /// ones go: prefixes of the others stay where they are.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// Something that takes a while to become what it was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wanted<T> {
    /// What it is.
    pub current: T,
    /// What it is to be.
    pub desired: T,
}

/// A deployment on its way into service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// What it is going to be.
    pub deployment: Deployment,
    /// When it was asked for, in milliseconds since 1970.
    pub started: u64,
    /// How requests move to it.
    pub rollout: Rollout,
    /// Share of the requests that it gets already, 0 to 100.
    #[serde(default)]
    pub traffic: u32,
    /// When [`traffic`](Self::traffic) last rose, in milliseconds since 1970.
    #[serde(default)]
    pub shifted: Option<u64>,
}

/// How requests move from one deployment to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// In which steps.
    pub steps: Vec<Step>,
    /// How long the former hosts are kept once all requests have moved, in seconds.
    #[serde(default)]
    pub termination_wait: u32,
    /// How long all of it may take, in seconds.
    #[serde(default)]
    pub timeout: Option<u32>,
    /// Share of failed requests from which it is taken back, in percent: of the alarm that names one.
    #[serde(default)]
    pub max_error_percent: Option<f64>,
}

/// One step of a [`Rollout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Share of the requests that the new deployment gets from here on, 1 to 100.
    pub traffic: u32,
    /// How long it is watched before the next step, in seconds.
    pub wait: u32,
}

impl EndpointStatus {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Updating => "Updating",
            Self::InService => "InService",
            Self::RollingBack => "RollingBack",
            Self::UpdateRollbackFailed => "UpdateRollbackFailed",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
            Self::OutOfService => "OutOfService",
        }
    }

    /// Whether something is under way, so that no further change is taken.
    pub fn in_progress(self) -> bool {
        matches!(self, Self::Creating | Self::Updating | Self::RollingBack | Self::Deleting)
    }
}

impl Endpoint {
    /// The name of the configuration that `DescribeEndpoint` tells: the one that serves, or the first that
    /// is to.
    pub fn config(&self) -> &str {
        let pending = self.pending.as_ref().map(|pending| &pending.deployment);
        self.serving.as_ref().or(pending).map_or("", |deployment| &deployment.config)
    }
}

impl<T: Copy> Wanted<T> {
    /// As it is to be already.
    pub fn settled(value: T) -> Self {
        Self { current: value, desired: value }
    }
}

impl Rollout {
    /// Everything at once.
    pub fn all_at_once() -> Self {
        Self { steps: vec![Step { traffic: 100, wait: 0 }], ..Self::default() }
    }
}
