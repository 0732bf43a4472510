//! Check: reads every byte and says what is wrong, going on after each damage, also where it keeps the store from being opened.
//!
//! Cost: one sequential read of every table and blob file, and one read of each separated value; no cache is filled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::Env;
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::accounted_bytes;
use esker_format::rocksdb::blob_refs::{self, BlobRefs};
use esker_format::rocksdb::internal_key::{FileNumber, InternalKey};

use crate::entry;
use crate::family::{Family, View};
use crate::iterate::InternalIterator as _;
use crate::open::{self, LeftOut, Recovery};
use crate::options::Options;
use crate::output::reference;
use crate::repair;
use crate::store::Store;
use crate::version::{Garbage, TableFile, Version, current_manifest};
use crate::{Error, ErrorKind, Result};

/// How far a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Bytes of files checked.
    pub bytes_done: u64,
    /// Bytes of files to check.
    pub bytes_total: u64,
}

/// What a check read, and what it found wrong.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Check {
    /// Tables read whole, without damage.
    pub tables: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their entries.
    pub entries: u64,
    /// Blob files read.
    pub blob_files: u64,
    /// Their values.
    pub blobs: u64,
    /// Bytes of all these files.
    pub bytes: u64,
    /// Damage, with path and offset. Empty: the store is sound.
    pub errors: Vec<Error>,
    /// Entries, among [`entries`](Self::entries), that are whole and that Esker cannot show: wide-column entities, values with a time of
    /// writing, and kinds that a later RocksDB has. Reads that come to one are refused as [`ErrorKind::UnsupportedFormat`].
    pub unsupported_entries: u64,
    /// What is no damage and cannot be read all the same, each [`ErrorKind::UnsupportedFormat`]: of such entries the first of each table. A
    /// repair does not mend it.
    pub unsupported: Vec<Error>,
    /// Files of the directory that nothing names: work under way when the check looked, or what a crash has left. The
    /// next open for writing removes those.
    pub orphans: Vec<PathBuf>,
    /// What the open found in the logs, which it reads whole.
    pub recovery: Recovery,
    /// Where CURRENT, or the manifest that it names, is damaged or gone: by what the rest was checked all the same.
    pub without_current: Option<WithoutCurrent>,
}

/// A check of a store of which CURRENT, or the manifest that it names, is damaged or gone; and what a repair would make of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutCurrent {
    /// Another manifest, or the one that CURRENT should name, which is whole: the store was checked by that, and a repair goes by it. The counts
    /// below are 0 then: [`errors`](Check::errors) has all that is lost.
    ///
    /// `None`: there is none. Each table, blob file and log was checked by itself. It was not checked which of them the store needs, whether it needs one that
    /// is not there, levels, nor what the ledger says of blob files; and what was deleted or overwritten may come back by a repair.
    pub manifest: Option<PathBuf>,
    /// Tables of which a repair gets nothing back, or of which nothing says for which column family they are.
    pub lost_tables: u64,
    /// Blocks of other tables that a repair does not get back.
    pub lost_blocks: u64,
    /// Entries of tables without damage, and of logs, whose value a repair does not get back.
    pub lost_values: u64,
    /// Bytes of logs that a repair does not get back.
    pub lost_log_bytes: u64,
}

impl WithoutCurrent {
    /// Whether a repair gets back all that is in the files. Where there is a [`manifest`](Self::manifest), [`Check::errors`] says it.
    pub const fn has_lost_nothing(&self) -> bool {
        self.lost_tables == 0 && self.lost_blocks == 0 && self.lost_values == 0 && self.lost_log_bytes == 0
    }
}

/// The check of one column family.
struct FamilyCheck<'a> {
    family: &'a Family,
    view: Arc<View>,
    check: &'a mut Check,
    /// What the store was opened without.
    left_out: &'a LeftOut,
    progress: &'a mut dyn FnMut(CheckProgress),
    bytes_total: u64,
    /// What tables point to, by blob file: to compare with the ledger (B10). `None` once that is not all, though nothing is damaged.
    referenced: Option<BTreeMap<FileNumber, Garbage>>,
}

/// What one pass over a table gathers.
struct Pass<'a> {
    version: &'a Version,
    left_out: &'a LeftOut,
    path: &'a Path,
    smallest: Option<Vec<u8>>,
    largest: Vec<u8>,
    /// What it points to, by blob file.
    referenced: BTreeMap<FileNumber, Garbage>,
    /// By blob file, the first bad pointer and how many there are: a lost file may have millions.
    dangling: BTreeMap<FileNumber, (Error, u64)>,
    /// The first entry that cannot be shown, and how many there are.
    unsupported: Option<(Error, u64)>,
}

/// Whether these are the first and last keys that the manifest says; with range deletions, it may reach farther.
fn has_bounds(table: &TableFile, smallest: Option<&[u8]>, largest: &[u8]) -> bool {
    let meta = &table.meta;
    let Some(smallest) = smallest else { return !table.table.range_deletions().is_empty() };
    if table.table.range_deletions().is_empty() {
        return smallest == meta.smallest && largest == meta.largest;
    }
    let order = table.table.order();
    order.compare_internal(smallest, &meta.smallest).is_ge() && order.compare_internal(largest, &meta.largest).is_le()
}

impl<'a> Pass<'a> {
    fn new(version: &'a Version, left_out: &'a LeftOut, path: &'a Path) -> Self {
        let (referenced, dangling) = (BTreeMap::new(), BTreeMap::new());
        Self { version, left_out, path, smallest: None, largest: Vec::new(), referenced, dangling, unsupported: None }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.smallest.get_or_insert_with(|| key.to_vec());
        self.largest.clear();
        self.largest.extend_from_slice(key);
        let pointer = InternalKey::decode(key).map_err(|error| entry::unreadable_key(key, error)).and_then(|parsed| {
            if !entry::is_served(parsed.kind) {
                return Err(entry::not_served(parsed.user_key, parsed.kind));
            }
            Ok(reference(&parsed, value)?.map(|index| (parsed, index)))
        });
        let (parsed, index) = match pointer {
            Ok(Some(pointer)) => pointer,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::UnsupportedFormat => {
                self.unsupported.get_or_insert((error, 0)).1 += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.referenced.entry(index.file).or_default().add(1, accounted_bytes(&index, parsed.user_key.len()));
        let read = match self.version.blobs().get(&index.file) {
            Some(blob) => blob.file.read(parsed.user_key, &index).map(drop),
            // Told already, once for all who point there.
            None if self.left_out.files.contains(&FileName::Blob(index.file)) => Ok(()),
            None => Err(Error::corruption(self.path, 0, format!("blob file {} is not there", index.file))),
        };
        if let Err(error) = read {
            self.dangling.entry(index.file).or_insert((error, 0)).1 += 1;
        }
        Ok(())
    }
}

/// See [`Db::check_store`](crate::Db::check_store).
pub(crate) fn check_store(
    dir: &Path,
    options: Options,
    env: Env,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Check> {
    let env = open::env_of(dir, &options, env)?;
    match open::read_only(dir, options.clone(), env.clone()) {
        Ok(opened) => return opened.store.check(&opened.left_out, progress),
        Err(error) if open::is_of_a_file(&error) || open::is_unreadable(&error) => {}
        Err(error) => return Err(error),
    }
    match open::open_what_is_whole(dir, options.clone(), env.clone()) {
        Ok(opened) => opened.store.check(&opened.left_out, progress),
        Err(error) if open::is_of_a_file(&error) => repair::check_without_current(dir, options, env, error, progress),
        Err(error) => Err(error),
    }
}

impl Store {
    /// See [`Db::check`](crate::Db::check). `left_out` is what the store was opened without.
    pub(crate) fn check(&self, left_out: &LeftOut, progress: &mut dyn FnMut(CheckProgress)) -> Result<Check> {
        self.check_open()?;
        let families = self.families.load_full();
        let views: Vec<_> = families.values().map(|family| (family, family.view.load_full())).collect();
        let bytes_total = views.iter().map(|(_, view)| bytes_of(view)).fold(0, u64::saturating_add);
        let (errors, recovery) = (left_out.damage.clone(), self.recovery.clone());
        let mut check = Check { errors, recovery, ..Check::default() };
        progress(CheckProgress { bytes_done: 0, bytes_total });
        for (family, view) in views {
            let referenced = left_out.has_no_table().then(BTreeMap::new);
            let mut one = FamilyCheck { family, view, check: &mut check, left_out, progress, bytes_total, referenced };
            one.tables()?;
            one.blobs()?;
            one.ledger();
        }
        check.orphans = self.orphans(left_out)?;
        Ok(check)
    }

    /// Files that are a store's by their name, and nothing in this one.
    fn orphans(&self, left_out: &LeftOut) -> Result<Vec<PathBuf>> {
        let entries = self.env.files.list(&self.dir)?;
        let manifest = match left_out.manifest {
            Some(manifest) => manifest,
            None => current_manifest(&*self.env.files, &self.dir)?,
        };
        let names: Vec<FileName> = entries.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
        // What came since the listing is not in it; what is in it has got its name in the version by now, or has none.
        let views: Vec<_> = self.families.load().values().map(|family| family.view.load_full()).collect();
        let wals = self.state.lock().wals.clone();
        let mut options: Vec<_> = names.iter().filter(|name| matches!(name, FileName::Options(_))).collect();
        options.sort_unstable();
        let old_options: Vec<_> = options.iter().rev().skip(2).collect();
        let tables: BTreeSet<FileNumber> =
            views.iter().flat_map(|view| view.version.tables().map(|(_, table)| table.number())).collect();
        let is_orphan = |name: &&FileName| match **name {
            FileName::Table(number) | FileName::LegacyTable(number) => {
                !tables.contains(&number) && !left_out.files.contains(&FileName::Table(number))
            }
            FileName::Blob(number) => {
                !views.iter().any(|view| view.blob(number).is_some()) && !left_out.files.contains(*name)
            }
            FileName::Wal(number) => !wals.contains_key(&number),
            FileName::Manifest(number) => number != manifest,
            FileName::Options(_) => old_options.contains(&name),
            FileName::Temporary(_) | FileName::OptionsTemporary(_) => **name != open::BALLAST,
            _ => false,
        };
        Ok(names.iter().filter(is_orphan).map(|name| self.path_of(name)).collect())
    }
}

fn bytes_of(view: &View) -> u64 {
    let tables = view.version.table_sums().bytes;
    let blobs: u64 = view.version.blobs().values().map(|blob| blob.addition.total_bytes).sum();
    tables.saturating_add(blobs)
}

/// What the memtables point to, as far as they can be read: what cannot is found by whoever replays the logs.
fn references_in_memory(view: &View) -> BTreeMap<FileNumber, Garbage> {
    let mut referenced: BTreeMap<FileNumber, Garbage> = BTreeMap::new();
    for generation in view.generations() {
        let mut at = generation.memtable.iter();
        let mut is_whole = at.seek_to_first().is_ok();
        while is_whole && at.valid() {
            let pointer =
                InternalKey::decode(at.key()).ok().and_then(|key| Some((key, reference(&key, at.value()).ok()??)));
            if let Some((key, index)) = pointer {
                referenced.entry(index.file).or_default().add(1, accounted_bytes(&index, key.user_key.len()));
            }
            is_whole = at.next().is_ok();
        }
    }
    referenced
}

/// What a table says that it points to, against what it does (B10).
fn wrong_blob_refs(table: &TableFile, referenced: &BTreeMap<FileNumber, Garbage>) -> Option<Error> {
    let path = table.table.path();
    let written = blob_refs::decode(table.written_blob_refs()?);
    let found: BlobRefs = referenced.iter().map(|(file, sum)| (*file, sum.bytes)).collect();
    match written {
        Ok(written) if written == found => None,
        Ok(written) => {
            let of = |sums: &BlobRefs, file| sums.get(&file).copied().unwrap_or(0);
            let (says, points) = (|file| of(&written, file), |file| of(&found, file));
            let mut files = written.keys().chain(found.keys()).copied();
            let file = files.find(|file| says(*file) != points(*file))?;
            let reason = format!(
                "its properties say that it points to {} bytes of blob file {file}, its entries point to {}",
                says(file),
                points(file)
            );
            Some(Error::corruption(path, 0, reason))
        }
        Err(error) => Some(Error::decode(path, 0, "reading what the table points to", error)),
    }
}

impl FamilyCheck<'_> {
    /// Keeps damage, and what is not supported; gives up on everything else.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if open::is_of_a_file(&error) => {
                self.check.errors.push(error);
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::UnsupportedFormat => {
                self.check.unsupported.push(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.check.bytes = self.check.bytes.saturating_add(bytes);
        (self.progress)(CheckProgress { bytes_done: self.check.bytes, bytes_total: self.bytes_total });
    }

    fn tables(&mut self) -> Result<()> {
        let view = self.view.clone();
        for (level, table) in view.version.tables() {
            let mut pass = Pass::new(&view.version, self.left_out, table.table.path());
            let mut damage = Vec::new();
            let result = table.table.check_on(&mut |key, value| pass.take(key, value), &mut damage);
            let Pass { smallest, largest, referenced, dangling, unsupported, path, .. } = pass;
            if let Some((error, count)) = unsupported {
                self.check.unsupported_entries = self.check.unsupported_entries.saturating_add(count);
                let error = entry::located(error, Some((path, None)));
                let error = if count == 1 { error } else { error.while_doing(format!("the first of {count} entries")) };
                self.note::<()>(Err(error))?;
            }
            // What was not read whole points to more than was seen: no damage of its own.
            let is_partial = result.is_err() || !damage.is_empty();
            for error in damage {
                self.note::<()>(Err(error))?;
            }
            for (file, (error, count)) in dangling {
                let pointers = if count == 1 { "pointer".to_owned() } else { format!("first of {count} bad pointers") };
                let what = format!("following the {pointers} of {} into blob file {file}", path.display());
                self.note::<()>(Err(error.while_doing(what)))?;
            }
            if let Some(read) = self.note(result)? {
                self.check.tables += u64::from(!is_partial);
                self.check.blocks += read.blocks;
                self.check.entries += read.entries;
                if !is_partial && !has_bounds(table, smallest.as_deref(), &largest) {
                    let reason = format!("holds other keys than the manifest says of this table of level {level}");
                    self.note::<()>(Err(Error::corruption(path, 0, reason)))?;
                }
            }
            if is_partial {
                self.referenced = None;
            } else if let Some(error) = wrong_blob_refs(table, &referenced) {
                self.note::<()>(Err(error))?;
            }
            for (file, sum) in referenced {
                if let Some(all) = &mut self.referenced {
                    all.entry(file).or_default().add(sum.count, sum.bytes);
                }
            }
            self.advance(table.meta.file_bytes);
        }
        Ok(())
    }

    fn blobs(&mut self) -> Result<()> {
        let view = self.view.clone();
        for blob in view.version.blobs().values() {
            let usage = view.version.ledger().get(blob.number()).unwrap_or_default();
            let result = blob.file.check(usage.garbage_count > 0);
            if let Some(read) = self.note(result)? {
                self.check.blob_files += 1;
                self.check.blobs += read.blobs;
            }
            self.advance(blob.addition.total_bytes);
        }
        Ok(())
    }

    /// Live bytes as tables have them, against live bytes as the manifest has them.
    fn ledger(&mut self) {
        let Some(referenced) = &mut self.referenced else { return };
        let mut in_memory = None;
        for (number, usage) in self.view.version.ledger().iter() {
            let mut pointed_to = referenced.remove(&number).unwrap_or_default();
            let live = Garbage { count: usage.live_count(), bytes: usage.live_bytes() };
            if pointed_to != live {
                // An open without room for tables leaves what leads there in the logs (O4 of `open`).
                let in_memory = in_memory.get_or_insert_with(|| references_in_memory(&self.view));
                let more = in_memory.get(&number).copied().unwrap_or_default();
                pointed_to.add(more.count, more.bytes);
            }
            if pointed_to != live {
                let reason = format!(
                    "column family {:?}: the manifest says {} live values of {} bytes, tables point to {} of {} bytes",
                    self.family.name, live.count, live.bytes, pointed_to.count, pointed_to.bytes
                );
                let path = self.view.version.blobs().get(&number).map(|blob| blob.file.path().to_owned());
                self.check.errors.push(Error::corruption(&path.unwrap_or_default(), 0, reason));
            }
        }
    }
}

#[cfg(test)]
mod tests;
