//! Moves what lives in blob files that are mostly garbage: one pass over the tables that point there, in key order.
//!
//! - L1: each table is rewritten in its own level, within its own range of keys, so that nothing that is compacted
//!   meanwhile can come to overlap with it; in level 0 it keeps its place in time, as its newest entry stays.
//! - L2: deletions stay: only a compaction knows whether what they hide is gone.
//!
//! Cost: the keys of these tables once, each value that is moved once; no lookup, nothing through the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::pacer::Class;

use super::{Relocation, Reserved};
use crate::compaction::Sieve;
use crate::events::{FileChanges, Job, JobKind};
use crate::iterate::InternalIterator;
use crate::operands::Fold;
use crate::output::{Outputs, pour, reference};
use crate::range_deletions::{Fragments, Shadow};
use crate::store::Store;
use crate::version::{Edit, Garbage, TableFile};
use crate::{Error, ErrorKind, Result};

impl Relocation {
    /// Whether one of its tables is written again: one that says so itself may point into no victim.
    pub(super) fn rewrites(&self, table: &TableFile) -> Result<bool> {
        Ok(table.blob_refs()?.keys().any(|file| self.victims.contains(file)))
    }

    /// How it is told.
    pub(crate) fn job(&self, id: u64) -> Job {
        let kind = if self.is_step_home { JobKind::FallBack } else { JobKind::Relocation };
        let job = Job::over(id, kind, &self.family, self.tables.iter().map(|(_, table)| table));
        Job { blob_files: self.victims.len(), ..job }
    }
}

impl Store {
    /// Runs a pass and installs what comes of it. Its tables are claimed by the caller.
    pub(crate) fn run_relocation(&self, plan: &Relocation, reserved: &Arc<Reserved>) -> Result<FileChanges> {
        if plan.family.is_dropped() {
            return Ok(FileChanges::default());
        }
        let _pass = self.begin_pass();
        let edit =
            relocate(plan, reserved, self).map_err(|error| error.while_doing("moving values out of blob files"))?;
        let changes = self.install_or_discard(&plan.family, edit, &[])?;
        self.counters.relocations.add(1);
        Ok(changes)
    }
}

/// Writes the files. Touches nothing else.
fn relocate(plan: &Relocation, reserved: &Arc<Reserved>, store: &Store) -> Result<Edit> {
    let mut outputs = Outputs::new(store, &plan.family, 0, false)
        .sharing(reserved.clone())
        .at_the_pace_of(Class::Compaction)
        .syncing_beside()
        .giving_way();
    let mut garbage = BTreeMap::new();
    let mut deleted = Vec::new();
    for (level, table) in &plan.tables {
        if !plan.rewrites(table)? {
            continue;
        }
        outputs.begin_place_of(*level, table.epoch(), range_deletions(plan, *level, table))?;
        if plan.is_step_home {
            outputs.split_evenly(table.meta.file_bytes + plan.version.bytes_into(&plan.victims, [table]));
        }
        rewrite(plan, store, (*level, table), &mut outputs, &mut garbage)?;
        deleted.push((*level, table.clone()));
    }
    let files = outputs.finish()?;
    store.counters.reclaim_bytes.add(files.table_bytes + files.blob_bytes);
    Ok(Edit { deleted, garbage, ..files.edit })
}

/// Those of a table of `level`. Where RocksDB divided a key over it and the next, they end before that key, as the tables do: the next has them, too.
fn range_deletions(plan: &Relocation, level: usize, table: &TableFile) -> Fragments {
    let is_divided = level > 0 && plan.version.within(level, Some(table.largest()), Some(table.largest())).len() > 1;
    let end = is_divided.then(|| table.largest());
    table.range_deletions().within(None, end)
}

fn rewrite(
    plan: &Relocation,
    store: &Store,
    (level, table): (usize, &TableFile),
    outputs: &mut Outputs<'_>,
    garbage: &mut BTreeMap<FileNumber, Garbage>,
) -> Result<()> {
    let snapshots = store.snapshots.sequences();
    // In level 0 the newest entry stays, hidden or not (L1).
    let shadow = match level {
        0 => Shadow::default(),
        _ => plan.version.shadow_over((Some(table.smallest()), Some(table.largest())), &snapshots),
    };
    let mut sieve = Sieve::new(plan.family.order, &snapshots, |_| true).under(shadow);
    let mut entries = table.table.iter(false);
    entries.seek_to_first()?;
    // Values move here, and nothing else changes.
    pour(&mut entries, None, &mut sieve, &mut Fold::none(), |key, internal, value| {
        // Whoever closes the store does not wait for the end of a pass.
        store.check_open()?;
        let index = match reference(key, value)? {
            Some(index) if plan.victims.contains(&index.file) => index,
            Some(index) => return outputs.add_reference(key, internal, value, &index),
            None => return outputs.add(key, internal, value),
        };
        let Some(blob) = plan.version.blobs().get(&index.file) else {
            let reason = format!("a value lies in blob file {}, which the store does not have", index.file);
            return Err(Error::new(ErrorKind::Corruption, reason));
        };
        // Before anything is done for it: a damaged pointer may say any length.
        let extent = blob.file.extent(key.user_key, &index)?;
        let bytes = extent.end - extent.start;
        store.pace(bytes)?;
        garbage.entry(index.file).or_default().add(1, bytes);
        outputs.add_moved(key, &index, &blob.file)
    })?;
    for (file, dropped) in sieve.into_garbage() {
        garbage.entry(file).or_default().add(dropped.count, dropped.bytes);
    }
    Ok(())
}
