//! Blocks of tables, and separated values, that were read and may be read again; and the budget that they share with what
//! else a store keeps in memory.
//!
//! | what                    | how                                                                              |
//! |-------------------------|----------------------------------------------------------------------------------|
//! | key                     | id of the open file ([`new_file_id`]), offset of the block or value in it         |
//! | weight                  | bytes of the block and of what keeps it                                          |
//! | eviction                | `quick_cache`'s: once-read blocks go first, so that a scan does not empty it      |
//!
//! - K1: an id is given to an open file once, and files that are open do not change: an entry is never stale. Not the file's number: handles that
//!   catch up share a cache, and a store that was restored or made anew between two of them has other files of the same numbers.
//!   Blocks of a file that died are never asked for again and go when room is needed.
//! - K2: a block that is in use outlives its eviction; what readers pin is not part of `used_bytes`.

mod admission;
mod block;
mod budget;
mod counts;
mod followers;
mod residents;
mod shared;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use esker_env::os::prefetch;
use quick_cache::sync::{Cache as Blocks, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use admission::Admission;
pub(crate) use block::Block;
use budget::Budget;
pub(crate) use budget::{MemtableShare, Reserved};
use counts::Counts;
pub(crate) use followers::Follow;
use followers::Followers;
pub(crate) use residents::Evict;
use residents::Residents;
pub use shared::Cache;

use crate::counters::Counter;
use crate::{Error, Result};

/// Bytes of one entry besides the block's own: key, links and hash slot in the cache (about 80), `Arc` and `Block` (104).
const ENTRY_OVERHEAD_BYTES: u64 = 184;

/// A shard is never smaller: what is larger than its shard cannot be kept, and blocks of 1 MiB occur.
const SHARD_BYTES_MIN: u64 = 4 << 20;

/// Shards at most; a shard's lock is held for a few dozen nanoseconds.
const SHARD_COUNT_MAX: u64 = 64;

/// What a block usually weighs: sizes the memory of recently evicted keys, nothing else.
const USUAL_BLOCK_BYTES: u64 = 4 << 10;

/// What stands for a file in every cache, from when it is opened (K1).
pub(crate) fn new_file_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    file: u64,
    offset: u64,
}

/// A block that the cache holds.
#[derive(Debug)]
struct Held(Arc<Block>);

impl Clone for Held {
    #[inline]
    fn clone(&self) -> Self {
        // All of it at once: counting a reference keeps the processor from loading anything behind it.
        prefetch(std::slice::from_ref(&*self.0));
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<BlockKey, Held> for ByBytes {
    fn weight(&self, _: &BlockKey, Held(block): &Held) -> u64 {
        block.allocated_bytes() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

/// Blocks by file and offset, at most `capacity_bytes` of them. Shared by all readers of a store, or of several.
///
/// Cost: a shard's read lock and one hash for [`get`](Self::get); a write lock for [`insert`](Self::insert).
#[derive(Debug)]
pub(crate) struct BlockCache {
    /// `None` keeps nothing.
    blocks: Option<Blocks<BlockKey, Held, ByBytes>>,
    admission: Admission,
    /// Weight of what was inserted and may still be there: until that is all of the capacity, there is room for everything.
    inserted_bytes: AtomicU64,
    counts: Counts,
    budget: Budget,
    /// Who else keeps memory of the budget, and can be asked for it.
    residents: Residents,
    /// Who keeps memtables of it, beside others.
    followers: Followers,
    /// What was read from tables because it was not here.
    pub(crate) table_reads: TableReads,
}

/// Reads of tables.
#[derive(Debug, Default)]
pub(crate) struct TableReads {
    /// Reads that the file system was asked for.
    pub(crate) calls: Counter,
    /// Their bytes.
    pub(crate) bytes: Counter,
}

impl TableReads {
    #[inline]
    pub(crate) fn add(&self, calls: u64, bytes: usize) {
        self.calls.add(calls);
        self.bytes.add(bytes as u64);
    }
}

/// What a [`BlockCache`] did since it was made, and holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockCacheStats {
    /// Lookups that found their block.
    pub(crate) hits: u64,
    /// Lookups that did not.
    pub(crate) misses: u64,
    /// Weight of the blocks held.
    pub(crate) used_bytes: u64,
    /// Most that `used_bytes` may be.
    pub(crate) capacity_bytes: u64,
    /// Blocks held.
    pub(crate) entries: u64,
}

impl BlockCache {
    /// Keeps at most `capacity_bytes`; 0 keeps nothing.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self::with_budget(Budget::fixed(capacity_bytes))
    }

    /// Keeps what others leave of `limit_bytes`.
    pub(crate) fn within_limit(limit_bytes: u64) -> Self {
        Self::with_budget(Budget::shared(limit_bytes))
    }

    fn with_budget(budget: Budget) -> Self {
        let capacity_bytes = budget.most_bytes();
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARD_COUNT_MAX);
        // The cache rounds the number of shards up to a power of two: round down first.
        let shards = 1u64 << shards.ilog2();
        let usual_count = (capacity_bytes / USUAL_BLOCK_BYTES).max(shards * 32);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .weight_capacity(capacity_bytes)
            .estimated_items_capacity(usize::try_from(usual_count).unwrap_or(usize::MAX))
            .build();
        // Both required options are set, so it does not fail; if it did, the store would only be slower.
        let blocks = options.ok().filter(|_| capacity_bytes > 0).map(|options| {
            Blocks::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default())
        });
        let (counts, table_reads) = (Counts::default(), TableReads::default());
        let (admission, inserted_bytes) = (Admission::new(capacity_bytes), AtomicU64::new(0));
        let (residents, followers) = (Residents::default(), Followers::default());
        Self { blocks, admission, inserted_bytes, counts, budget, residents, followers, table_reads }
    }

    /// What it and others may keep in memory; 0 if that is not limited.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.budget.limit_bytes()
    }

    /// # Errors
    /// `InvalidArgument`: it was made to keep nothing, and has no memory to keep anything in.
    pub(crate) fn check_may_change(&self) -> Result<()> {
        if self.blocks.is_some() {
            return Ok(());
        }
        let reason = "a cache of 0 bytes cannot become larger; close the store and open it with one";
        Err(Error::invalid_argument(reason))
    }

    /// Keeps so much from now on, if it [may](Self::check_may_change): of everything where that is limited, else of blocks and values.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        if let Some(blocks) = &self.blocks {
            self.budget.set_bytes(bytes, |capacity_bytes| blocks.set_capacity(capacity_bytes));
            self.make_room();
        }
    }

    /// `store` is told from now on when the limit becomes another ([`tell_followers`](Self::tell_followers)).
    pub(crate) fn follow(&self, store: Weak<dyn Follow>) {
        self.followers.add(store);
    }

    /// Has those who share the limit keep within it as it is now.
    pub(crate) fn tell_followers(&self) {
        self.followers.tell();
    }

    /// Takes memory that stays as long as what is returned, for an open table, out of the budget.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Reserved {
        self.budget.reserve(bytes as u64);
        self.resize();
        Reserved::new(self.clone(), bytes as u64)
    }

    /// Gives back what [`reserve`](Self::reserve) took.
    fn release(&self, bytes: u64) {
        self.budget.release(bytes);
        self.resize();
    }

    /// Memtables that take so much more of the budget, or so much less.
    fn change_memtable_bytes(&self, more: u64, less: u64) {
        self.budget.change_memtable_bytes(more, less);
        self.resize();
        self.make_room();
    }

    /// `table` keeps memory that it [reserved](Self::reserve), and may be asked to give it back.
    pub(crate) fn watch(&self, table: Weak<dyn Evict>) {
        if self.budget.is_limited() {
            self.residents.watch(table);
            self.make_room();
        }
    }

    /// Has open tables give memory back until they keep to their share of the budget.
    pub(crate) fn make_room(&self) {
        self.residents.evict_while(|| self.budget.is_overreserved());
    }

    /// Gives the cache what is left of the budget now.
    fn resize(&self) {
        if let Some(blocks) = &self.blocks {
            self.budget.apply(|capacity_bytes| blocks.set_capacity(capacity_bytes));
        }
    }

    /// The block of `file` that begins at `offset`, if it is held.
    #[inline]
    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        let found = self.blocks.as_ref().and_then(|blocks| blocks.get(&BlockKey { file, offset }));
        self.counts.add(offset, found.is_some());
        found.map(|Held(block)| block)
    }

    /// Holds `block` from now on, in place of others if there is no room; not at all if it is larger than a shard.
    pub(crate) fn insert(&self, file: u64, offset: u64, block: Arc<Block>) {
        if let Some(blocks) = &self.blocks {
            // Saturates in practice: once the cache was full, somebody always has to go.
            self.inserted_bytes.fetch_add(block.allocated_bytes() as u64 + ENTRY_OVERHEAD_BYTES, Ordering::Relaxed);
            blocks.insert(BlockKey { file, offset }, Held(block));
        }
    }

    /// Whether the value of so many `bytes` of `file` at `offset`, which was read and is not held, should be: see [`admission`].
    pub(crate) fn admits(&self, file: u64, offset: u64, bytes: u64) -> bool {
        if self.blocks.is_none() {
            return false;
        }
        self.inserted_bytes.load(Ordering::Relaxed) < self.budget.capacity_bytes()
            || self.admission.is_read_again((file << 40 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
    }

    /// Counts and sizes now. Locks one shard after the other: not for hot paths.
    pub(crate) fn stats(&self) -> BlockCacheStats {
        let (hits, misses) = self.counts.sums();
        BlockCacheStats {
            hits,
            misses,
            used_bytes: self.blocks.as_ref().map_or(0, Blocks::weight),
            capacity_bytes: self.budget.capacity_bytes(),
            entries: self.blocks.as_ref().map_or(0, |blocks| blocks.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests;
