//! Who chooses the host.

mod atalho;
mod index;
mod kubeai;
mod llmd;
mod oracle;
mod preble;
mod ring;
mod round_robin;
mod smg;

pub use atalho::Atalho;
pub use kubeai::KubeAi;
pub use llmd::LlmD;
pub use oracle::Oracle;
pub use preble::Preble;
pub use round_robin::RoundRobin;
pub use smg::{CacheAware, PrefixHash};

use super::{Micros, host::RequestId, prompt::Prompt};

/// A request, as a router sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its number.
    pub id: RequestId,
    /// The session that it is a part of.
    pub session: usize,
    /// When it is asked.
    pub now: Micros,
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
    /// Prompt tokens that it has yet to work on, which no real host shows. For [`Oracle`] alone.
    pub backlog: u64,
    /// Leading blocks of the request's prompt that are in its cache, which no real host shows. For [`Oracle`] alone.
    pub cached_blocks: u32,
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

    /// Whether it sees what no router can see.
    fn is_oracle(&self) -> bool {
        false
    }

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

/// The able host with the fewest requests in flight of those that `eligible` admits, the first of equals by number.
fn least_busy(
    hosts: &[HostView],
    failed: &[usize],
    eligible: impl Fn(usize) -> bool,
) -> Option<usize> {
    (0..hosts.len())
        .filter(|host| hosts[*host].listed && !failed.contains(host) && eligible(*host))
        .min_by_key(|host| hosts[*host].in_flight)
}
