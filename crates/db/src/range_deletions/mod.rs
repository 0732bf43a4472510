//! Range deletions: one entry that deletes all keys from one on and before another.
//!
//! | room            | what it does                                                                               |
//! |-----------------|--------------------------------------------------------------------------------------------|
//! | [`fragments`]   | ranges cut where others begin and end: a key is looked up by one search                    |
//! | [`recent`]      | those of a memtable                                                                        |
//! | [`cover`]       | what hides a key of a view, and up to which key the answer holds                           |
//! | [`shadow`]      | what compaction may drop for them, and which of them it writes again                       |
//!
//! - RD1: a range deletion hides the entries of its keys that are older, of whatever kind, and those alone: wherever both lie, the sequence numbers
//!   tell. So an entry that a range deletion of the store covers, be it older, keeps its number (S3 of the sieve).
//! - RD2: a table reaches as far as its range deletions do, and they as far as it: who writes a table cuts them where the next begins, who reads one
//!   that RocksDB wrote cuts them where it ends. Where a range ends a table, the key that it ends before is not of the table, and may begin the next.
//! - RD3: a range deletion lies in no deeper level than what it hides. It goes where every snapshot sees it and no deeper table meets its range.
//! - RD4: what a range deletion of a table hides from all that can be asked for may go without it: by any compaction, and a whole table unread.
//!
//! Cost while a family has none: a look whether there are any, at each memtable and the version.
//!
//! Source: RocksDB `db/range_tombstone_fragmenter.cc`, `db/range_del_aggregator.cc`.

mod cover;
mod fragments;
mod recent;
mod shadow;

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

pub(crate) use cover::{Covers, Hider};
pub(crate) use fragments::Fragments;
pub(crate) use recent::Recent;
pub(crate) use shadow::Shadow;

/// Widens `smallest` and `largest`, internal keys that are empty where there is none, to where `ranges` begin and end (RD2).
pub(crate) fn widen<'a>(
    order: Order,
    smallest: &mut Vec<u8>,
    largest: &mut Vec<u8>,
    ranges: impl IntoIterator<Item = &'a RangeDeletion>,
) {
    for range in ranges {
        let mut begin = Vec::new();
        internal_key::append(&mut begin, &range.begin, range.sequence, ValueKind::RangeDeletion);
        if smallest.is_empty() || order.compare_internal(&begin, smallest).is_lt() {
            *smallest = begin;
        }
        let end = internal_key::end_of_range(&range.end);
        if largest.is_empty() || order.compare_internal(&end, largest).is_gt() {
            *largest = end;
        }
    }
}

/// All keys from `begin` on and before `end` that were written before it are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDeletion {
    pub(crate) begin: Box<[u8]>,
    pub(crate) end: Box<[u8]>,
    pub(crate) sequence: SequenceNumber,
}

impl RangeDeletion {
    /// Whether `user_key` is one of its keys.
    pub(crate) fn covers(&self, order: Order, user_key: &[u8]) -> bool {
        order.compare(&self.begin, user_key).is_le() && order.is_before(user_key, &self.end)
    }
}

#[cfg(test)]
mod tests;
