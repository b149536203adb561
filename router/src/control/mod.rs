//! The control plane: models, endpoint configurations, endpoints and inference components that are made
//! and changed while the gateway runs, by the operations of SageMaker's control API.
//!
//! [`store`] keeps them, [`resources`] says what they are, and [`operations`] reads and changes them. An
//! operation is a pure function of what exists and of its input; [`Control::call`] makes its changes
//! durable before it returns. Nothing here talks to an instance: what a change means for traffic is worked
//! out by whoever [watches](Control::watch), and told through [`Control::settle`].

mod call;
mod identity;
pub mod operations;
pub mod reconcile;
pub mod resources;
pub mod server;
mod settle;
pub mod store;
#[cfg(test)]
mod tests;

pub use call::{Control, OpenError};
pub use identity::Identity;
pub use resources::{
    Component, ComponentStatus, Deployment, Endpoint, EndpointConfig, EndpointStatus, Model,
    Pending, Placed, Resources, Rollout, VariantSpec, Wanted,
};
pub use settle::{ComponentSettled, SettleError, Settled};
pub use store::StoreError;
