//! The directory itself: looking without locks, and the locks of those who change.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::Arena;
use super::held::Held;
use super::shard::Shard;
use super::slot::{Place, Slot};
use super::table::{HEAD_WORDS, Table};
use crate::sync::{RwLock, SHARD_COUNT, rest};

pub(super) const SHARD_SHIFT: u32 = 32;

/// The hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(pub(super) u64);

impl KeyHash {
    #[inline]
    pub(crate) const fn tag(self) -> u32 {
        self.0 as u32
    }

    /// Which shard.
    #[inline]
    pub(crate) const fn shard(self) -> usize {
        (self.0 >> SHARD_SHIFT) as usize % SHARD_COUNT
    }
}

/// Slots that a key may be at; hardly ever more than one.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Empty if there is none.
    first: Slot,
    more: Vec<Slot>,
}

impl Candidates {
    #[inline(always)]
    fn push(&mut self, slot: Slot) {
        if self.first.is_empty() { self.first = slot } else { push_cold(&mut self.more, slot) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&Slot> {
        if index == 0 { Some(&self.first).filter(|first| !first.is_empty()) } else { self.more.get(index - 1) }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..).map_while(|index| self.get(index).copied())
    }
}

#[cold]
fn push_cold(more: &mut Vec<Slot>, slot: Slot) {
    more.push(slot);
}

/// See the head of `keydir`.
pub(crate) struct KeyDir {
    seed: u64,
    arena: Arena,
    /// Held shared by batches for as long as they hold shards, and by whoever waits for them for a moment alone.
    pub(super) batches: RwLock<()>,
}

impl std::fmt::Debug for KeyDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyDir").finish_non_exhaustive()
    }
}

impl KeyDir {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, arena: Arena::new(SHARD_COUNT * HEAD_WORDS), batches: RwLock::new(()) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(xxh3_64_with_seed(key, self.seed))
    }

    #[inline]
    fn table(&self, shard: usize) -> Table<'_> {
        Table::new(&self.arena, shard)
    }

    /// Says that the key will be looked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        self.table(hash.shard()).prefetch_head();
    }

    /// The same, some 50 ns later: now it is known where.
    #[inline]
    pub(crate) fn prefetch_slots(&self, hash: KeyHash) {
        self.table(hash.shard()).begin(hash.tag()).prefetch();
    }

    /// The same for who will change them.
    #[inline]
    pub(crate) fn prefetch_for_change(&self, hash: KeyHash) {
        self.table(hash.shard()).begin(hash.tag()).prefetch_for_insertion();
    }

    /// Somebody else changes the shard: it takes a moment.
    #[cold]
    fn wait(&self, attempts: &mut u32) {
        if !rest(attempts) {
            drop(self.batches.write());
        }
    }

    /// A shard for changes, by whoever holds none.
    #[inline]
    pub(crate) fn lock(&self, shard: usize) -> Shard<'_> {
        let mut attempts = 0;
        loop {
            if let Some(locked) = Shard::try_lock(self.table(shard)) {
                return locked;
            }
            self.wait(&mut attempts);
        }
    }

    /// A shard for changes, by a batch: behind those that it holds already. It cannot wait for batches to end.
    pub(super) fn lock_in_batch(&self, shard: usize) -> Shard<'_> {
        let mut attempts = 0;
        loop {
            if let Some(locked) = Shard::try_lock(self.table(shard)) {
                return locked;
            }
            rest(&mut attempts);
        }
    }

    /// The slots of keys with this tag that `wants` takes.
    #[inline(always)]
    fn candidates(&self, hash: KeyHash, wants: impl Fn(&Slot) -> bool) -> Candidates {
        let mut candidates = Candidates::default();
        if !self.collect(hash, &wants, &mut candidates) {
            self.collect_later(hash, &wants, &mut candidates);
        }
        candidates
    }

    /// `false`: somebody was changing the shard, and what was collected is none.
    #[inline(always)]
    fn collect(&self, hash: KeyHash, wants: &impl Fn(&Slot) -> bool, candidates: &mut Candidates) -> bool {
        let table = self.table(hash.shard());
        let Some(sequence) = table.begin_read() else { return false };
        table.with_tag(hash.tag(), |slot| {
            if wants(&slot) {
                candidates.push(slot);
            }
        });
        table.is_as_at(sequence)
    }

    #[cold]
    fn collect_later(&self, hash: KeyHash, wants: &impl Fn(&Slot) -> bool, candidates: &mut Candidates) {
        let mut attempts = 0;
        loop {
            self.wait(&mut attempts);
            *candidates = Candidates::default();
            if self.collect(hash, wants, candidates) {
                return;
            }
        }
    }

    /// The newest records of keys with this tag.
    #[inline]
    pub(crate) fn newest(&self, hash: KeyHash) -> Candidates {
        self.candidates(hash, |slot| !slot.is_old())
    }

    /// All records of keys with this tag, older versions too.
    #[inline]
    pub(crate) fn all(&self, hash: KeyHash) -> Candidates {
        self.candidates(hash, |_| true)
    }

    /// For a single change.
    #[inline]
    pub(crate) const fn one(&self) -> Held<'_> {
        Held::none(self)
    }

    /// For changes of these keys that are seen together. Nobody who calls this holds a shard.
    pub(crate) fn hold(&self, hashes: impl Iterator<Item = KeyHash>) -> Held<'_> {
        Held::all(self, hashes)
    }

    /// Puts `new` where the slot for the record at `place` is; `false` if there is none.
    #[inline]
    pub(crate) fn replace(&self, hash: KeyHash, place: Place, new: Slot) -> bool {
        self.lock(hash.shard()).replace(place, new)
    }

    /// Forgets the record at `place`.
    #[inline]
    pub(crate) fn remove(&self, hash: KeyHash, place: Place) -> Option<Slot> {
        self.lock(hash.shard()).remove(hash.tag(), place)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.arena.memory_bytes()
    }
}
