//! KubeAI's `PrefixHash`: a ring with bounded load over the beginning of the prompt, with the defaults of its
//! documentation (docs/concepts/load-balancing in its repository, read 2026-12).

use super::{Choice, HostView, Policy, Request, ring::Ring};
use crate::simulator::{host::RequestId, prompt::Role};

/// Characters that are hashed.
const PREFIX_CHARACTERS: usize = 100;
/// Points of a host on the ring.
const REPLICATION: u32 = 256;
/// Load of a host as a multiple of the mean.
const MEAN_LOAD: f64 = 1.25;

/// The rule. Of a chat it looks at the first message of the user.
#[derive(Debug, Default)]
pub struct KubeAi {
    ring: Ring,
}

impl Policy for KubeAi {
    fn name(&self) -> String {
        "KubeAI PrefixHash".into()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let messages = request.prompt.messages();
        let first = messages.iter().find(|(role, _)| *role == Role::User);
        let text = first.map_or("", |(_, text)| &*text.plain);
        let end = text.char_indices().nth(PREFIX_CHARACTERS).map_or(text.len(), |(at, _)| at);
        self.ring.choose(&text.as_bytes()[..end], MEAN_LOAD, hosts, failed)
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, hosts: &[HostView]) {
        self.ring = Ring::new(hosts, REPLICATION);
    }
}
