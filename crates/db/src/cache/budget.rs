//! How much the cache may keep: a fixed amount, or what memtables, indexes and filters leave of a limit.
//!
//! - L1: whatever changes, the capacity that was applied last is computed from the latest amounts: computing and applying
//!   are one step under a lock.
//! - L2: memtables count as leaving a 16th of the limit, whatever they take, or no scan could work, and every read would read indexes;
//!   should they, and what is read right now, alone take more than the limit, that is how far it is exceeded.
//! - L3: indexes and filters get three quarters of what memtables leave, and the cache the rest, or more where they take less. Those
//!   that were read last may be more, alone.
//! - L4: of two who work out what memtables take of the limit, the later one has it as it is: that, too, is one step under a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::BlockCache;

/// See L2.
const LEAST_SHARE: u64 = 16;

/// See L3.
const TABLES_QUARTERS: u64 = 3;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Budget {
    /// `None` for a fixed capacity.
    limit_bytes: Option<AtomicU64>,
    /// Taken by open tables.
    reserved_bytes: AtomicU64,
    memtable_bytes: AtomicU64,
    /// Of those, the ones that are written to.
    active_bytes: AtomicU64,
    /// Stores that write.
    writers: AtomicU64,
    capacity_bytes: AtomicU64,
    applying: Mutex<()>,
}

impl Budget {
    pub(super) fn fixed(capacity_bytes: u64) -> Self {
        Self::new(None, capacity_bytes)
    }

    pub(super) fn shared(limit_bytes: u64) -> Self {
        Self::new(Some(limit_bytes), limit_bytes)
    }

    fn new(limit_bytes: Option<u64>, capacity_bytes: u64) -> Self {
        Self {
            limit_bytes: limit_bytes.map(AtomicU64::new),
            reserved_bytes: AtomicU64::new(0),
            memtable_bytes: AtomicU64::new(0),
            active_bytes: AtomicU64::new(0),
            writers: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            applying: Mutex::new(()),
        }
    }

    /// The most that the cache can ever keep.
    pub(super) fn most_bytes(&self) -> u64 {
        self.limit().unwrap_or_else(|| self.capacity_bytes())
    }

    /// What the cache may keep now.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self, bytes: u64) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn change_memtable_bytes(&self, more: u64, less: u64) {
        self.memtable_bytes.fetch_add(more, Ordering::Relaxed);
        self.memtable_bytes.fetch_sub(less, Ordering::Relaxed);
    }

    fn limit(&self) -> Option<u64> {
        self.limit_bytes.as_ref().map(|bytes| bytes.load(Ordering::Relaxed))
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit().unwrap_or_default()
    }

    /// The limit is another from now on, or the capacity where that is fixed.
    pub(super) fn set_bytes(&self, bytes: u64, set: impl FnOnce(u64)) {
        match &self.limit_bytes {
            Some(limit_bytes) => {
                limit_bytes.store(bytes, Ordering::Relaxed);
                self.apply(set);
            }
            None => {
                let _applying = self.applying.lock();
                self.capacity_bytes.store(bytes, Ordering::Relaxed);
                set(bytes);
            }
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit_bytes.is_some()
    }

    /// What tables and memtables take, those that are written to, and the stores that do.
    #[cfg(test)]
    pub(super) fn amounts(&self) -> [u64; 4] {
        [&self.reserved_bytes, &self.memtable_bytes, &self.active_bytes, &self.writers]
            .map(|amount| amount.load(Ordering::Relaxed))
    }

    /// Whether open tables keep more than their share (L3).
    pub(super) fn is_overreserved(&self) -> bool {
        let Some(limit_bytes) = self.limit() else { return false };
        let left = limit_bytes.saturating_sub(self.memtable_bytes.load(Ordering::Relaxed));
        let rest = left.max(limit_bytes / LEAST_SHARE);
        self.reserved_bytes.load(Ordering::Relaxed) > rest / 4 * TABLES_QUARTERS
    }

    /// Hands the capacity to `set` if it changed (L1).
    pub(super) fn apply(&self, set: impl FnOnce(u64)) {
        if !self.is_limited() {
            return;
        }
        let _applying = self.applying.lock();
        let limit_bytes = self.limit_bytes();
        let others = self.reserved_bytes.load(Ordering::Relaxed) + self.memtable_bytes.load(Ordering::Relaxed);
        let least = limit_bytes / LEAST_SHARE;
        let capacity_bytes = limit_bytes.saturating_sub(others).max(least - least / 4 * TABLES_QUARTERS);
        if self.capacity_bytes.swap(capacity_bytes, Ordering::Relaxed) != capacity_bytes {
            set(capacity_bytes);
        }
    }
}

/// What some memtables take of the budget, as long as this lives: those of a store, or those that handles for reading have in common.
#[derive(Debug)]
pub(crate) struct MemtableShare {
    cache: Arc<BlockCache>,
    bytes: Mutex<u64>,
    /// Of those that are written to.
    active: Mutex<Active>,
}

#[derive(Debug, Default)]
struct Active {
    bytes: u64,
    /// Whether it was told of any: the store writes.
    is_writer: bool,
}

impl MemtableShare {
    /// Of nothing yet.
    pub(crate) fn new(cache: Arc<BlockCache>) -> Self {
        Self { cache, bytes: Mutex::default(), active: Mutex::default() }
    }

    /// How much they take from now on.
    pub(crate) fn set(&self, bytes: u64) {
        self.set_as_reckoned(|| bytes);
    }

    /// The same for what is worked out now (L4).
    pub(crate) fn set_as_reckoned(&self, bytes: impl FnOnce() -> u64) {
        let mut held = self.bytes.lock();
        let bytes = bytes();
        let before = std::mem::replace(&mut *held, bytes);
        self.cache.change_memtable_bytes(bytes, before);
    }

    /// Those that are written to take so much now. Whether that is too much where all stores of the cache may have `most` together: of several, one
    /// that has no more than its part has not.
    pub(crate) fn is_too_much(&self, bytes: u64, most: u64) -> bool {
        let budget = &self.cache.budget;
        let mut active = self.active.lock();
        if !std::mem::replace(&mut active.is_writer, true) {
            budget.writers.fetch_add(1, Ordering::Relaxed);
        }
        let before = std::mem::replace(&mut active.bytes, bytes);
        budget.active_bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = budget.active_bytes.fetch_sub(before, Ordering::Relaxed) - before;
        all > most && bytes > self.part_of(most)
    }

    /// What a store has of `most` for sure.
    pub(crate) fn part_of(&self, most: u64) -> u64 {
        most / self.cache.budget.writers.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for MemtableShare {
    fn drop(&mut self) {
        self.cache.change_memtable_bytes(0, *self.bytes.get_mut());
        let (Active { bytes, is_writer }, budget) = (self.active.get_mut(), &self.cache.budget);
        budget.active_bytes.fetch_sub(*bytes, Ordering::Relaxed);
        budget.writers.fetch_sub(u64::from(*is_writer), Ordering::Relaxed);
    }
}

/// Memory of the budget that something takes as long as this lives.
#[derive(Debug)]
pub(crate) struct Reserved {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Reserved {
    pub(super) fn new(cache: Arc<BlockCache>, bytes: u64) -> Self {
        Self { cache, bytes }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.cache.release(self.bytes);
    }
}
