//! Range deletions of a store that RocksDB wrote: an open makes deletions of keys of them, one for each key that they hide.
//!
//! - D1: once all logs are replayed, a key whose newest entry is older than a range deletion that covers it is deleted, as if that came now: no snapshot
//!   tells the difference. Operands that are newer hide nothing: they are merged again, into nothing. What else is newer shows, and hides what is older by itself: also where it is a single deletion, for Esker. RocksDB, which cancels one
//!   with the value right below, leaves undefined what comes of a key that is deleted in both ways.
//! - D2: a store that is open for writing has no range deletion: the tables that had any are written anew without, at their places, and those with
//!   nothing else in them are left out, before CURRENT names a manifest that knows of it (O2). A later one could not tell what
//!   of its range was written since, in the deepest level, where entries forget when that was.
//! - D3: such a table counts as reaching from its first to its last key, as far as this open is concerned. RocksDB's manifest may have it reach as far as its range
//!   deletions, up to the first key of the next table, in the same level.
//!
//! Cost: a walk over what the ranges cover, and for a writer the tables that hold them, once. In memory a deletion for each key, until
//! a memtable is full; for a reader all of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::version_edit::TableMeta;

use crate::Result;
use crate::entry;
use crate::family::{Family, View};
use crate::iterate::{InternalIterator, LevelIterator, MergingIterator};
use crate::options::LEVEL_COUNT;
use crate::output::{Outputs, reference};
use crate::store::{Store, out_of_numbers};
use crate::table::{RangeDeletion, Table};
use crate::version::{Edit, TableFile};

/// Those of all tables, by column family.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u32, Vec<RangeDeletion>>);

impl Ranges {
    /// Takes those of a table of the family `id`, of which the manifest says `meta`; returns how it counts (D3), `None` if it has nothing else.
    pub(super) fn take(&mut self, id: u32, table: &Arc<Table>, meta: &TableMeta) -> Result<Option<TableMeta>> {
        if table.range_deletions().is_empty() {
            return Ok(Some(meta.clone()));
        }
        self.0.entry(id).or_default().extend_from_slice(table.range_deletions());
        let mut entries = table.iter(false);
        entries.seek_to_first()?;
        let smallest = entries.key().to_vec();
        entries.seek_to_last()?;
        let largest = entries.key().to_vec();
        Ok(entries.valid().then(|| TableMeta { smallest, largest, ..meta.clone() }))
    }

    /// Takes one that a log has for the family `id`.
    pub(super) fn add(&mut self, id: u32, range: RangeDeletion) {
        self.0.entry(id).or_default().push(range);
    }

    /// Takes those of `others`, too.
    pub(super) fn extend(&mut self, others: &Self) {
        for (id, ranges) in &others.0 {
            self.0.entry(*id).or_default().extend_from_slice(ranges);
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.0.values().map(|ranges| ranges.len() as u64).sum()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deletes what they hide (D1). `full` is called with a family whose memtable is full.
    pub(super) fn apply(&self, store: &Store, mut full: impl FnMut(&Arc<Family>) -> Result<()>) -> Result<()> {
        let families = store.families.load();
        let mut last = store.visible();
        for (id, ranges) in &self.0 {
            let Some(family) = families.get(id) else { continue };
            // The newest first: operands that are merged again count as newer than all ranges.
            let mut ranges: Vec<_> = ranges.iter().collect();
            ranges.sort_unstable_by_key(|range| Reverse(range.sequence));
            for range in ranges {
                range.delete_hidden(family, &mut last, &mut full)?;
            }
        }
        store.publish(last);
        Ok(())
    }
}

impl RangeDeletion {
    /// Deletes all keys whose newest entry it hides; `last` is the last sequence number.
    fn delete_hidden(
        &self,
        family: &Arc<Family>,
        last: &mut SequenceNumber,
        full: &mut impl FnMut(&Arc<Family>) -> Result<()>,
    ) -> Result<()> {
        let mut entries = entries_of(&family.view.load_full());
        entries.seek(&internal_key::lookup(&self.begin, SequenceNumber::MAX))?;
        let mut before: Option<Vec<u8>> = None;
        // Of the key before, what is newer than this and hides nothing, the newest first; and whether something newer was met that hides it.
        let (mut operands, mut is_decided) = (Vec::new(), false);
        while entries.valid() {
            let InternalKey { user_key, sequence, kind } = entry::key_of(&entries)?;
            if user_key >= &*self.end {
                break;
            }
            if before.as_deref() != Some(user_key) {
                let key = before.get_or_insert_default();
                key.clear();
                key.extend_from_slice(user_key);
                operands.clear();
                is_decided = false;
            }
            // A file that RocksDB took in has one number for all: its ranges hide what is older than the file.
            if !is_decided && sequence >= self.sequence && kind == ValueKind::Merge {
                operands.push(entries.pinned_value());
            } else if !is_decided {
                is_decided = true;
                if sequence < self.sequence && !matches!(kind, ValueKind::Deletion | ValueKind::SingleDeletion) {
                    let mut add = |kind, value: &[u8]| {
                        if *last == SequenceNumber::MAX {
                            return Err(out_of_numbers());
                        }
                        *last = SequenceNumber::new(last.get() + 1);
                        family.view.load().active.memtable.add(*last, kind, user_key, value);
                        Ok(())
                    };
                    add(ValueKind::Deletion, b"")?;
                    operands.iter().rev().try_for_each(|operand| add(ValueKind::Merge, operand))?;
                    if family.view.load().active.memtable.allocated_bytes() as u64 >= family.memtable_bytes() {
                        full(family)?;
                    }
                }
            }
            entries.next()?;
        }
        Ok(())
    }
}

/// All entries of a view.
fn entries_of(view: &View) -> MergingIterator {
    let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
    for generation in view.generations() {
        children.push(Box::new(generation.memtable.iter()));
    }
    for table in view.version.level(0) {
        children.push(Box::new(table.table.iter(false)));
    }
    for level in 1..LEVEL_COUNT {
        children.push(Box::new(LevelIterator::of_version(view.version.clone(), level, false)));
    }
    MergingIterator::new(children)
}

/// Writes the tables that have range deletions anew, without them (D2).
pub(super) fn rewrite_tables(store: &Store) -> Result<()> {
    for family in store.families.load().values() {
        let view = family.view.load_full();
        let tables = view.version.tables().filter(|(_, table)| !table.table.range_deletions().is_empty());
        let deleted: Vec<_> = tables.map(|(level, table)| (level, table.clone())).collect();
        if deleted.is_empty() {
            continue;
        }
        let mut outputs = Outputs::new(store, &**family, 0, false);
        for (level, table) in &deleted {
            outputs.begin_place_of(*level, table.epoch())?;
            rewrite(table, &mut outputs)?;
        }
        let edit = Edit { deleted, ..outputs.finish()?.edit };
        let version = Arc::new(view.version.apply(&edit)?);
        family.view.store(Arc::new(View { version, ..View::clone(&view) }));
    }
    Ok(())
}

fn rewrite(table: &TableFile, outputs: &mut Outputs<'_>) -> Result<()> {
    let mut entries = table.table.iter(false);
    entries.seek_to_first()?;
    while entries.valid() {
        let key = entry::key_of(&entries)?;
        let (internal, value) = (entries.key(), entries.value());
        let added = match reference(&key, value)? {
            Some(index) => outputs.add_reference(&key, internal, value, &index),
            None => outputs.add(&key, internal, value),
        };
        added.map_err(|error| entry::located(error, entries.place()))?;
        entries.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
