//! What the control plane keeps: one file per kind of resource, and [`Resources`], all of them at one
//! moment.
//!
//! Each is stored as JSON. A member that is added later needs a serde default, so that what an older version
//! stored can be read; anything else that changes raises [`FORMAT`](super::store::FORMAT).

mod component;
mod endpoint;
mod endpoint_config;
mod file;
mod key;
mod model;
mod routing;
mod strategy;
mod tag;
mod variant;

use std::{collections::BTreeMap, sync::Arc};

pub use self::{
    component::{Component, ComponentSpec, ComponentStatus, CopyPlace, Requirements},
    endpoint::{Deployment, Endpoint, EndpointStatus, Pending, Placed, Rollout, Step, Wanted},
    endpoint_config::EndpointConfig,
    file::FileResources,
    key::{Key, Kind},
    model::Model,
    routing::routing_config,
    tag::Tag,
    variant::{InstancePool, VariantSpec},
};

/// All resources at one revision of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// The store's revision. It rises with each change, whatever was changed.
    pub revision: u64,
    /// By name.
    pub models: BTreeMap<String, Arc<Model>>,
    /// By name.
    pub configs: BTreeMap<String, Arc<EndpointConfig>>,
    /// By name.
    pub endpoints: BTreeMap<String, Arc<Endpoint>>,
    /// By name.
    pub components: BTreeMap<String, Arc<Component>>,
}

/// One resource, of whichever kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// A model.
    Model(Arc<Model>),
    /// An endpoint configuration.
    Config(Arc<EndpointConfig>),
    /// An endpoint.
    Endpoint(Arc<Endpoint>),
    /// An inference component.
    Component(Arc<Component>),
}

/// What an operation changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The resource is made, or takes the place of the one of its name.
    Put(Resource),
    /// It is no more.
    Delete(Key),
}

impl Resource {
    /// Where it is kept.
    pub fn key(&self) -> Key {
        match self {
            Self::Model(it) => Key::model(&it.name),
            Self::Config(it) => Key::config(&it.name),
            Self::Endpoint(it) => Key::endpoint(&it.name),
            Self::Component(it) => Key::component(&it.name),
        }
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = match self {
            Self::Model(it) => serde_json::to_vec(&**it),
            Self::Config(it) => serde_json::to_vec(&**it),
            Self::Endpoint(it) => serde_json::to_vec(&**it),
            Self::Component(it) => serde_json::to_vec(&**it),
        };
        // Strings, numbers, lists, and maps whose keys are strings: JSON has a form for all of it.
        encoded.expect("resources have a form in JSON")
    }

    /// What is stored under a key.
    ///
    /// # Errors
    ///
    /// When it cannot be read as what the key says it is.
    pub fn decode(key: &Key, value: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match key.kind() {
            Kind::Model => Self::Model(serde_json::from_slice(value).map(Arc::new)?),
            Kind::Config => Self::Config(serde_json::from_slice(value).map(Arc::new)?),
            Kind::Endpoint => Self::Endpoint(serde_json::from_slice(value).map(Arc::new)?),
            Kind::Component => Self::Component(serde_json::from_slice(value).map(Arc::new)?),
        })
    }
}

impl Resources {
    /// Takes over a change that was made durable. The revision is the caller's to raise.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(Resource::Model(it)) => {
                drop(self.models.insert(it.name.clone(), it.clone()))
            }
            Change::Put(Resource::Config(it)) => {
                drop(self.configs.insert(it.name.clone(), it.clone()))
            }
            Change::Put(Resource::Endpoint(it)) => {
                drop(self.endpoints.insert(it.name.clone(), it.clone()))
            }
            Change::Put(Resource::Component(it)) => {
                drop(self.components.insert(it.name.clone(), it.clone()))
            }
            Change::Delete(key) => match key.kind() {
                Kind::Model => drop(self.models.remove(key.name())),
                Kind::Config => drop(self.configs.remove(key.name())),
                Kind::Endpoint => drop(self.endpoints.remove(key.name())),
                Kind::Component => drop(self.components.remove(key.name())),
            },
        }
    }
}
