//! The KV cache: blocks of tokens under a chained hash, least recently used out first.
//!
//! A block's hash covers all tokens before it, the model and the cache salt, so that a match of
//! block n implies a match of all blocks before it, and different tenants share nothing.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

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
    /// Bytes of the tokens of the block that is not full yet.
    open: Vec<u8>,
    /// Bytes of a full block.
    full: usize,
}

impl BlockHasher {
    /// At the start of a prompt.
    pub fn new(model: &str, salt: &str, block_tokens: u32) -> Self {
        let mut parts = Vec::with_capacity(model.len() + salt.len() + 8);
        parts.extend_from_slice(&(model.len() as u64).to_le_bytes());
        parts.extend_from_slice(model.as_bytes());
        parts.extend_from_slice(salt.as_bytes());
        let full = block_tokens as usize * size_of::<u32>();
        Self { chain: xxh3_64(&parts), open: Vec::new(), full }
    }

    /// Takes the next tokens, and appends the hashes of the blocks that they fill.
    pub fn extend(&mut self, tokens: &[u32], hashes: &mut Vec<u64>) {
        for token in tokens {
            self.open.extend_from_slice(&token.to_le_bytes());
            if self.open.len() == self.full {
                self.chain = xxh3_64_with_seed(&self.open, self.chain);
                self.open.clear();
                hashes.push(self.chain);
            }
        }
    }
}

/// A map by hashes, which need no hashing.
type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Ready>>;

/// Takes a hash for its own hash.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, bytes: &[u8]) {
        // Not called for `u64`.
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Block {
    /// Running requests that use the block; it cannot be evicted while there are any.
    users: u32,
    /// When it lost its last user; meaningless while it has some.
    idle_since: u64,
}

/// Of a block that was not idle yet.
const NEVER: u64 = 0;

/// Entries of the idle list that may be out of date, beside as many as are not.
const MIN_STALE: usize = 1_024;

/// Blocks by hash, and how many are taken by running requests without a hash yet.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    blocks: ByHash<Block>,
    /// Blocks (time, hash) in the order in which they lost their last user. An entry counts only if its block still
    /// says the same.
    idle: VecDeque<(u64, u64)>,
    /// Blocks without users.
    idle_blocks: usize,
    private: usize,
    clock: u64,
    evicted: u64,
}

impl Cache {
    /// An empty cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            blocks: HashMap::default(),
            idle: VecDeque::new(),
            idle_blocks: 0,
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
        self.blocks.len() - self.idle_blocks + self.private
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
            let oldest = self.idle.pop_front().expect("enough idle blocks, as counted above");
            if self.is_idle(oldest) {
                self.blocks.remove(&oldest.1);
                self.idle_blocks -= 1;
                self.evicted += 1;
            }
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
                self.idle.push_back((self.clock, *hash));
                self.idle_blocks += 1;
            }
        }
        if self.idle.len() > 2 * self.idle_blocks + MIN_STALE {
            let blocks = &self.blocks;
            self.idle.retain(|entry| is_idle(blocks, *entry));
        }
    }

    /// Forgets every block without users.
    pub fn clear(&mut self) {
        self.idle.clear();
        self.idle_blocks = 0;
        self.blocks.retain(|_, block| block.users > 0);
    }

    fn pin(&mut self, hash: u64) {
        let block = self.blocks.get_mut(&hash).expect("the caller found the block");
        if block.users == 0 && block.idle_since != NEVER {
            self.idle_blocks -= 1;
        }
        block.users += 1;
    }

    fn is_idle(&self, entry: (u64, u64)) -> bool {
        is_idle(&self.blocks, entry)
    }
}

/// Whether an entry of the idle list is the newest of a block without users.
fn is_idle(blocks: &ByHash<Block>, (since, hash): (u64, u64)) -> bool {
    blocks.get(&hash).is_some_and(|block| block.users == 0 && block.idle_since == since)
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
