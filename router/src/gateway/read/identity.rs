//! Who sent a request, and what it is called.

use std::net::IpAddr;

use crate::{
    config::{Config, NewTrace},
    http::{
        Ids, RequestHead, forwarded,
        ids::{REQUEST_ID, RequestId, TRACE_PARENT, TraceParent},
        rewrite::Origin,
    },
};

/// Who sent a request, and what it is called.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Identity {
    /// The other end of its connection.
    pub(in crate::gateway) origin: Origin,
    /// The client's own address, behind the proxies that are trusted to tell it.
    pub(in crate::gateway) client: IpAddr,
    pub(in crate::gateway) ids: Ids,
}

impl Identity {
    /// Of a request that came from `peer`, with this head at the start of `raw`.
    pub(super) fn of(
        config: &Config,
        rng: &mut fastrand::Rng,
        head: &RequestHead,
        raw: &[u8],
        peer: IpAddr,
    ) -> Self {
        let fields = head.headers(raw);
        let trusts = |address| config.proxies.trusts(address);
        // Of several, it is not known which one was meant.
        let id = fields.clone().only(REQUEST_ID).and_then(RequestId::parse);
        let trace = fields.clone().only(TRACE_PARENT).and_then(TraceParent::parse);
        let ids = Ids {
            request: id.unwrap_or_else(|| RequestId::random(rng)),
            trace: trace.or_else(|| match config.traceparent {
                NewTrace::Sampled => Some(TraceParent::random(rng, true)),
                NewTrace::Unsampled => Some(TraceParent::random(rng, false)),
                NewTrace::Off => None,
            }),
            continued: trace.is_some(),
        };
        Self {
            origin: Origin { peer, trusted: trusts(peer) },
            client: forwarded::client(fields, peer, trusts),
            ids,
        }
    }
}
