//! A version is the immutable set of tables and blob files of one column family. Readers hold an `Arc` of it; flush
//! and compaction make the next one with an [`Edit`], which the manifest records before anybody sees it.
//!
//! - V1: tables of a level below 0 are sorted and share no internal key (Esker's own share no user key either; old
//!   RocksDB releases could split one); level 0 is newest first.
//! - V2: garbage of a blob file never exceeds what was written to it (B10). When nothing of it lives, the version drops it.
//! - V3: a version changes only in [`install`], after the manifest has it (B4).
//! - V4: level 0 is ordered by the tables' epochs, where all tables of the family have one, else by sequence numbers: as in RocksDB, whose
//!   merges within level 0 make tables that are older than what their newest entry says. A flush and what comes in as a file
//!   have a new epoch, what a compaction writes has the least of what it has read.

mod cuts;
mod edit;
mod file;
mod install;
mod life;
mod manifest;
mod older;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber};
use esker_format::rocksdb::order::Order;
use esker_log::ledger::Ledger;
use parking_lot::Mutex;

pub(crate) use cuts::cuts;
pub(crate) use edit::{Edit, Garbage};
pub(crate) use file::{BlobHandle, TableFile, range_deletions_within};
pub(crate) use life::Life;
pub(crate) use manifest::{
    ManifestWriter, Recovered, RecoveredFamily, current_manifest, manifest_state, prepare_new, recover, recover_from,
    set_current, snapshot_edits, write_new,
};
pub(crate) use older::Older;

use crate::Result;
use crate::options::LEVEL_COUNT;
use crate::reclaim::BLOCK_BYTES;
use crate::table::TableHit;

/// See the module's head.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    order: Order,
    levels: Vec<Vec<Arc<TableFile>>>,
    blobs: BTreeMap<FileNumber, Arc<BlobHandle>>,
    /// How much of each of them is live.
    ledger: Ledger,
    /// A bit for each level in which a table has range deletions.
    ranged_levels: u32,
    sums: Sums,
}

/// What is asked for again and again, worked out the first time.
#[derive(Debug, Default)]
struct Sums {
    tables: OnceLock<TableSums>,
    hidden_bytes: Mutex<Option<u64>>,
    none_hidden_at: Mutex<Option<SequenceNumber>>,
}

/// Whoever copies a version changes it.
impl Clone for Sums {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// All tables of a version.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableSums {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// Of the largest one.
    pub(crate) bytes_max: u64,
    /// What deletions take of their blocks on the disk.
    pub(crate) deletion_bytes: u64,
}

/// What deletions take of the blocks of `table`: all of a small one that holds nothing else.
fn deletion_bytes(table: &TableFile) -> u64 {
    let (all, deletions) = (table.table.properties().entry_count, table.table.properties().deletion_count);
    let blocks = table.meta.file_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
    (blocks as f64 * deletions.min(all) as f64 / all.max(1) as f64) as u64
}

impl Version {
    /// Without files, of a family whose keys lie in `order`.
    pub(crate) fn empty(order: Order) -> Self {
        Self {
            order,
            levels: vec![Vec::new(); LEVEL_COUNT],
            blobs: BTreeMap::new(),
            ledger: Ledger::new(),
            ranged_levels: 0,
            sums: Sums::default(),
        }
    }

    /// Of its keys.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The tables of a level; none for a level that does not exist.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableFile>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn levels(&self) -> impl DoubleEndedIterator<Item = (usize, &[Arc<TableFile>])> {
        self.levels.iter().map(Vec::as_slice).enumerate()
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels().flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)))
    }

    pub(crate) fn blobs(&self) -> &BTreeMap<FileNumber, Arc<BlobHandle>> {
        &self.blobs
    }

    /// Whether some table has range deletions.
    #[inline]
    pub(crate) fn has_range_deletions(&self) -> bool {
        self.ranged_levels != 0
    }

    /// Whether some table of the level has.
    pub(crate) fn has_range_deletions_in(&self, level: usize) -> bool {
        self.ranged_levels >> level & 1 == 1
    }

    /// How much of each blob file is live: exact, since every drop of a pointer counts what it pointed to.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How many tables there are, and how large they are.
    pub(crate) fn table_sums(&self) -> TableSums {
        *self.sums.tables.get_or_init(|| {
            self.tables().fold(TableSums::default(), |sums, (_, table)| TableSums {
                count: sums.count + 1,
                bytes: sums.bytes.saturating_add(table.meta.file_bytes),
                entries: sums.entries.saturating_add(table.table.properties().entry_count),
                bytes_max: sums.bytes_max.max(table.meta.file_bytes),
                deletion_bytes: sums.deletion_bytes.saturating_add(deletion_bytes(table)),
            })
        })
    }

    /// Bytes of values in `files` that `tables` point to; all that live there if one of them does not say.
    pub(crate) fn bytes_into<'a>(
        &self,
        files: &BTreeSet<FileNumber>,
        tables: impl IntoIterator<Item = &'a Arc<TableFile>>,
    ) -> u64 {
        let live = files.iter().filter_map(|file| self.ledger.get(*file)).map(|usage| usage.live_bytes()).sum();
        let of_table = |table: &Arc<TableFile>| match table.known_blob_refs() {
            Some(refs) => {
                let there = refs.iter().filter(|(file, _)| files.contains(file));
                there.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
            }
            None if table.may_point_into(files) => live,
            None => 0,
        };
        tables.into_iter().map(of_table).fold(0, u64::saturating_add).min(live)
    }

    /// What [`hidden_bytes`](crate::reclaim::hidden_bytes) made of it when it was first asked.
    pub(crate) fn hidden_bytes(&self, work_out: impl FnOnce() -> u64) -> u64 {
        *self.sums.hidden_bytes.lock().get_or_insert_with(work_out)
    }

    /// Whether it is known that range deletions hide no whole table from who sees what was written up to `oldest`.
    pub(crate) fn has_none_hidden_at(&self, oldest: SequenceNumber) -> bool {
        *self.sums.none_hidden_at.lock() == Some(oldest)
    }

    /// Says so.
    pub(crate) fn note_none_hidden_at(&self, oldest: SequenceNumber) {
        *self.sums.none_hidden_at.lock() = Some(oldest);
    }

    /// It is more than it was: a snapshot went.
    pub(crate) fn forget_hidden_bytes(&self) {
        *self.sums.hidden_bytes.lock() = None;
    }

    /// Whether all tables have an epoch (V4): those that RocksDB has written before 7.10, and Esker before it knew of them, have none.
    pub(crate) fn has_epochs(&self) -> bool {
        self.tables().all(|(_, table)| table.epoch() > 0)
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|table| table.meta.file_bytes).sum()
    }

    /// The deepest level with a table; 0 when there is none.
    pub(crate) fn deepest_level(&self) -> usize {
        self.levels().rev().find(|(_, tables)| !tables.is_empty()).map_or(0, |(level, _)| level)
    }

    /// Tables of a level that hold user keys of the range; both ends inclusive, `None` is open.
    pub(crate) fn overlapping(&self, level: usize, begin: Option<&[u8]>, end: Option<&[u8]>) -> Vec<Arc<TableFile>> {
        if level == 0 {
            return self.level(0).iter().filter(|table| table.overlaps(begin, end)).cloned().collect();
        }
        self.within(level, begin, end).to_vec()
    }

    /// The same for a level below 0, where they lie side by side.
    pub(crate) fn within(&self, level: usize, begin: Option<&[u8]>, end: Option<&[u8]>) -> &[Arc<TableFile>] {
        let tables = self.level(level);
        let from =
            begin.map_or(0, |begin| tables.partition_point(|table| self.order.is_before(table.largest(), begin)));
        let to = end.map_or(tables.len(), |end| {
            tables.partition_point(|table| self.order.compare(table.smallest(), end).is_le())
        });
        tables.get(from..to).unwrap_or_default()
    }

    /// The table of a level below 0 that may hold `user_key`.
    pub(crate) fn table_for(&self, level: usize, user_key: &[u8]) -> Option<&Arc<TableFile>> {
        let tables = self.level(level);
        let index = tables.partition_point(|table| table.ends_before(user_key));
        tables.get(index).filter(|table| self.order.compare(table.smallest(), user_key).is_le())
    }

    /// The newest entry at or before `lookup` with its user key. Level 0 newest first (V4), then one table a level: the
    /// first hit is the newest, since data only moves down and level by level.
    pub(crate) fn get(&self, lookup: &[u8], fill_cache: bool) -> Result<Option<TableHit>> {
        let user_key = internal_key::user_key(lookup);
        for table in self.level(0) {
            if table.overlaps(Some(user_key), Some(user_key))
                && let Some(hit) = table.table.get(lookup, fill_cache)?
            {
                return Ok(Some(hit));
            }
        }
        for level in 1..self.levels.len() {
            if let Some(table) = self.table_for(level, user_key)
                && let Some(hit) = table.table.get(lookup, fill_cache)?
            {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// Whether the newest entry with the user key of `lookup`, which is behind all of them, is newer than `begun`. Tables without anything newer are not
    /// asked.
    pub(crate) fn is_newer(&self, lookup: &[u8], begun: u64) -> Result<bool> {
        for table in self.tables_for(internal_key::user_key(lookup)) {
            if table.meta.largest_sequence.get() > begun
                && let Some(hit) = table.table.get(lookup, true)?
            {
                return Ok(hit.sequence.get() > begun);
            }
        }
        Ok(false)
    }

    /// Tables that may hold `user_key`, those with newer entries of it first.
    pub(crate) fn tables_for(&self, user_key: &[u8]) -> impl Iterator<Item = &Arc<TableFile>> {
        let in_level_0 = self.level(0).iter().filter(move |table| table.overlaps(Some(user_key), Some(user_key)));
        // RocksDB may have a key's entries in two neighbours, the newer ones in the first.
        in_level_0
            .chain((1..self.levels.len()).flat_map(move |level| self.within(level, Some(user_key), Some(user_key))))
    }

    /// The table that [`get`](Self::get) finds an entry in, if it does without an error: for messages.
    #[cold]
    pub(crate) fn table_with(&self, lookup: &[u8]) -> Option<&Arc<TableFile>> {
        let mut tables = self.tables_for(internal_key::user_key(lookup));
        tables.find(|table| matches!(table.table.get(lookup, false), Ok(Some(_))))
    }

    /// Whether no table below `level` has keys of the range.
    pub(crate) fn is_deepest(&self, level: usize, begin: &[u8], end: &[u8]) -> bool {
        (level + 1..self.levels.len()).all(|deeper| {
            let tables = self.level(deeper);
            let from = tables.partition_point(|table| self.order.is_before(table.largest(), begin));
            tables.get(from).is_none_or(|table| self.order.is_before(end, table.smallest()))
        })
    }

    /// Tables with nothing below them that a rewrite may make smaller once no snapshot asks for what they hold.
    pub(crate) fn droppable(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.tables().filter(|(level, table)| {
            // In level 0 every table is rewritten soon enough.
            *level > 0
                && table.droppable_entries().is_some_and(|count| count > 0)
                && self.is_deepest(*level, table.smallest(), table.largest())
        })
    }

    /// Whether a table below `level` may hold `user_key`: while one does, a tombstone must stay (B1).
    pub(crate) fn may_hold_below(&self, level: usize, user_key: &[u8]) -> bool {
        (level + 1..self.levels.len()).any(|deeper| self.table_for(deeper, user_key).is_some())
    }
}
