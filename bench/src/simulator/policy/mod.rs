//! Who chooses the host.

mod atalho;
mod round_robin;

pub use atalho::Atalho;
pub use round_robin::RoundRobin;

use super::{host::RequestId, prompt::Prompt};

/// A request, as a router sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its number.
    pub id: RequestId,
    /// The session that it is a part of.
    pub session: usize,
    /// Its body.
    pub body: &'a [u8],
    /// The same as messages, for rules that are about text or tokens.
    pub prompt: &'a Prompt,
}

/// A host, as a router can know it: its own count of requests, and the metrics that the host shows, which are never
/// out of date here.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostView {
    /// Whether it is to get requests: it has been added, and is neither leaving nor known to be down.
    pub listed: bool,
    /// Requests that were sent there and have not ended.
    pub in_flight: u32,
    /// Requests in its batch.
    pub running: u32,
    /// Requests in its queue.
    pub waiting: u32,
    /// Share of its cache that running requests hold, 0 to 1.
    pub cache_usage: f64,
}

/// A chosen host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its number.
    pub host: usize,
    /// Whether it is another one than the rule had preferred if that had been less busy.
    pub overflow: bool,
}

/// A rule of choice. Hosts are numbered from 0 in the order in which they come.
pub trait Policy {
    /// What it is called in reports.
    fn name(&self) -> String;

    /// Chooses a host for a request; none of `failed`, which did not take it.
    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice>;

    /// A request has ended at a host, in whatever way.
    fn ended(&mut self, request: RequestId, host: usize);

    /// Which hosts are to get requests has changed.
    fn listed(&mut self, hosts: &[HostView]);
}
