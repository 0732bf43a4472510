//! Whole tables of a range of keys go, without a look at what they hold but for pointers into blob files.
//!
//! - D1: a table goes only if everything below it that shares keys with it goes, too, and what follows it in its level and begins with the key
//!   that it ends with: no older value comes to light (B1).
//! - D2: what it pointed to is counted as garbage in the edit that drops it, exactly (B10).
//! - D3: it goes, too, if range deletions in other tables hide all of it from everybody (RD4 of [`range_deletions`](crate::range_deletions)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::blob::accounted_bytes;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber, ValueKind};

use crate::Result;
use crate::entry;
use crate::events::{FileChanges, Job, JobKind};
use crate::family::Family;
use crate::iterate::InternalIterator;
use crate::range_deletions::Covers;
use crate::store::Store;
use crate::version::{Edit, Garbage, TableFile, Version};

/// Tables to drop.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) family: Arc<Family>,
    tables: Vec<(usize, Arc<TableFile>)>,
    /// Whether somebody waits for it, and is told what fails.
    pub(crate) is_asked_for: bool,
}

impl Removal {
    /// The tables of `family` that are hidden from all who see what was written up to `oldest` or more (D3); `None` if there are none that are free.
    pub(crate) fn of_hidden(family: &Arc<Family>, oldest: SequenceNumber) -> Option<Self> {
        let version = family.view.load().version.clone();
        if !version.has_range_deletions() || version.has_none_hidden_at(oldest) {
            return None;
        }
        let covers = Covers::of_version(version.clone(), oldest);
        let hidden = version.tables().filter(|(_, table)| table.is_removable() && covers.hide(table));
        let hidden: Vec<_> = hidden.map(|(level, table)| (level, table.clone())).collect();
        if hidden.is_empty() {
            version.note_none_hidden_at(oldest);
        }
        let tables: Vec<_> = hidden.into_iter().filter(|(_, table)| !table.is_claimed()).collect();
        (!tables.is_empty()).then(|| Self { family: family.clone(), tables, is_asked_for: false })
    }

    /// How it is told.
    pub(crate) fn job(&self, id: u64) -> Job {
        Job::over(id, JobKind::DeleteFiles, &self.family, self.tables.iter().map(|(_, table)| table))
    }

    /// Keeps others away from its tables, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.tables.iter().for_each(|(_, table)| table.set_claimed(claimed));
    }
}

/// The tables below level 0 that lie within the range and may go (D1); both ends inclusive, `None` is open. What is claimed stays.
fn within(version: &Version, begin: Option<&[u8]>, end: Option<&[u8]>) -> Vec<(usize, Arc<TableFile>)> {
    let mut gone: Vec<(usize, Arc<TableFile>)> = Vec::new();
    let mut numbers: BTreeSet<FileNumber> = BTreeSet::new();
    for (level, tables) in version.levels().rev().filter(|(level, _)| *level > 0) {
        let fits = |table: &TableFile| {
            begin.is_none_or(|begin| !version.order().is_before(table.smallest(), begin))
                && end.is_none_or(|end| !version.order().is_before(end, table.largest()))
        };
        let hides = |table: &TableFile| {
            let stays = |below: &Arc<TableFile>| !numbers.contains(&below.number());
            let below = |level| version.within(level, Some(table.smallest()), Some(table.largest()));
            (level + 1..=version.deepest_level()).any(|deeper| below(deeper).iter().any(stays))
        };
        // From the last on: what follows holds what is older of a key that lies in both.
        let mut stays: Option<&TableFile> = None;
        let mut go = Vec::new();
        for table in tables.iter().rev() {
            let hides_next = stays.is_some_and(|next| table.shares_key_with(next));
            stays = if hides_next || !fits(table) || table.is_claimed() || hides(table) { Some(table) } else { None };
            if stays.is_none() {
                go.push((level, table.clone()));
            }
        }
        numbers.extend(go.iter().map(|(_, table)| table.number()));
        gone.extend(go);
    }
    gone
}

impl Store {
    /// See [`Db::delete_files_in_range`](crate::Db::delete_files_in_range).
    pub(crate) fn delete_files_in_range(
        &self,
        family: &Arc<Family>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<u64> {
        self.check_takes_writes()?;
        family.check_not_dropped()?;
        let state = self.state.lock();
        let tables = within(&family.view.load().version, begin, end);
        let bytes = tables.iter().map(|(_, table)| table.meta.file_bytes).sum();
        if !tables.is_empty() {
            self.claim_and_remove(state, Removal { family: family.clone(), tables, is_asked_for: true })?;
            self.trash.purge_again()?;
        }
        // With a family that was dropped meanwhile, everything went.
        family.check_not_dropped()?;
        Ok(bytes)
    }

    /// Runs a removal and installs what comes of it.
    pub(crate) fn run_removal(&self, plan: &Removal) -> Result<FileChanges> {
        let (mut deleted, mut garbage) = (Vec::new(), BTreeMap::new());
        for (level, table) in &plan.tables {
            let counted = table.blob_refs().and_then(|refs| match refs.is_empty() {
                true => Ok(BTreeMap::new()),
                false => count(table),
            });
            match counted {
                Ok(counted) => {
                    for (file, Garbage { count, bytes }) in counted {
                        garbage.entry(file).or_insert_with(Garbage::default).add(count, bytes);
                    }
                    deleted.push((*level, table.clone()));
                }
                Err(error) if plan.is_asked_for => return Err(error),
                // Whoever merges it meets the damage, and tells.
                Err(_) => table.set_not_removable(),
            }
        }
        if deleted.is_empty() {
            return Ok(FileChanges::default());
        }
        self.install_or_discard(&plan.family, Edit { deleted, garbage, ..Edit::default() }, &[])
    }
}

/// What the table points to.
fn count(table: &TableFile) -> Result<BTreeMap<FileNumber, Garbage>> {
    let mut garbage: BTreeMap<FileNumber, Garbage> = BTreeMap::new();
    let mut entries = table.table.iter(false);
    entries.seek_to_first()?;
    while entries.valid() {
        let key = entry::key_of(&entries)?;
        if key.kind == ValueKind::BlobIndex {
            let index = entry::pointer(key.user_key, entries.value())?;
            garbage.entry(index.file).or_default().add(1, accounted_bytes(&index, key.user_key.len()));
        }
        entries.next()?;
    }
    Ok(garbage)
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use crate::version::testing::{install, table};
    use crate::{Db, Options};

    /// Goal (D1): RocksDB may split the entries of a key over two tables of a level: the second does not stay without the first.
    #[test]
    fn a_key_that_is_split_over_two_tables_goes_as_a_whole_or_not_at_all() {
        for (end, is_claimed, goes) in [("k", false, false), ("z", false, true), ("z", true, false)] {
            let disk = SimDisk::new();
            let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
            let db = Db::open_with_env("/db", options, disk.env()).unwrap();
            let newer = table(db.store(), 1, &[("a", 3, Some("-")), ("k", 9, None)]);
            let older = table(db.store(), 1, &[("k", 5, Some("deleted")), ("z", 6, Some("-"))]);
            older.set_claimed(is_claimed);
            install(&db, vec![(6, newer), (6, older)], 9);
            assert_eq!(db.get("k").unwrap().as_deref(), None);
            let family = db.store().family(0).unwrap();
            let bytes = db.store().delete_files_in_range(&family, None, Some(end.as_bytes())).unwrap();
            assert_eq!(bytes > 0, goes);
            assert_eq!(db.get("k").unwrap().as_deref(), None, "to {end}, claimed: {is_claimed}");
            assert_eq!(db.get("a").unwrap().is_some(), !goes);
        }
    }
}
