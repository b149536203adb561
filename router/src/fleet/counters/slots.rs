//! Which slots of a table are free, and which are kept for somebody.

use std::collections::{HashMap, VecDeque};

/// The slots of a table that no counter has.
pub(super) struct Slots {
    /// The longest unused first.
    free: VecDeque<u32>,
    /// Slots that another process has for a place. No other place may have one of them: what is in flight there
    /// would count for it.
    kept: HashMap<String, u32>,
    /// The places of all slots that were ever kept: one that is given back is kept again.
    inherited: HashMap<u32, String>,
}

impl Slots {
    pub(super) fn new(len: u32) -> Self {
        Self { free: (0..len).collect(), kept: HashMap::new(), inherited: HashMap::new() }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    pub(super) fn take_for(&mut self, place: &str) -> Option<u32> {
        self.kept.remove(place).or_else(|| self.take())
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        match self.inherited.get(&slot) {
            Some(place) => drop(self.kept.insert(place.clone(), slot)),
            None => self.free.push_back(slot),
        }
    }

    /// Slots that no counter has.
    pub(super) fn free(&self) -> usize {
        self.free.len() + self.kept.len()
    }

    /// Keeps each slot for its place. One that is taken, or out of range, or named twice, is nobody's.
    pub(super) fn keep_for(&mut self, places: impl IntoIterator<Item = (String, u32)>) {
        let free: std::collections::HashSet<u32> = self.free.iter().copied().collect();
        for (place, slot) in places {
            if free.contains(&slot)
                && !self.inherited.contains_key(&slot)
                && !self.kept.contains_key(&place)
            {
                self.inherited.insert(slot, place.clone());
                self.kept.insert(place, slot);
            }
        }
        self.free.retain(|slot| !self.inherited.contains_key(slot));
    }

    /// What is kept and not taken.
    pub(super) fn kept(&self) -> Vec<(String, u32)> {
        self.kept.iter().map(|(place, slot)| (place.clone(), *slot)).collect()
    }

    pub(super) fn keep_none(&mut self) {
        self.inherited.clear();
        self.free.extend(self.kept.drain().map(|(_, slot)| slot));
    }
}
