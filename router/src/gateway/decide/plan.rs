//! What is decided about a request that an instance answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use router_ebpf::framing::Framing;

use crate::{
    api::Call,
    fleet::{Endpoint, Instance, Rule, Serves, Variant},
    prefix::{Api, PrefixKey, Shortfall},
};

/// What is decided about a request before an instance is chosen.
pub(in crate::gateway) struct Plan<'f> {
    pub(in crate::gateway) api: Api,
    /// The call of SageMaker's runtime API that it is.
    pub(in crate::gateway) call: Option<Call>,
    pub(in crate::gateway) endpoint: &'f Endpoint,
    pub(in crate::gateway) variant: &'f Variant,
    /// Whether the model chose the endpoint, so that a stored response may be at any.
    pub(in crate::gateway) any_endpoint: bool,
    /// `None` where no prefix decides: another strategy, no choice to make, no prompt.
    pub(in crate::gateway) key: Option<PrefixKey>,
    /// Whether there is no key because the body could not be decoded.
    pub(in crate::gateway) undecodable: bool,
    /// Why the body told less than it might have.
    pub(in crate::gateway) shortfall: Option<Shortfall>,
    /// Whether it is of a session, or asks for one.
    pub(in crate::gateway) session: bool,
    /// The instance that keeps its session.
    pub(in crate::gateway) keeper: Option<Arc<Instance>>,
    /// The stored response that the request names: it is for the instance that keeps it.
    pub(in crate::gateway) stored: Option<String>,
    /// The model that instances have to list; empty where that makes no difference.
    pub(in crate::gateway) model: Vec<u8>,
    /// Which instances serve it.
    pub(in crate::gateway) rule: Rule,
    /// The inference component that it is for.
    pub(in crate::gateway) component: Option<String>,
    /// The target to send instead of the client's.
    pub(in crate::gateway) target: Option<Vec<u8>>,
    /// The body as far as it was read, framing included.
    pub(in crate::gateway) body: Bytes,
    /// Where the body stands behind that.
    pub(in crate::gateway) framing: Framing,
    /// Time spent on deciding, without waiting for the client.
    pub(in crate::gateway) spent: Duration,
}

impl Plan<'_> {
    /// Which instances may serve it.
    pub(in crate::gateway) fn serves(&self) -> Serves<'_> {
        Serves { model: &self.model, rule: self.rule }
    }
}
