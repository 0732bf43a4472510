//! What there is, and what was done.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::raft::file_name::Queue as Kind;

use crate::raft_log::RaftLog;
use crate::store::Store;

/// A counter with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Alone(AtomicU64);

/// What was done since the log was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    groups_written: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    /// Readers count, and keep no writer waiting for the line.
    entries_read: Alone,
    pub(crate) rewritten_bytes: AtomicU64,
    pub(crate) purged_files: AtomicU64,
    pub(crate) moved_entries: AtomicU64,
}

impl Counters {
    pub(crate) fn wrote(&self, batches: u64, bytes: u64) {
        self.batches.fetch_add(batches, Ordering::Relaxed);
        self.groups_written.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, entries: u64) {
        self.entries_read.0.fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// The files of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Number of the oldest file.
    pub first_file: u64,
    /// Number of the file that is written to.
    pub last_file: u64,
    /// Bytes of batches and headers in all of them.
    pub bytes: u64,
}

/// What there is in a log, and what was done since it was opened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// What users wrote.
    pub append: QueueStats,
    /// What was moved on from older files.
    pub rewrite: QueueStats,
    /// Files that wait to be written over.
    pub recycled_files: usize,
    /// Groups.
    pub groups: usize,
    /// Entries of all groups.
    pub entries: u64,
    /// Of them, those in the rewrite queue.
    pub rewritten_entries: u64,
    /// Records of the index: one for each batch and group.
    pub index_records: usize,
    /// Keys of all groups.
    pub keys: usize,
    /// Memory of the index and of the keys with their values, about.
    pub index_bytes: usize,
    /// Batches written.
    pub batches: u64,
    /// Groups of batches that went to the file in one append.
    pub commit_groups: u64,
    /// Bytes of batches written.
    pub written_bytes: u64,
    /// Syncs of the append queue's file.
    pub syncs: u64,
    /// Writers that wait for the group before theirs.
    pub waiting_writers: usize,
    /// Entries read.
    pub entries_read: u64,
    /// Bytes moved on to the rewrite queue.
    pub rewritten_bytes: u64,
    /// Files given up.
    pub purged_files: u64,
    /// Entries that were moved on since their groups pinned too much.
    pub moved_entries: u64,
    /// Why nothing can be written any more, if so.
    pub write_error: Option<String>,
    /// What the log's own purging failed with last, if it did.
    pub purge_error: Option<String>,
}

impl Store {
    fn queue_stats(&self, kind: Kind) -> QueueStats {
        let queue = self.queue(kind);
        let (first_file, last_file) = queue.span();
        QueueStats { first_file, last_file, bytes: queue.bytes() }
    }
}

impl RaftLog {
    /// The files of a queue. Costs a look at each of them.
    pub fn queue_stats(&self, queue: Kind) -> QueueStats {
        self.store.queue_stats(queue)
    }

    /// What there is, and what was done. Costs a look at every group and key.
    pub fn stats(&self) -> Stats {
        let store = &self.store;
        let counters = &store.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let write_error = store.write_error.lock().clone().or_else(|| store.commit.error());
        let mut stats = Stats {
            append: store.queue_stats(Kind::Append),
            rewrite: store.queue_stats(Kind::Rewrite),
            recycled_files: store.append.retired_count(),
            groups: 0,
            entries: 0,
            rewritten_entries: 0,
            index_records: 0,
            keys: 0,
            index_bytes: store.groups.heap_bytes(),
            batches: load(&counters.batches),
            commit_groups: load(&counters.groups_written),
            written_bytes: load(&counters.bytes),
            syncs: load(&counters.syncs),
            waiting_writers: self.store.commit.waiting_count(),
            entries_read: load(&counters.entries_read.0),
            rewritten_bytes: load(&counters.rewritten_bytes),
            purged_files: load(&counters.purged_files),
            moved_entries: load(&counters.moved_entries),
            write_error: write_error.as_ref().map(ToString::to_string),
            purge_error: store.purge_error.lock().as_ref().map(ToString::to_string),
        };
        store.groups.for_each(|_, group| {
            stats.groups += 1;
            stats.entries += group.span.count();
            stats.rewritten_entries += group.rewritten_entries();
            stats.index_records += group.runs.len();
            stats.keys += group.key_count();
        });
        stats
    }
}
