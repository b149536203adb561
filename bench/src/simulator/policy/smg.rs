//! SMG (the router that began as SGLang's): `cache_aware` and `prefix_hash`, with the defaults of its documentation
//! (docs/concepts/routing in its repository, read 2026-12).

use super::{Choice, HostView, Policy, Request, index::PrefixIndex, least_busy, ring::Ring};
use crate::simulator::host::RequestId;

/// Share of a prompt that must match for affinity.
const CACHE_THRESHOLD: f64 = 0.3;
/// Requests by which the busiest host may exceed the least busy one...
const BALANCE_ABS: u32 = 64;
/// ...and the multiple, beyond both of which affinity is off for all.
const BALANCE_REL: f64 = 1.5;
/// Its tree holds 2^26 characters per host, a million blocks of 16 tokens of four characters.
const TREE_BLOCKS: usize = 1 << 20;

/// A tree of the prompts that were sent to each host; the host with the longest match if that is long enough, else the
/// one with the fewest requests.
///
/// Its tree is of characters, this one of blocks of 64 of them. Of several hosts with an equally long match it takes any,
/// as this does.
#[derive(Debug)]
pub struct CacheAware {
    index: PrefixIndex,
}

impl Default for CacheAware {
    fn default() -> Self {
        Self { index: PrefixIndex::new(TREE_BLOCKS) }
    }
}

impl Policy for CacheAware {
    fn name(&self) -> String {
        "SMG cache_aware".into()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let least = least_busy(hosts, failed, |_| true)?;
        let able = |host: &usize| hosts[*host].listed && !failed.contains(host);
        let most = (0..hosts.len()).filter(able).map(|host| hosts[host].in_flight).max()?;
        let fewest = hosts[least].in_flight;
        let hashes = request.prompt.hashes();
        let unbalanced =
            most - fewest > BALANCE_ABS && f64::from(most) > f64::from(fewest) * BALANCE_REL;
        let mut host = least;
        if !unbalanced {
            let depths = self.index.depths(&hashes, hosts.len());
            let longest = (0..hosts.len()).filter(able).max_by_key(|host| depths[*host])?;
            if depths[longest] as f64 > CACHE_THRESHOLD * hashes.len().max(1) as f64 {
                host = longest;
            }
        }
        self.index.sent(&hashes, host);
        Some(Choice { host, overflow: unbalanced })
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, hosts: &[HostView]) {
        for (host, _) in hosts.iter().enumerate().filter(|(_, view)| !view.listed) {
            self.index.forget(host);
        }
    }
}

/// Tokens that are hashed.
const PREFIX_TOKENS: usize = 256;
/// Virtual nodes of a host.
const NODES: u32 = 160;
/// How much more than the average a host may have.
const LOAD_FACTOR: f64 = 1.25;

/// A ring by the first tokens, with bounded load.
#[derive(Debug, Default)]
pub struct PrefixHash {
    ring: Ring,
}

impl Policy for PrefixHash {
    fn name(&self) -> String {
        "SMG prefix_hash".into()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let text = request.prompt.text(PREFIX_TOKENS * crate::engine::tokens::TOKEN_CHARS);
        self.ring.choose(text.as_bytes(), LOAD_FACTOR, hosts, failed)
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, hosts: &[HostView]) {
        self.ring = Ring::new(hosts, NODES);
    }
}
