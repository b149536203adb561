//! What has become of what was asked for, told by whoever gives hosts to variants and components.

use super::{
    ComponentStatus, Endpoint, EndpointStatus, StoreError,
    resources::{
        Change, Component, CopyPlace, Deployment, Key, Kind, Pending, Resource, Resources,
    },
};

/// The new state of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Where it is on its way.
    pub status: EndpointStatus,
    /// Why it failed, up to 1024 characters.
    pub failure: Option<String>,
    /// What serves.
    pub serving: Option<Deployment>,
    /// What is to serve instead.
    pub pending: Option<Pending>,
}

/// The new state of an inference component.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentSettled {
    /// Where it is on its way.
    pub status: ComponentStatus,
    /// Why it failed, up to 1024 characters.
    pub failure: Option<String>,
    /// Where its copies are.
    pub places: Vec<CopyPlace>,
}

/// Why something was not settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Something else was asked for meanwhile, or the resource is gone: work it out anew.
    #[error("{0} has changed since")]
    Superseded(Key),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Settled {
    /// The state that an endpoint is in.
    pub fn of(endpoint: &Endpoint) -> Self {
        Self {
            status: endpoint.status,
            failure: endpoint.failure.clone(),
            serving: endpoint.serving.clone(),
            pending: endpoint.pending.clone(),
        }
    }
}

impl ComponentSettled {
    /// The state that a component is in.
    pub fn of(component: &Component) -> Self {
        Self {
            status: component.status,
            failure: component.failure.clone(),
            places: component.places.clone(),
        }
    }
}

/// The endpoint with its new state; nothing when that is the one that it has.
pub(super) fn endpoint(
    resources: &Resources,
    name: &str,
    generation: u64,
    settled: &Settled,
    now: u64,
) -> Result<Option<Change>, SettleError> {
    let was = resources.endpoints.get(name).filter(|endpoint| endpoint.generation == generation);
    let was = was.ok_or_else(|| SettleError::Superseded(Key::endpoint(name)))?;
    if Settled::of(was) == *settled {
        return Ok(None);
    }
    let Settled { status, failure, serving, pending } = settled.clone();
    let modified = if status == was.status { was.modified } else { now };
    let next = Endpoint { status, failure, serving, pending, modified, ..Endpoint::clone(was) };
    Ok(Some(Change::Put(Resource::Endpoint(next.into()))))
}

/// The component with its new state; nothing when that is the one that it has.
pub(super) fn component(
    resources: &Resources,
    name: &str,
    generation: u64,
    settled: &ComponentSettled,
    now: u64,
) -> Result<Option<Change>, SettleError> {
    let was = resources.components.get(name).filter(|component| component.generation == generation);
    let was = was.ok_or_else(|| SettleError::Superseded(Key::component(name)))?;
    if ComponentSettled::of(was) == *settled {
        return Ok(None);
    }
    let ComponentSettled { status, failure, places } = settled.clone();
    let modified = if status == was.status { was.modified } else { now };
    let copies = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let mut next = Component { status, failure, places, modified, ..Component::clone(was) };
    next.copies.current = copies;
    Ok(Some(Change::Put(Resource::Component(next.into()))))
}

/// The end of something that is being deleted.
pub(super) fn gone(
    resources: &Resources,
    key: &Key,
    generation: u64,
) -> Result<Option<Change>, SettleError> {
    let deleting = match key.kind() {
        Kind::Endpoint => resources
            .endpoints
            .get(key.name())
            .is_some_and(|it| it.generation == generation && it.status == EndpointStatus::Deleting),
        Kind::Component => resources.components.get(key.name()).is_some_and(|it| {
            it.generation == generation && it.status == ComponentStatus::Deleting
        }),
        Kind::Model | Kind::Config => false,
    };
    if deleting {
        Ok(Some(Change::Delete(key.clone())))
    } else {
        Err(SettleError::Superseded(key.clone()))
    }
}
