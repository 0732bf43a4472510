//! What the engine counts while it works: relaxed atomics, read by [`stats`](crate::stats).

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of them, since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes: Counter,
    pub(crate) user_writes: Counter,
    pub(crate) wal_bytes: Counter,
    pub(crate) write_blob_bytes: Counter,
    pub(crate) wal_syncs: Counter,
    pub(crate) flush_bytes: Counter,
    pub(crate) flush_blob_bytes: Counter,
    pub(crate) compaction_bytes: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) ingested_bytes: Counter,
    pub(crate) manifest_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) trivial_moves: Counter,
    pub(crate) relocations: Counter,
    pub(crate) reclaim_bytes: Counter,
    pub(crate) punches: Counter,
    pub(crate) punched_bytes: Counter,
    pub(crate) stall_micros: Counter,
}
