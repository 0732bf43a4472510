//! What was written and is not in a table yet, in order, in memory.
//!
//! | room            | what it does                                                                          |
//! |-----------------|---------------------------------------------------------------------------------------|
//! | [`arena`]       | memory that grows in chunks and goes as a whole                                       |
//! | [`skip_list`]   | entries in order; many threads add and read at once, without locks                    |
//! | [`iterate`]     | positions and values that keep the memtable alive                                     |
//!
//! Thread safety: everything here may be called by any number of threads at the same time.
//!
//! - M1: entries are added and never changed or removed; the memtable goes as a whole, with the last `Arc` of it.
//! - M2: whoever begins to read after [`Memtable::add`] returned meets the entry. Whether a reader may see it is for the
//!   sequence number to say.
//! - M3: all `unsafe` of this crate is in this folder, behind faces that cannot be misused from outside of it.
//!
//! Cost: about 24 bytes an entry besides key, tag and value. An empty memtable has taken no memory but its own few
//! hundred bytes.

mod arena;
mod iterate;
mod skip_list;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};

pub(crate) use iterate::{MemtableIterator, PinnedEntry};
use skip_list::SkipList;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    list: SkipList,
    counts: Counts,
}

/// On cache lines of their own: who adds must not slow down who reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    entries: AtomicU64,
    deletions: AtomicU64,
}

/// What [`Memtable::get`] found.
#[derive(Debug)]
pub(crate) struct MemtableHit {
    /// When it was written.
    pub(crate) sequence: SequenceNumber,
    /// How it was written.
    pub(crate) kind: ValueKind,
    /// What was written, shared with the memtable.
    pub(crate) value: crate::pinned::PinnedSlice,
}

impl Memtable {
    /// Without entries.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an entry. Each has a sequence number of its own; of two with the same one, key and kind, both stay.
    ///
    /// Cost: a search and one copy of key and value; a key after all others needs no search. Ends the process if memory
    /// cannot be had.
    pub(crate) fn add(&self, sequence: SequenceNumber, kind: ValueKind, user_key: &[u8], value: &[u8]) {
        self.list.insert(user_key, internal_key::pack(sequence, kind), value);
        let counts = &self.counts;
        counts.entries.fetch_add(1, Ordering::Relaxed);
        if matches!(kind, ValueKind::Deletion | ValueKind::SingleDeletion | ValueKind::DeletionWithTimestamp) {
            counts.deletions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The newest entry of the user key in `lookup`, an internal key, that is not newer than `lookup`.
    ///
    /// Cost: a search; the value is not copied.
    #[inline]
    pub(crate) fn get(self: &Arc<Self>, lookup: &[u8]) -> Option<MemtableHit> {
        let entry = self.list.first_at_or_after(lookup)?;
        let key = entry.key();
        if internal_key::user_key(key) != internal_key::user_key(lookup) {
            return None;
        }
        let tag = internal_key::tag(key);
        let kind = ValueKind::from_u8(tag as u8)?;
        Some(MemtableHit { sequence: SequenceNumber::new(tag >> 8), kind, value: iterate::pin(self, entry) })
    }

    /// A position among the entries; on none until it seeks.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIterator {
        MemtableIterator::new(self.clone())
    }

    /// Memory that the entries take: what `write_buffer_bytes` is compared with.
    #[inline]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.list.used_bytes()
    }

    /// Entries added.
    pub(crate) fn entry_count(&self) -> u64 {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// Deletions among them.
    pub(crate) fn deletion_count(&self) -> u64 {
        self.counts.deletions.load(Ordering::Relaxed)
    }

    /// Whether nothing was added.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.first().is_none()
    }
}

#[cfg(test)]
mod tests;
