//! The key directory: which record is the newest of each key. All of it is in memory, none of the keys is.
//!
//! A key's hash chooses a shard (14 bits) and a tag (32 other bits). Slots whose tags are equal are candidates; the key in
//! the record decides. Two of twenty million keys share shard and tag in one case in a hundred thousand, so a hit costs
//! one access to a file and a miss nearly always none.
//!
//! - D1: the slots of a key change only under the lock of the key's stripe. So a writer or a merge that holds it may look a
//!   key up, read records, write, and put the slot in place without looking again.
//! - D2: a shard's lock is held to look at or to change slots: for tens of nanoseconds, and some microseconds when the
//!   shard (a sixteen-thousandth of all keys) grows by a twelfth. No file is touched under it, and no other lock taken. A batch
//!   holds the shards of all its keys, in ascending order, while their slots change (`held.rs`): some 100 ns for each key.
//!
//! Readers share that lock. With 16,384 of them, 64 threads meet on one about every 500th time if keys are spread, and
//! where they all read one key they meet on the value's reference count just the same.
//!
//! The hash is seeded at random for each open, so nobody can choose keys that collide. It never reaches the disk.

mod held;
mod shard;
mod slot;

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use held::Held;
pub(crate) use shard::Shard;
pub(crate) use slot::{Place, Slot};

/// Fixed: 1 MiB of empty shards.
pub(crate) const SHARD_COUNT: usize = 1 << 14;
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
    shards: Box<[RwLock<Shard>]>,
}

impl std::fmt::Debug for KeyDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyDir").finish_non_exhaustive()
    }
}

impl KeyDir {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect() }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(xxh3_64_with_seed(key, self.seed))
    }

    /// The shard of a key, for whoever does several things to it at once.
    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> &RwLock<Shard> {
        static NONE: RwLock<Shard> = RwLock::new(Shard::EMPTY);
        self.shards.get(hash.shard()).unwrap_or(&NONE)
    }

    /// The newest records of keys with this tag.
    #[inline]
    pub(crate) fn newest(&self, hash: KeyHash) -> Candidates {
        let mut candidates = Candidates::default();
        let shard = self.shard(hash).read();
        shard.with_tag(hash.tag(), |slot| {
            if !slot.is_old() {
                candidates.push(slot);
            }
        });
        candidates
    }

    /// All records of keys with this tag, older versions too.
    #[inline]
    pub(crate) fn all(&self, hash: KeyHash) -> Candidates {
        let mut candidates = Candidates::default();
        self.shard(hash).read().with_tag(hash.tag(), |slot| candidates.push(slot));
        candidates
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
        self.shard(hash).write().replace(place, new)
    }

    /// Forgets the record at `place`.
    #[inline]
    pub(crate) fn remove(&self, hash: KeyHash, place: Place) -> Option<Slot> {
        self.shard(hash).write().remove(hash.tag(), place)
    }

    /// Puts a shard that was made elsewhere into its place. `index` is less than [`SHARD_COUNT`].
    pub(crate) fn set_shard(&self, index: usize, shard: Shard) {
        if let Some(place) = self.shards.get(index) {
            *place.write() = shard;
        }
    }

    /// Every shard, one after the other.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = &RwLock<Shard>> {
        self.shards.iter()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots: usize = self.shards().map(|shard| shard.read().memory_bytes()).sum();
        (slots + self.shards.len() * size_of::<RwLock<Shard>>()) as u64
    }
}
