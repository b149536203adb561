//! llm-d's endpoint picker with its approximate prefix scorer, with the defaults of its documentation (version 0.8: the
//! prefix counts 3, the queue 2, the use of the cache 2).

use super::{Choice, HostView, Policy, Request, index::PrefixIndex};
use crate::simulator::host::RequestId;

/// Blocks of a prompt that are looked at.
const MAX_BLOCKS: usize = 256;
/// Blocks that are remembered of each host.
const LRU_BLOCKS: usize = 31_250;
const PREFIX_WEIGHT: f64 = 3.0;
const QUEUE_WEIGHT: f64 = 2.0;
const CACHE_WEIGHT: f64 = 2.0;

/// The rule: the best sum of scores, chance among equals.
#[derive(Debug)]
pub struct LlmD {
    index: PrefixIndex,
    rng: fastrand::Rng,
}

impl LlmD {
    /// With this seed for ties.
    pub fn new(seed: u64) -> Self {
        Self { index: PrefixIndex::new(LRU_BLOCKS), rng: fastrand::Rng::with_seed(seed) }
    }
}

impl Policy for LlmD {
    fn name(&self) -> String {
        "llm-d prefix scorer".into()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let mut hashes = request.prompt.hashes();
        hashes.truncate(MAX_BLOCKS);
        let depths = self.index.depths(&hashes, hosts.len());
        let able: Vec<usize> =
            (0..hosts.len()).filter(|host| hosts[*host].listed && !failed.contains(host)).collect();
        let queues = || able.iter().map(|host| hosts[*host].waiting);
        let (shortest, longest) = (queues().min()?, queues().max()?);
        let score = |host: usize| {
            let view = &hosts[host];
            let queue = match longest - shortest {
                0 => 1.0,
                range => f64::from(longest - view.waiting) / f64::from(range),
            };
            PREFIX_WEIGHT * depths[host] as f64 / hashes.len().max(1) as f64
                + QUEUE_WEIGHT * queue
                + CACHE_WEIGHT * (1.0 - view.cache_usage)
        };
        let best = able.iter().map(|host| score(*host)).max_by(f64::total_cmp)?;
        let equals: Vec<usize> =
            able.iter().copied().filter(|host| score(*host) >= best - 1e-9).collect();
        let host = *self.rng.choice(&equals)?;
        let deepest = able.iter().map(|host| depths[*host]).max()?;
        self.index.sent(&hashes, host);
        Some(Choice { host, overflow: depths[host] < deepest })
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, hosts: &[HostView]) {
        for (host, _) in hosts.iter().enumerate().filter(|(_, view)| !view.listed) {
            self.index.forget(host);
        }
    }
}
