//! What is decided about a request that an instance answers.

use std::time::Duration;

use bytes::Bytes;
use router_ebpf::framing::Framing;

use crate::{
    fleet::{Endpoint, Variant},
    prefix::{Api, PrefixKey},
};

/// What is decided about a request before an instance is chosen.
pub(in crate::gateway) struct Plan<'f> {
    pub(in crate::gateway) api: Api,
    pub(in crate::gateway) endpoint: &'f Endpoint,
    pub(in crate::gateway) variant: &'f Variant,
    /// `None` where no prefix decides: another strategy, no choice to make, no prompt.
    pub(in crate::gateway) key: Option<PrefixKey>,
    /// Whether there is no key because the body could not be decoded.
    pub(in crate::gateway) undecodable: bool,
    /// The stored response that the request names: it is for the instance that keeps it.
    pub(in crate::gateway) stored: Option<String>,
    /// The target to send instead of the client's.
    pub(in crate::gateway) target: Option<Vec<u8>>,
    /// The body as far as it was read, framing included.
    pub(in crate::gateway) body: Bytes,
    /// Where the body stands behind that.
    pub(in crate::gateway) framing: Framing,
    /// Time spent on deciding, without waiting for the client.
    pub(in crate::gateway) spent: Duration,
}
