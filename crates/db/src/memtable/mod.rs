//! What was written and is not in a table yet, in order, in memory.
//!
//! | room            | what it does                                                                          |
//! |-----------------|---------------------------------------------------------------------------------------|
//! | [`arena`]       | memory that grows in chunks and goes as a whole                                       |
//! | [`skip_list`]   | entries in order; many threads add and read at once, without locks                    |
//! | [`fingers`]     | where in the list to begin a search                                                   |
//! | [`iterate`]     | positions and values that keep the memtable alive                                     |
//!
//! Thread safety: everything here may be called by any number of threads at the same time.
//!
//! - M1: entries are added and never changed or removed; the memtable goes as a whole, with the last `Arc` of it.
//! - M2: whoever begins to read after [`Memtable::add`] returned meets the entry. Whether a reader may see it is for the
//!   sequence number to say.
//! - M3: all `unsafe` of this crate is in this folder, behind faces that cannot be misused from outside of it.
//!
//! Cost: about 24 bytes an entry besides key, tag and value, and up to 8 for the fingers. An empty memtable has taken no memory but
//! its own few hundred bytes.
//!
//! Why a skip list: nanoseconds for one of 300,000 random keys, as all threads together have it, on two cores
//! (`cd bench && cargo run --release --bin memtables`; the middle one of three rounds):
//!
//! | key of                                  | put, 1 thread | 2     | 4     | get, 1 thread | 2     | 4     | step |
//! |-----------------------------------------|--------------:|------:|------:|--------------:|------:|------:|-----:|
//! | **16 bytes:** this list, with fingers   |         1,195 |   772 |   772 |         1,114 |   661 |   648 |  160 |
//! | `crossbeam-skiplist`                    |         1,758 | 1,170 | 1,098 |         1,832 | 1,093 | 1,115 |  182 |
//! | concurrent B+-tree (`scc::TreeIndex`)   |         2,082 | 1,355 | 1,182 |         1,143 |   754 |   679 |  167 |
//! | radix tree (`blart`) under a lock       |           810 | 1,442 | 2,021 |           339 |   307 |   314 |  230 |
//! | B-tree of `std` under a lock            |           714 | 1,108 | 1,184 |           611 |   427 |   407 |   40 |
//! | **64 bytes:** this list, with fingers   |         1,256 |   816 |   797 |         1,075 |   699 |   681 |  154 |
//! | `crossbeam-skiplist`                    |         1,903 | 1,652 | 1,830 |         2,122 | 1,437 | 1,644 |  202 |
//! | concurrent B+-tree (`scc::TreeIndex`)   |         2,939 | 1,898 | 2,363 |         1,451 |   978 | 1,091 |  232 |
//! | radix tree (`blart`) under a lock       |         1,033 | 1,669 | 1,913 |           317 |   272 |   329 |  198 |
//! | B-tree of `std` under a lock            |         1,237 | 1,827 | 1,944 |           914 |   603 |   619 |   50 |
//!
//! Of what several threads may add to at once, the list takes keys fastest, and it copies them into its arena, which the others do not. A radix
//! tree that several threads may add to would be worth a try: its gets take a third.

mod arena;
mod fingers;
mod iterate;
mod skip_list;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

pub(crate) use iterate::{MemtableIterator, PinnedEntry};
use skip_list::SkipList;

use crate::range_deletions::{RangeDeletion, Recent};

/// Fingers are made when there are so many nodes of a height above 1, and again whenever there are twice as many: a
/// list of fewer is in the processor's cache as it is. Miri, which takes a second for some hundred entries, is to see them too.
const TALL_MIN: usize = if cfg!(miri) { 8 } else { 1 << 10 };

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    list: SkipList,
    range_deletions: Recent,
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
    /// Without entries; its keys will lie in `order`.
    pub(crate) fn new(order: Order) -> Self {
        Self { list: SkipList::new(order), range_deletions: Recent::new(order), counts: Counts::default() }
    }

    /// The one that takes writes after this one, and its memory once that is free.
    pub(crate) fn next(&self) -> Self {
        Self { list: self.list.next(), range_deletions: self.range_deletions.next(), counts: Counts::default() }
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

    /// Adds a range deletion. Cost: what [`Recent`] says.
    pub(crate) fn add_range_deletion(&self, range: RangeDeletion) {
        self.range_deletions.add(range);
        self.counts.entries.fetch_add(1, Ordering::Relaxed);
        self.counts.deletions.fetch_add(1, Ordering::Relaxed);
    }

    /// Those that were added.
    #[inline]
    pub(crate) fn range_deletions(&self) -> &Recent {
        &self.range_deletions
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
        self.list.used_bytes() + self.range_deletions.bytes()
    }

    /// Memory of earlier memtables of the family that is kept for this one and those after it.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.list.spare_bytes()
    }

    /// Gives so much of it back.
    pub(crate) fn give_back_spare(&self, bytes: usize) {
        self.list.give_back_spare(bytes);
    }

    /// Entries added.
    pub(crate) fn entry_count(&self) -> u64 {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// Deletions among them, of ranges too.
    pub(crate) fn deletion_count(&self) -> u64 {
        self.counts.deletions.load(Ordering::Relaxed)
    }

    /// Whether nothing was added.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.first().is_none() && self.range_deletions.is_empty()
    }
}

#[cfg(test)]
mod tests;
