//! The original's count of entries. There it is a part of its index; here programs may count in it, and nothing else does.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::LogQueue;

/// Entries by queue.
#[derive(Debug, Default)]
pub struct GlobalStats {
    live_append_entries: AtomicUsize,
    rewrite_entries: AtomicUsize,
    deleted_rewrite_entries: AtomicUsize,
}

impl GlobalStats {
    /// Counts entries that came.
    pub fn add(&self, queue: LogQueue, count: usize) {
        let entries = match queue {
            LogQueue::Append => &self.live_append_entries,
            LogQueue::Rewrite => &self.rewrite_entries,
        };
        entries.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts entries that went.
    pub fn delete(&self, queue: LogQueue, count: usize) {
        match queue {
            LogQueue::Append => self.live_append_entries.fetch_sub(count, Ordering::Relaxed),
            LogQueue::Rewrite => self.deleted_rewrite_entries.fetch_add(count, Ordering::Relaxed),
        };
    }

    /// Those that came to the rewrite queue.
    pub fn rewrite_entries(&self) -> usize {
        self.rewrite_entries.load(Ordering::Relaxed)
    }

    /// Of these, those that went.
    pub fn deleted_rewrite_entries(&self) -> usize {
        self.deleted_rewrite_entries.load(Ordering::Relaxed)
    }

    /// Forgets those that came to the rewrite queue and went.
    pub fn reset_rewrite_counters(&self) {
        let gone = self.deleted_rewrite_entries();
        self.deleted_rewrite_entries.fetch_sub(gone, Ordering::Relaxed);
        self.rewrite_entries.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Those that are there.
    pub fn live_entries(&self, queue: LogQueue) -> usize {
        match queue {
            LogQueue::Append => self.live_append_entries.load(Ordering::Relaxed),
            LogQueue::Rewrite => self.rewrite_entries().saturating_sub(self.deleted_rewrite_entries()),
        }
    }

    /// Sets metrics in the original. There are none here: [`RaftLog::stats`](esker_raft_log::RaftLog::stats) says more.
    pub fn flush_metrics(&self) {}
}
