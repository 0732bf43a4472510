//! Slots on their way into the directory: lists by shard, in no order, until all files were read.
//!
//! - G1: a thread sorts what it has read by shard before it hands it on. So the end of a list, which another processor may have
//!   written last, is fetched once for a run of slots and not for each.
//! - G2: shards that nothing is of are left alone: their memory need not be the process' own, and a small store opens in no time.
//! - G3: a list has the memory of the table that it becomes: there is no second copy of the directory, but for one shard and thread.
//!
//! Cost: 16 bytes for each record, dead ones included, and 9 MiB for each thread.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::cask::FileNumber;

use crate::keydir::{KeyDir, KeyHash, Slot};
use crate::sync::SHARD_COUNT;

/// Slots that a thread sorts at once: some 16 for each shard.
const BATCH_LEN: usize = 1 << 18;

/// Which shards have slots (G2).
pub(super) struct Gathered([AtomicU64; SHARD_COUNT / 64]);

impl Gathered {
    pub(super) const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; SHARD_COUNT / 64])
    }

    fn add(&self, shard: usize) {
        if let Some(word) = self.0.get(shard / 64) {
            word.fetch_or(1 << (shard % 64), Ordering::Relaxed);
        }
    }

    /// Those of the `index`th 64 shards, for who came after whoever added them; `None` behind the last.
    pub(super) fn of(&self, index: usize) -> Option<impl Iterator<Item = usize>> {
        let mut left = self.0.get(index)?.load(Ordering::Relaxed);
        Some(std::iter::from_fn(move || {
            let bit = left.checked_ilog2()?;
            left ^= 1 << bit;
            Some(index * 64 + bit as usize)
        }))
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        (0..).map_while(|index| self.of(index)).flatten()
    }
}

/// What one thread has read and not handed on yet.
pub(super) struct Batch<'a> {
    to: &'a KeyDir,
    gathered: &'a Gathered,
    shards: Vec<u16>,
    slots: Vec<Slot>,
    sorted: Vec<Slot>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(to: &'a KeyDir, gathered: &'a Gathered) -> Self {
        Self { to, gathered, shards: Vec::new(), slots: Vec::new(), sorted: Vec::new() }
    }

    #[inline]
    pub(super) fn add(&mut self, hash: KeyHash, slot: Slot) {
        // Of `SHARD_COUNT`, so it fits.
        self.shards.push(hash.shard() as u16);
        self.slots.push(slot);
        if self.slots.len() == BATCH_LEN {
            self.hand_on();
        }
    }

    /// By counting: how many there are of each shard says where each of them begins.
    pub(super) fn hand_on(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let mut ends = vec![0usize; SHARD_COUNT];
        for shard in &self.shards {
            if let Some(count) = ends.get_mut(usize::from(*shard)) {
                *count += 1;
            }
        }
        let mut begin = 0;
        for place in &mut ends {
            begin += std::mem::replace(place, begin);
        }
        self.sorted.clear();
        self.sorted.resize(self.slots.len(), Slot::EMPTY);
        for (shard, slot) in self.shards.iter().zip(&self.slots) {
            if let Some(end) = ends.get_mut(usize::from(*shard))
                && let Some(place) = self.sorted.get_mut(*end)
            {
                *place = *slot;
                *end += 1;
            }
        }
        let mut begin = 0;
        for (shard, end) in ends.into_iter().enumerate() {
            match self.sorted.get(begin..end) {
                Some(slots) if !slots.is_empty() => {
                    self.gathered.add(shard);
                    self.to.lock(shard).gather(slots);
                }
                _ => {}
            }
            begin = end;
        }
        self.shards.clear();
        self.slots.clear();
    }

    /// Takes back everything that points into a file, also from where it was handed on.
    pub(super) fn forget(&mut self, file: FileNumber) {
        self.hand_on();
        for shard in self.gathered.all() {
            let mut list = self.to.lock(shard);
            let mut slots = list.take_gathered();
            slots.retain(|slot| slot.place().file != file);
            list.gather(&slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keydir::Place;

    #[test]
    fn every_slot_arrives_in_its_shard_and_those_of_a_file_can_be_taken_back() {
        let keydir = KeyDir::new(7);
        let gathered = Gathered::none();
        let mut batch = Batch::new(&keydir, &gathered);
        let place = |n: u32| Place { file: FileNumber::new(1 + n % 3).unwrap(), offset: n };
        for n in 0..300_000u32 {
            let hash = keydir.hash(&n.to_le_bytes());
            batch.add(hash, Slot::new(hash.tag(), place(n), 30));
        }
        batch.forget(FileNumber::new(2).unwrap());
        let mut found = vec![false; 300_000];
        for shard in 0..SHARD_COUNT {
            for slot in keydir.lock(shard).take_gathered() {
                let n = slot.place().offset;
                let hash = keydir.hash(&n.to_le_bytes());
                assert_eq!((hash.shard(), hash.tag(), place(n)), (shard, slot.tag(), slot.place()));
                assert!(!std::mem::replace(&mut found[n as usize], true), "{n} twice");
            }
        }
        assert!((0..300_000).all(|n| found[n as usize] == (n % 3 != 1)));
    }
}
