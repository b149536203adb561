//! Preble's E2 (Srivatsa et al., arXiv 2407.00023): exploit the longest match where it is the larger part of the prompt,
//! else explore the host where the prompt costs least, with the work of the last minutes as load.

use std::collections::VecDeque;

use super::{Choice, HostView, Policy, Request, index::PrefixIndex};
use crate::simulator::{Micros, SECOND, host::RequestId};

/// Time over which a host's work counts as its load.
const WINDOW: Micros = 180 * SECOND;
/// A host with more than this multiple of the lightest host's load gives its next requests to that one.
const IMBALANCE: f64 = 2.0;
/// Blocks that are remembered of each host: as many as it has.
const BLOCKS: usize = 80_000;
/// The work of a generated token as a number of prompt tokens, by the times of the simulated hosts.
const DECODE_COST: f64 = 4.0;
/// Tokens of an answer when none is known.
const ANSWER: f64 = 200.0;

/// The rule.
#[derive(Debug)]
pub struct Preble {
    index: PrefixIndex,
    /// Per host, when it was given work, and how much, in prompt tokens.
    work: Vec<VecDeque<(Micros, f64)>>,
    load: Vec<f64>,
}

impl Default for Preble {
    fn default() -> Self {
        Self { index: PrefixIndex::new(BLOCKS), work: Vec::new(), load: Vec::new() }
    }
}

impl Policy for Preble {
    fn name(&self) -> String {
        "Preble E2".into()
    }

    fn choose(
        &mut self,
        request: &Request<'_>,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        self.work.resize_with(hosts.len(), VecDeque::new);
        self.load.resize(hosts.len(), 0.0);
        for (work, load) in self.work.iter_mut().zip(&mut self.load) {
            while let Some((at, cost)) = work.front()
                && at + WINDOW < request.now
            {
                *load -= cost;
                work.pop_front();
            }
        }
        let hashes = request.prompt.hashes();
        let depths = self.index.depths(&hashes, hosts.len());
        let able: Vec<usize> =
            (0..hosts.len()).filter(|host| hosts[*host].listed && !failed.contains(host)).collect();
        let block = f64::from(request.prompt.block_tokens());
        let missing = |host: usize| (hashes.len() - depths[host]) as f64 * block;
        // What has to go to make room is the least recently used, whose worth is counted as its size.
        let evicted = |host: usize| {
            let free = BLOCKS - self.index.size(host).min(BLOCKS);
            ((hashes.len() - depths[host]).saturating_sub(free)) as f64 * block
        };
        let cost = |host: usize| self.load[host] + missing(host) + evicted(host);
        let by = |one: &f64, other: &f64| one.total_cmp(other);
        let lightest = able.iter().copied().min_by(|a, b| by(&self.load[*a], &self.load[*b]))?;
        let deepest = able.iter().map(|host| depths[*host]).max()?;
        let (mut host, mut overflow);
        if deepest * 2 > hashes.len() {
            host = able
                .iter()
                .copied()
                .filter(|host| depths[*host] == deepest)
                .min_by(|a, b| by(&self.load[*a], &self.load[*b]))?;
            overflow = self.load[host] > IMBALANCE * self.load[lightest] + block * 512.0;
            if overflow {
                host = lightest;
            }
        } else {
            host = able.iter().copied().min_by(|a, b| by(&cost(*a), &cost(*b)))?;
            overflow = false;
        }
        overflow &= depths[host] < deepest;
        let work = missing(host) + DECODE_COST * ANSWER;
        self.work[host].push_back((request.now, work));
        self.load[host] += work;
        self.index.sent(&hashes, host);
        Some(Choice { host, overflow })
    }

    fn ended(&mut self, _request: RequestId, _host: usize) {}

    fn listed(&mut self, hosts: &[HostView]) {
        for (host, _) in hosts.iter().enumerate().filter(|(_, view)| !view.listed) {
            self.index.forget(host);
        }
    }
}
