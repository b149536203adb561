//! The KV cache: blocks of tokens under a chained hash, least recently used out first.
//!
//! A block's hash covers all tokens before it, the model and the cache salt, so that a match of
//! block n implies a match of all blocks before it, and different tenants share nothing.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Hashes of the full blocks of `tokens`, each chained to the one before.
pub fn block_hashes(model: &str, salt: &str, tokens: &[u32], block_tokens: u32) -> Vec<u64> {
    let mut hashes = Vec::with_capacity(tokens.len() / block_tokens as usize);
    BlockHasher::new(model, salt, block_tokens).extend(tokens, &mut hashes);
    hashes
}

/// Hashes the blocks of a prompt that comes in pieces.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    /// Of all full blocks so far, the model and the salt.
    chain: u64,
    /// Tokens of the block that is not full yet.
    open: Vec<u32>,
    block_tokens: usize,
}

impl BlockHasher {
    /// At the start of a prompt.
    pub fn new(model: &str, salt: &str, block_tokens: u32) -> Self {
        let mut parts = Vec::with_capacity(model.len() + salt.len() + 8);
        parts.extend_from_slice(&(model.len() as u64).to_le_bytes());
        parts.extend_from_slice(model.as_bytes());
        parts.extend_from_slice(salt.as_bytes());
        Self { chain: xxh3_64(&parts), open: Vec::new(), block_tokens: block_tokens as usize }
    }

    /// Takes the next tokens, and appends the hashes of the blocks that they fill.
    pub fn extend(&mut self, mut tokens: &[u32], hashes: &mut Vec<u64>) {
        while !tokens.is_empty() {
            let room = self.block_tokens - self.open.len();
            let (now, later) = tokens.split_at(room.min(tokens.len()));
            self.open.extend_from_slice(now);
            tokens = later;
            if self.open.len() == self.block_tokens {
                let mut hasher = Xxh3::with_seed(self.chain);
                for token in &self.open {
                    hasher.update(&token.to_le_bytes());
                }
                self.chain = hasher.digest();
                self.open.clear();
                hashes.push(self.chain);
            }
        }
    }
}

#[derive(Debug)]
struct Block {
    /// Running requests that use the block; it cannot be evicted while there are any.
    users: u32,
    /// Key in the idle list; meaningless while the block has users.
    idle_since: u64,
}

/// Of a block that was not idle yet.
const NEVER: u64 = 0;

/// Blocks by hash, and how many are taken by running requests without a hash yet.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    blocks: HashMap<u64, Block>,
    /// Blocks without users, by the time they lost the last one.
    idle: BTreeMap<u64, u64>,
    private: usize,
    clock: u64,
    evicted: u64,
}

impl Cache {
    /// An empty cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            blocks: HashMap::new(),
            idle: BTreeMap::new(),
            private: 0,
            clock: 0,
            evicted: 0,
        }
    }

    /// Blocks that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks that running requests hold.
    pub fn pinned(&self) -> usize {
        self.blocks.len() - self.idle.len() + self.private
    }

    /// Blocks that can be found by later requests.
    pub fn cached(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks thrown out so far to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many of the leading `hashes` are in the cache.
    pub fn matching(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.blocks.contains_key(hash)).count()
    }

    /// Pins the cached blocks `matched` and takes `private` fresh ones, evicting idle blocks as
    /// needed. Changes nothing and returns false when they do not fit.
    pub fn reserve(&mut self, matched: &[u64], private: usize) -> bool {
        let idle_matched = matched.iter().filter(|hash| self.blocks[hash].users == 0).count();
        if self.pinned() + idle_matched + private > self.capacity {
            return false;
        }
        for hash in matched {
            self.pin(*hash);
        }
        while self.blocks.len() + self.private + private > self.capacity {
            let (_, hash) = self.idle.pop_first().expect("enough idle blocks, as counted above");
            self.blocks.remove(&hash);
            self.evicted += 1;
        }
        self.private += private;
        true
    }

    /// A private block of a running request is complete and can be found by others from now on.
    /// The request stays its user.
    pub fn publish(&mut self, hash: u64) {
        debug_assert!(self.private > 0);
        self.private -= 1;
        // If another request computed the same block meanwhile, it is shared.
        self.blocks.entry(hash).or_insert(Block { users: 0, idle_since: NEVER });
        self.pin(hash);
    }

    /// A request ends: its published blocks lose a user, its private ones are free.
    pub fn release(&mut self, published: &[u64], private: usize) {
        debug_assert!(self.private >= private);
        self.private -= private;
        // The end of a prompt is the least likely to be shared: it becomes idle first.
        for hash in published.iter().rev() {
            let block = self.blocks.get_mut(hash).expect("a pinned block is never evicted");
            block.users -= 1;
            if block.users == 0 {
                self.clock += 1;
                block.idle_since = self.clock;
                self.idle.insert(self.clock, *hash);
            }
        }
    }

    /// Forgets every block without users.
    pub fn clear(&mut self) {
        for hash in std::mem::take(&mut self.idle).into_values() {
            self.blocks.remove(&hash);
        }
    }

    fn pin(&mut self, hash: u64) {
        let block = self.blocks.get_mut(&hash).expect("the caller found the block");
        if block.users == 0 {
            self.idle.remove(&block.idle_since);
        }
        block.users += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hash_covers_everything_before_it() {
        let tokens: Vec<u32> = (0..64).collect();
        let base = block_hashes("m", "", &tokens, 16);
        assert_eq!(base.len(), 4);
        let mut other = tokens.clone();
        other[20] = 99;
        let changed = block_hashes("m", "", &other, 16);
        assert_eq!(base[0], changed[0]);
        assert!((1..4).all(|n| base[n] != changed[n]));
        assert_ne!(base[0], block_hashes("m2", "", &tokens, 16)[0]);
        assert_ne!(base[0], block_hashes("m", "tenant", &tokens, 16)[0]);
        assert_ne!(
            block_hashes("ab", "c", &tokens, 16)[0],
            block_hashes("a", "bc", &tokens, 16)[0]
        );
        assert_eq!(block_hashes("m", "", &tokens[..31], 16).len(), 1);
    }

    #[test]
    fn pieces_hash_as_the_whole() {
        let tokens: Vec<u32> = (0..1000).collect();
        let whole = block_hashes("m", "salt", &tokens, 16);
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20 {
            let (mut hasher, mut hashes) = (BlockHasher::new("m", "salt", 16), Vec::new());
            let mut rest = &tokens[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rng.usize(1..40).min(rest.len()));
                hasher.extend(piece, &mut hashes);
                rest = after;
            }
            assert_eq!(hashes, whole);
        }
    }

    fn fill(cache: &mut Cache, hashes: &[u64]) {
        assert!(cache.reserve(&[], hashes.len()));
        for hash in hashes {
            cache.publish(*hash);
        }
        cache.release(hashes, 0);
    }

    #[test]
    fn the_least_recently_used_tail_goes_first() {
        let mut cache = Cache::new(4);
        fill(&mut cache, &[1, 2]);
        fill(&mut cache, &[3, 4]);
        // Touch 1 and 2, so that 4, then 3 are the oldest.
        assert!(cache.reserve(&[1, 2], 0));
        cache.release(&[1, 2], 0);
        fill(&mut cache, &[5]);
        assert_eq!(cache.matching(&[3, 4]), 1);
        assert_eq!(cache.matching(&[1, 2]), 2);
        assert_eq!(cache.evicted(), 1);
    }

    #[test]
    fn pinned_blocks_stay() {
        let mut cache = Cache::new(3);
        assert!(cache.reserve(&[], 2));
        cache.publish(1);
        assert_eq!(cache.pinned(), 2);
        assert!(!cache.reserve(&[], 2));
        assert!(cache.reserve(&[1], 1));
        assert_eq!(cache.pinned(), 3);
        cache.release(&[1], 1);
        assert_eq!(cache.matching(&[1]), 1);
        cache.release(&[1], 1);
        assert_eq!(cache.pinned(), 0);
        cache.clear();
        assert_eq!(cache.cached(), 0);
    }

    proptest! {
        #[test]
        fn never_more_blocks_than_fit(
            requests in proptest::collection::vec((0u64..4, 1usize..12, 0usize..4), 1..60)
        ) {
            let mut cache = Cache::new(16);
            let mut running: Vec<(Vec<u64>, usize)> = Vec::new();
            for (family, blocks, finished) in requests {
                let hashes: Vec<u64> = (0..blocks as u64).map(|n| family * 100 + n).collect();
                let matched = cache.matching(&hashes);
                if cache.reserve(&hashes[..matched], blocks - matched + 1) {
                    for hash in &hashes[matched..] {
                        cache.publish(*hash);
                    }
                    running.push((hashes, 1));
                }
                prop_assert!(cache.cached() + running.len() <= 16);
                prop_assert!(cache.pinned() <= 16);
                if finished < running.len() {
                    let (hashes, private) = running.swap_remove(finished);
                    cache.release(&hashes, private);
                }
            }
            for (hashes, private) in running {
                cache.release(&hashes, private);
            }
            prop_assert_eq!(cache.pinned(), 0);
        }
    }
}
