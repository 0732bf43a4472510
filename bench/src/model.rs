//! What must be in the store: for each key its generation, and whether it is there.
//!
//! - M1: within a phase, a key is written by one thread only; phases are separated by joins. So relaxed order is enough.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Four bytes for each key: `generation << 1 | is_there`.
#[derive(Debug)]
pub struct Model {
    states: Vec<AtomicU32>,
}

impl Model {
    /// None of `count` keys is there.
    pub fn new(count: u64) -> Self {
        Self { states: (0..count).map(|_| AtomicU32::new(0)).collect() }
    }

    fn state(&self, index: u64) -> u32 {
        usize::try_from(index).ok().and_then(|index| self.states.get(index)).map_or(0, |state| state.load(Relaxed))
    }

    fn set(&self, index: u64, state: u32) {
        if let Some(place) = usize::try_from(index).ok().and_then(|index| self.states.get(index)) {
            place.store(state, Relaxed);
        }
    }

    /// The generation of the value that the key must have; `None` if it must not be there.
    pub fn expected(&self, index: u64) -> Option<u32> {
        let state = self.state(index);
        (state & 1 == 1).then_some(state >> 1)
    }

    /// The generation that the next put of the key has. It must be written for the model to be right.
    pub fn put(&self, index: u64) -> u32 {
        let generation = (self.state(index) >> 1) + 1;
        self.set(index, generation << 1 | 1);
        generation
    }

    /// The key is about to be deleted.
    pub fn delete(&self, index: u64) {
        self.set(index, self.state(index) & !1);
    }

    /// How many keys, there or not.
    pub fn count(&self) -> u64 {
        self.states.len() as u64
    }

    /// The indices of the keys that are there.
    pub fn live(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count()).filter(|index| self.expected(*index).is_some())
    }
}
