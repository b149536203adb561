//! One host after another.

use super::{Choice, HostView, Policy, Request};
use crate::simulator::host::RequestId;

/// Takes the listed hosts in turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    fn name(&self) -> String {
        "round robin".into()
    }

    fn choose(
        &mut self,
        _request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let able = |host: &usize| hosts[*host].listed && !failed.contains(host);
        let host = (0..hosts.len()).map(|step| (self.next + step) % hosts.len()).find(able)?;
        self.next = host + 1;
        Some(Choice { host, overflow: false })
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, _hosts: &[HostView]) {}
}
