//! What one piece of background work changes in a column family, and the version that comes of it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::version_edit::{BlobFileGarbage, TableMeta, VersionEdit};

use super::{BlobHandle, TableFile, Version};
use crate::events::{ChangedFile, FileChanges};
use crate::{Error, ErrorKind, Result};

/// Records of a blob file that nothing points to any more: how many, and their bytes with headers and keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Garbage {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Garbage {
    pub(crate) fn add(&mut self, count: u64, bytes: u64) {
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Everything that changes at once.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    /// Tables that go, with the level they are in.
    pub(crate) deleted: Vec<(usize, Arc<TableFile>)>,
    /// Tables that come, with the level they are for.
    pub(crate) added: Vec<(usize, Arc<TableFile>)>,
    /// Blob files that come.
    pub(crate) blobs: Vec<Arc<BlobHandle>>,
    /// Garbage that this work made or found, by blob file.
    pub(crate) garbage: BTreeMap<FileNumber, Garbage>,
    /// Logs before this one hold nothing that the family still needs.
    pub(crate) log_number: Option<FileNumber>,
}

impl Edit {
    /// Tables that this edit brings into being: not those that it only moves to another level.
    pub(crate) fn new_tables(&self) -> Vec<Arc<TableFile>> {
        let gone: BTreeSet<FileNumber> = self.deleted.iter().map(|(_, table)| table.number()).collect();
        self.added.iter().map(|(_, table)| table).filter(|table| !gone.contains(&table.number())).cloned().collect()
    }

    /// Gives an epoch to tables that have none yet and come into `before`, if those that are there have theirs (V4).
    pub(crate) fn give_epochs(&self, before: &Version) {
        if !before.has_epochs() {
            return;
        }
        let of_inputs = self.deleted.iter().map(|(_, table)| table.epoch()).min();
        let mut newest = before.tables().map(|(_, table)| table.epoch()).max().unwrap_or(0);
        for (_, table) in self.added.iter().filter(|(_, table)| table.epoch() == 0) {
            newest = newest.saturating_add(1);
            table.set_epoch(of_inputs.unwrap_or(newest));
        }
    }

    /// What it made of `before`, now that `next` has come of it.
    pub(crate) fn changes(&self, before: &Version, next: &Version) -> FileChanges {
        let table = |(level, table): &(usize, Arc<TableFile>)| ChangedFile::table(*level, table);
        let blobs = self.blobs.iter().filter(|blob| next.blobs.contains_key(&blob.number()));
        let gone = before.blobs.iter().filter(|(number, _)| !next.blobs.contains_key(number));
        FileChanges {
            added: self.added.iter().map(table).chain(blobs.map(|blob| ChangedFile::blob(blob))).collect(),
            dropped: self.deleted.iter().map(table).chain(gone.map(|(_, blob)| ChangedFile::blob(blob))).collect(),
            garbage_bytes: self.garbage.values().fold(0, |sum, garbage| sum.saturating_add(garbage.bytes)),
            ..FileChanges::default()
        }
    }

    /// The edit as the manifest has it.
    pub(crate) fn record(&self, family_id: u32) -> VersionEdit {
        VersionEdit {
            column_family: family_id,
            log_number: self.log_number,
            deleted_files: self.deleted.iter().map(|(level, table)| (*level as u32, table.number())).collect(),
            new_files: self.added.iter().map(|(level, table)| (*level as u32, table.record())).collect(),
            blob_additions: self.blobs.iter().map(|blob| blob.addition.clone()).collect(),
            blob_garbage: garbage_records(&self.garbage),
            ..VersionEdit::default()
        }
    }
}

fn garbage_records(garbage: &BTreeMap<FileNumber, Garbage>) -> Vec<BlobFileGarbage> {
    let record = |(&number, garbage): (&FileNumber, &Garbage)| BlobFileGarbage {
        number,
        count: garbage.count,
        bytes: garbage.bytes,
    };
    garbage.iter().map(record).collect()
}

fn inconsistent(reason: String) -> Error {
    Error::new(ErrorKind::Corruption, format!("the edit does not fit the version: {reason}"))
}

impl Version {
    /// The version after `edit`.
    ///
    /// # Errors
    /// Corruption when the edit does not fit: it deletes what is not there, adds what overlaps (V1), or counts more garbage than there is (V2).
    pub(crate) fn apply(&self, edit: &Edit) -> Result<Self> {
        let mut next = self.clone();
        let gone: BTreeSet<(usize, FileNumber)> =
            edit.deleted.iter().map(|(level, table)| (*level, table.number())).collect();
        let mut removed = 0;
        for (level, tables) in next.levels.iter_mut().enumerate() {
            let before = tables.len();
            tables.retain(|table| !gone.contains(&(level, table.number())));
            removed += before - tables.len();
        }
        if removed != gone.len() {
            return Err(inconsistent(format!("{removed} of the {} tables it deletes are there", gone.len())));
        }
        for (level, table) in &edit.added {
            let Some(tables) = next.levels.get_mut(*level) else {
                return Err(inconsistent(format!("table {} is for level {level}", table.number())));
            };
            tables.push(table.clone());
        }
        let by_epoch = next.has_epochs();
        for (level, tables) in next.levels.iter_mut().enumerate() {
            sort_level(level, tables, by_epoch, self.order)?;
        }
        let is_ranged = |tables: &Vec<Arc<TableFile>>| tables.iter().any(|table| !table.range_deletions().is_empty());
        let ranged = next.levels.iter().enumerate().filter(|(_, tables)| is_ranged(tables));
        next.ranged_levels = ranged.fold(0, |bits, (level, _)| bits | 1 << level);
        for handle in &edit.blobs {
            let addition = &handle.addition;
            next.ledger.add_file(addition.number, addition.total_count, addition.total_bytes)?;
            next.blobs.insert(addition.number, handle.clone());
        }
        for (number, garbage) in &edit.garbage {
            next.ledger.add_garbage(*number, garbage.count, garbage.bytes)?;
        }
        let dead: Vec<_> = next.ledger.iter().filter(|(_, usage)| usage.is_dead()).map(|(number, _)| number).collect();
        for number in dead {
            next.ledger.remove(number);
            next.blobs.remove(&number);
        }
        Ok(next)
    }
}

/// Restores V1, or says why it cannot hold.
fn sort_level(level: usize, tables: &mut [Arc<TableFile>], by_epoch: bool, order: Order) -> Result<()> {
    if level == 0 {
        tables.sort_by_key(|table| {
            let TableMeta { largest_sequence, smallest_sequence, number, .. } = table.meta;
            let epoch = if by_epoch { table.epoch() } else { 0 };
            std::cmp::Reverse((epoch, largest_sequence, smallest_sequence, number))
        });
        return Ok(());
    }
    tables.sort_by(|a, b| order.compare_internal(&a.meta.smallest, &b.meta.smallest));
    for pair in tables.windows(2) {
        if let [before, after] = pair
            && order.compare_internal(&before.meta.largest, &after.meta.smallest).is_ge()
        {
            let (before, after) = (before.number(), after.number());
            return Err(inconsistent(format!("tables {before} and {after} overlap in level {level}")));
        }
    }
    Ok(())
}
