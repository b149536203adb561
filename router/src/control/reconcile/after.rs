//! The state that steps lead to.

use super::step::Step;
use crate::control::{
    Component, ComponentSettled, Endpoint, Resources, Settled,
    resources::{Change, Key, Resource},
};

/// What exists once the steps are done.
pub(super) fn after(resources: &Resources, steps: &[Step]) -> Resources {
    let mut next = resources.clone();
    for step in steps {
        match step {
            Step::Endpoint(name, _, to) => {
                if let Some(endpoint) = next.endpoints.get(name) {
                    let to = Settled::clone(to);
                    let endpoint = Endpoint {
                        status: to.status,
                        failure: to.failure,
                        serving: to.serving,
                        pending: to.pending,
                        ..Endpoint::clone(endpoint)
                    };
                    next.apply(&Change::Put(Resource::Endpoint(endpoint.into())));
                }
            }
            Step::Component(name, _, to) => {
                if let Some(component) = next.components.get(name) {
                    let to = ComponentSettled::clone(to);
                    let copies = u32::try_from(to.places.len()).unwrap_or(u32::MAX);
                    let mut component = Component {
                        status: to.status,
                        failure: to.failure,
                        places: to.places,
                        ..Component::clone(component)
                    };
                    component.copies.current = copies;
                    next.apply(&Change::Put(Resource::Component(component.into())));
                }
            }
            Step::Gone(key, _) => next.apply(&Change::Delete(Key::clone(key))),
        }
    }
    next
}
