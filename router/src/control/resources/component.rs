//! Inference components: models that share the hosts of an endpoint's variant.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Tag, Wanted};

/// An inference component; an adapter when it has a [base](ComponentSpec::base).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Unique among components, whatever the case of its letters.
    pub name: String,
    /// The endpoint whose hosts it is on.
    pub endpoint: String,
    /// The variant of it.
    pub variant: String,
    /// Where it is on its way.
    pub status: ComponentStatus,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it was changed, or its status moved, in milliseconds since 1970.
    pub modified: u64,
    /// Rises with each change that was asked for. What was worked out for an older one is refused.
    pub generation: u64,
    /// What it is: `Specification`, or `Specifications`, one per instance type.
    pub specs: Vec<ComponentSpec>,
    /// Whether it was described by `Specifications`.
    #[serde(default)]
    pub plural: bool,
    /// Copies; an adapter without a number of its own has as many as its base.
    pub copies: Wanted<u32>,
    /// Where its copies are, in the order in which they were placed. When there are to be fewer, the last ones
    /// go.
    #[serde(default)]
    pub places: Vec<CopyPlace>,
    /// `DeploymentConfig` of the last update, as it was given.
    #[serde(default)]
    pub deployment_config: Option<Value>,
    /// In the order in which they were added.
    #[serde(default)]
    pub tags: Vec<Tag>,
}

/// Where a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyPlace {
    /// URL of the host.
    pub host: String,
    /// Which of the host's copies it is, from 0 on, all components together.
    pub slot: u32,
}

impl Component {
    /// Whether it is an adapter of another component.
    pub fn is_adapter(&self) -> bool {
        self.base().is_some()
    }

    /// The component that it is an adapter of.
    pub fn base(&self) -> Option<&str> {
        self.specs.iter().find_map(|spec| spec.base.as_deref())
    }
}

/// `InferenceComponentStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ComponentStatus {
    /// Waits for its first copies.
    Creating,
    /// Serves, and is to serve otherwise.
    Updating,
    /// Serves as it was asked to; also with no copies, when none are wanted.
    InService,
    /// Its copies cannot be placed.
    Failed,
    /// Its last requests are ending.
    Deleting,
}

/// `Specification`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentSpec {
    /// As it was given.
    pub input: Value,
    /// `InstanceType`, where it is one of several.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// `ModelName`.
    #[serde(default)]
    pub model: Option<String>,
    /// The members of `CreateModel` of that model, as they were then.
    #[serde(default)]
    pub model_input: Option<Value>,
    /// `Container.ArtifactUrl`: where an adapter's weights are.
    #[serde(default)]
    pub artifact: Option<String>,
    /// `BaseInferenceComponentName`: the component whose copies load this adapter.
    #[serde(default)]
    pub base: Option<String>,
    /// What a copy needs of a host; zero for an adapter, which lives in its base's share.
    #[serde(default)]
    pub requires: Requirements,
    /// `StartupParameters.ContainerStartupHealthCheckTimeoutInSeconds`.
    #[serde(default)]
    pub ready_within: Option<u32>,
}

/// `ComputeResourceRequirements` of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requirements {
    /// `NumberOfCpuCoresRequired`.
    pub cpus: f64,
    /// `NumberOfAcceleratorDevicesRequired`.
    pub accelerators: f64,
    /// `MinMemoryRequiredInMb`.
    pub memory_mb: u64,
}

impl ComponentStatus {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Updating => "Updating",
            Self::InService => "InService",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
        }
    }

    /// Whether something is under way, so that no further change is taken.
    pub fn in_progress(self) -> bool {
        matches!(self, Self::Creating | Self::Updating | Self::Deleting)
    }
}
