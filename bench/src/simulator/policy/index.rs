//! What a router believes to be in the caches: the blocks of prompts that it sent to each host.

use std::collections::{HashMap, VecDeque};

/// Per block, the hosts that were sent a prompt with it, and per host the least recently used blocks out first.
#[derive(Debug)]
pub(super) struct PrefixIndex {
    /// Blocks that are remembered of a host.
    capacity: usize,
    /// When each host was last sent a block; 0 for never.
    blocks: HashMap<u64, Vec<u64>>,
    /// Per host, blocks (time, hash) in the order of their use. An entry counts only if the block still says the same.
    used: Vec<VecDeque<(u64, u64)>>,
    /// Per host, blocks that are remembered.
    counts: Vec<usize>,
    clock: u64,
}

impl PrefixIndex {
    /// That remembers `capacity` blocks of each host.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, blocks: HashMap::new(), used: Vec::new(), counts: Vec::new(), clock: 0 }
    }

    /// How many of the leading blocks each of `hosts` hosts was sent.
    pub(super) fn depths(&self, hashes: &[u64], hosts: usize) -> Vec<usize> {
        let mut depths = vec![0; hosts];
        for (at, hash) in hashes.iter().enumerate() {
            let Some(times) = self.blocks.get(hash) else { break };
            let mut any = false;
            for (host, depth) in depths.iter_mut().enumerate() {
                if *depth == at && times.get(host).is_some_and(|time| *time > 0) {
                    *depth = at + 1;
                    any = true;
                }
            }
            if !any {
                break;
            }
        }
        depths
    }

    /// A prompt with these blocks goes to a host.
    pub(super) fn sent(&mut self, hashes: &[u64], host: usize) {
        if self.used.len() <= host {
            self.used.resize_with(host + 1, VecDeque::new);
            self.counts.resize(host + 1, 0);
        }
        // The end of a prompt is the least likely to be shared: it is the oldest.
        for hash in hashes.iter().rev() {
            self.clock += 1;
            let times = self.blocks.entry(*hash).or_default();
            if times.len() <= host {
                times.resize(host + 1, 0);
            }
            if times[host] == 0 {
                self.counts[host] += 1;
            }
            times[host] = self.clock;
            self.used[host].push_back((self.clock, *hash));
        }
        while self.counts[host] > self.capacity {
            let Some((time, hash)) = self.used[host].pop_front() else { break };
            if let Some(times) = self.blocks.get_mut(&hash)
                && times[host] == time
            {
                times[host] = 0;
                self.counts[host] -= 1;
                if times.iter().all(|time| *time == 0) {
                    self.blocks.remove(&hash);
                }
            }
        }
    }

    /// Blocks that are remembered of a host.
    pub(super) fn size(&self, host: usize) -> usize {
        self.counts.get(host).copied().unwrap_or(0)
    }

    /// A host is gone, and what it had.
    pub(super) fn forget(&mut self, host: usize) {
        if host >= self.used.len() {
            return;
        }
        for (_, hash) in std::mem::take(&mut self.used[host]) {
            if let Some(times) = self.blocks.get_mut(&hash) {
                times[host] = 0;
                if times.iter().all(|time| *time == 0) {
                    self.blocks.remove(&hash);
                }
            }
        }
        self.counts[host] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_blocks_are_forgotten_per_host() {
        let mut index = PrefixIndex::new(4);
        index.sent(&[1, 2, 3], 0);
        index.sent(&[1, 2, 9], 1);
        assert_eq!(index.depths(&[1, 2, 3, 4], 3), [3, 2, 0]);
        index.sent(&[7, 8], 0);
        // 3 is the oldest of host 0: the end of the first prompt.
        assert_eq!(index.depths(&[1, 2, 3], 2), [2, 2]);
        assert_eq!((index.size(0), index.size(1)), (4, 3));
        index.sent(&[1, 2], 0);
        index.sent(&[5], 0);
        assert_eq!((index.depths(&[1, 2], 1), index.depths(&[7, 8], 1)), (vec![2], vec![1]));
        index.forget(0);
        assert_eq!(index.depths(&[1, 2, 9], 2), [0, 3]);
        assert_eq!(index.size(0), 0);
    }
}
