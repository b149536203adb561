//! A rule that sees into the hosts: what remains to be gained by knowing more.

use super::{Choice, HostView, Policy, Request};
use crate::{engine::params::Params, simulator::host::RequestId};

/// Takes the host where the prompt will be worked off soonest, by what is truly in each cache and in each queue.
///
/// It does not look ahead: which host will be asked for what is not known to it either. So it is a bound in practice,
/// not in theory.
#[derive(Debug)]
pub struct Oracle {
    params: Params,
}

impl Oracle {
    /// Of hosts of this kind.
    pub fn new(params: &Params) -> Self {
        Self { params: params.clone() }
    }
}

impl Policy for Oracle {
    fn name(&self) -> String {
        "oracle".into()
    }

    fn is_oracle(&self) -> bool {
        true
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let tokens = u64::from(request.prompt.tokens());
        let wait = |host: usize| {
            let view = &hosts[host];
            let cached = u64::from(view.cached_blocks) * u64::from(self.params.block_tokens);
            let missing = tokens.saturating_sub(cached);
            // What a request costs the host beside its prompt: a place in all the steps of its answer.
            let batch = u64::from(view.in_flight) * self.params.sequence_us;
            (view.backlog + missing) * self.params.prefill_token_us + batch
        };
        let host = (0..hosts.len())
            .filter(|host| hosts[*host].listed && !failed.contains(host))
            .min_by_key(|host| (wait(*host), hosts[*host].in_flight))?;
        Some(Choice { host, overflow: false })
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, _hosts: &[HostView]) {}
}
