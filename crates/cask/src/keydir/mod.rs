//! The key directory: which record is the newest of each key. All of it is in memory, none of the keys is.
//!
//! A key's hash chooses a shard (14 bits) and a tag (32 other bits). Slots whose tags are equal are candidates; the key in
//! the record decides. Two of twenty million keys share shard and tag in one case in a hundred thousand, so a hit costs
//! one access to a file and a miss nearly always none.
//!
//! - D1: the slots of a key change only under the lock of the key's stripe. So a writer or a merge that holds it may look a
//!   key up, read records, write, and put the slot in place without looking again.
//! - D2: a shard is locked to change slots: for tens of nanoseconds, and some microseconds when the shard (a
//!   sixteen-thousandth of all keys) grows by a twelfth. No file is touched under it, and no other lock taken but that of the memory
//!   for a larger table (`arena.rs`). A batch holds the shards of all its keys, in ascending order, while their slots change
//!   (`held.rs`): some 100 ns for each key.
//! - D3: whoever looks takes no lock and stores nothing: it looks again if the shard changed meanwhile (Q1 to Q3 of `table.rs`). So any
//!   number of readers share nothing but what they read, and a change costs those a second look who look at the same
//!   sixteen-thousandth of all keys in the same 50 ns. Nobody looks for ever: who met a batch waits for its end asleep.
//!
//! The hash is seeded at random for each open, so nobody can choose keys that collide. It never reaches the disk.

mod arena;
mod held;
mod shard;
mod slot;
mod table;

use std::hint::spin_loop;
use std::thread::yield_now;

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::arena::Arena;
use self::table::{HEAD_WORDS, Table};

pub(crate) use held::Held;
pub(crate) use shard::Shard;
pub(crate) use slot::{Place, Slot};

/// Fixed: 2 MiB of empty shards, one huge page.
pub(crate) const SHARD_COUNT: usize = 1 << 14;
/// Who finds a shard locked looks so often again, which takes about as long as a change.
const SPINS: u32 = 64;
/// And lets others run so often, in case that one of them was interrupted in the middle of its change.
const YIELDS: u32 = 64;
const SHARD_SHIFT: u32 = 32;
const STRIPE_SHIFT: u32 = 48;

/// The hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(u64);

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

    /// Which of `count` stripes; from other bits than tag and shard.
    #[inline]
    pub(crate) const fn stripe(self, count: usize) -> usize {
        (((self.0 >> STRIPE_SHIFT) * count as u64) >> (64 - STRIPE_SHIFT)) as usize
    }
}

/// Slots that a key may be at; hardly ever more than one.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    first: Option<Slot>,
    more: Vec<Slot>,
}

impl Candidates {
    fn push(&mut self, slot: Slot) {
        match self.first {
            None => self.first = Some(slot),
            Some(_) => self.more.push(slot),
        }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}

/// See the module's head.
pub(crate) struct KeyDir {
    seed: u64,
    arena: Arena,
    /// Held shared by batches for as long as they hold shards, and by whoever waits for them for a moment alone.
    batches: RwLock<()>,
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

    /// Somebody else changes the shard: it takes a moment.
    #[cold]
    fn wait(&self, attempts: &mut u32) {
        *attempts += 1;
        if *attempts <= SPINS + YIELDS {
            spin_or_yield(*attempts);
        } else {
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
    fn lock_in_batch(&self, shard: usize) -> Shard<'_> {
        let mut attempts = 0u32;
        loop {
            if let Some(locked) = Shard::try_lock(self.table(shard)) {
                return locked;
            }
            attempts = attempts.saturating_add(1);
            spin_or_yield(attempts);
        }
    }

    /// The slots of keys with this tag that `wants` takes.
    #[inline]
    fn candidates(&self, hash: KeyHash, wants: impl Fn(&Slot) -> bool) -> Candidates {
        let table = self.table(hash.shard());
        let mut attempts = 0;
        loop {
            if let Some(sequence) = table.begin_read() {
                let mut candidates = Candidates::default();
                table.with_tag(hash.tag(), |slot| {
                    if wants(&slot) {
                        candidates.push(slot);
                    }
                });
                if table.is_as_at(sequence) {
                    return candidates;
                }
            }
            self.wait(&mut attempts);
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

fn spin_or_yield(attempts: u32) {
    if attempts <= SPINS { spin_loop() } else { yield_now() }
}

#[cfg(test)]
mod tests;
