//! Changes of the directory that are seen together.
//!
//! - T1: the shards of all keys that change are locked, in ascending order, before the first slot changes, and let go of after the
//!   last. So whoever has seen one of the changes sees all of them from then on.
//! - T2: the ledger takes locks of its own, so what dies is entered there when the shards are free again (D2).

use super::directory::{KeyDir, KeyHash};
use super::shard::Shard;
use super::slot::Slot;
use crate::sync::RwLockReadGuard;

/// Shards that are locked for writing; or none, and each is locked for the moment of its change.
pub(crate) struct Held<'a> {
    keydir: &'a KeyDir,
    /// By ascending index.
    shards: Vec<(usize, Shard<'a>)>,
    dead: Vec<Slot>,
    /// Dropped after the shards: whoever waits for it finds them free.
    _batch: Option<RwLockReadGuard<'a, ()>>,
}

impl<'a> Held<'a> {
    /// No shard: for a single change.
    #[inline]
    pub(super) const fn none(keydir: &'a KeyDir) -> Self {
        Self { keydir, shards: Vec::new(), dead: Vec::new(), _batch: None }
    }

    /// The shards of these keys.
    pub(super) fn all(keydir: &'a KeyDir, hashes: impl Iterator<Item = KeyHash>) -> Self {
        let mut indexes: Vec<usize> = hashes.map(KeyHash::shard).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let batch = keydir.batches.read();
        let shards = indexes.into_iter().map(|index| (index, keydir.lock_in_batch(index))).collect();
        Self { keydir, shards, dead: Vec::new(), _batch: Some(batch) }
    }

    /// Changes the shard of a key, which is one of those that are held.
    #[inline]
    pub(crate) fn change<T>(&mut self, hash: KeyHash, change: impl FnOnce(&mut Shard<'a>) -> T) -> T {
        if self.shards.is_empty() {
            return change(&mut self.keydir.lock(hash.shard()));
        }
        let found = self.shards.binary_search_by_key(&hash.shard(), |(index, _)| *index);
        match found.ok().and_then(|index| self.shards.get_mut(index)) {
            Some((_, shard)) => change(shard),
            None => change(&mut self.keydir.lock_in_batch(hash.shard())),
        }
    }

    /// The record of this slot is dead; `bury` enters it, now or when the shards are free.
    #[inline]
    pub(crate) fn bury(&mut self, slot: &Slot, bury: impl FnOnce(&Slot)) {
        if self.shards.is_empty() { bury(slot) } else { self.dead.push(*slot) }
    }

    /// Lets go of the shards. What has died and was not entered yet.
    pub(crate) fn release(self) -> Vec<Slot> {
        self.dead
    }
}
