//! The files of a directory, seen from open: is it a store, what may be created, what must be there, what may go.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::metered::Need;
use esker_env::{DirEntry, Env, FileKind, durable, open_sealed};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey};
use esker_format::rocksdb::log::{BLOCK_BYTES, Fragment, FragmentKind, log_number_tag, next_fragment};
use esker_format::rocksdb::log_note::LogNote;
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::version_edit::BlobFileAddition;
use esker_format::{DecodeError, cask, raft};
use esker_log::copying::UNFINISHED;

use super::before::OpenFiles;
use super::left_out::Sieve;
use super::replay::Logs;
use super::tables::OpenTables;
use crate::blob::BlobFile;
use crate::options::{FamilyOptions, OptionsInFile, wal_dir_line};
use crate::output::reference;
use crate::range_deletions::RangeDeletion;
use crate::reclaim::Trash;
use crate::repair::UNFINISHED as UNFINISHED_REPAIR;
use crate::store::Store;
use crate::version::{BlobHandle, Edit, Garbage, Recovered, RecoveredFamily, TableFile, Version, current_manifest};
use crate::{Error, ErrorKind, Result};

/// Whether `dir` holds a store: whether it has a CURRENT.
///
/// # Errors
/// `InvalidArgument` if `dir` is no directory; `Corruption` if it is half repaired.
pub(super) fn store_exists(env: &Env, dir: &Path) -> Result<bool> {
    match env.files.metadata(dir) {
        Ok(metadata) if metadata.kind != FileKind::Directory => {
            Err(Error::invalid_argument("a store is a directory, and this is none; give another path").with_path(dir))
        }
        Ok(_) if durable::is_there(&*env.files, &dir.join(UNFINISHED_REPAIR))? => {
            let reason = "a repair of this store was not finished; run it again";
            Err(Error::new(ErrorKind::Corruption, reason).with_path(dir))
        }
        Ok(_) => Ok(durable::is_there(&*env.files, &dir.join(FileName::Current.to_string()))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a repair, or a checkpoint or backup, was not finished in `dir`: what lies there need not be whole.
pub(crate) fn is_half_made(env: &Env, dir: &Path) -> Result<bool> {
    let is_there = |name| durable::is_there(&*env.files, &dir.join(name));
    Ok(is_there(UNFINISHED_REPAIR)? || is_there(UNFINISHED)?)
}

/// There is no store, and none was asked for.
pub(super) fn no_store(dir: &Path) -> Error {
    let reason = "there is no store here; check the path, or set create_if_missing to make one";
    Error::new(ErrorKind::NotFound, reason).with_path(dir)
}

/// Refuses to make a store where none was asked for, or among other files.
pub(super) fn may_create(env: &Env, dir: &Path, create_if_missing: bool, logs_dir: Option<&Path>) -> Result<()> {
    let mut strangers = strangers(env, dir)?;
    // An attempt that died has made it, or somebody mounted it.
    let within = logs_dir.and_then(|logs_dir| logs_dir.strip_prefix(dir).ok()?.components().next());
    strangers.retain(|name| within.is_none_or(|within| within.as_os_str() != name.as_str()));
    let is_of_a_store = |name: &&String| {
        FileName::parse(name).is_some_and(|name| name.is_of_a_store() && !matches!(name, FileName::Options(_)))
    };
    let is_ours = strangers.iter().any(|name| *name == UNFINISHED || is_of_a_store(&name));
    if let Some(reason) = other_store(&strangers).filter(|_| !is_ours) {
        return Err(Error::invalid_argument(reason).with_path(dir));
    }
    let telling = strangers.iter().find(|name| *name == UNFINISHED).or_else(|| strangers.iter().find(is_of_a_store));
    if let Some(stranger) = telling.or(strangers.first()) {
        return Err(match FileName::parse(stranger) {
            None if stranger == UNFINISHED => {
                let reason = "a checkpoint or backup was not finished here; make it again, or remove the directory";
                Error::new(ErrorKind::Corruption, reason).with_path(dir)
            }
            Some(
                FileName::Table(_)
                | FileName::LegacyTable(_)
                | FileName::Blob(_)
                | FileName::Wal(_)
                | FileName::Manifest(_),
            ) => {
                let reason =
                    format!("holds {stranger:?} but no CURRENT to say what is live; repair it, or restore a backup");
                Error::new(ErrorKind::Corruption, reason).with_path(dir)
            }
            _ if !create_if_missing => no_store(dir),
            _ => {
                let reason = format!("is no store and holds {stranger:?}; give an empty or a new directory");
                Error::invalid_argument(reason).with_path(dir)
            }
        });
    }
    if create_if_missing { Ok(()) } else { Err(no_store(dir)) }
}

/// What there is instead, if files of these names are another engine's.
fn other_store(names: &[String]) -> Option<&'static str> {
    names.iter().find_map(|name| match (cask::FileName::parse(name), raft::file_name::FileName::parse(name)) {
        (Some(cask::FileName::Manifest | cask::FileName::Data(_)), _) => Some("there is a Cask; open it with Cask"),
        (_, Some(raft::file_name::FileName::Log(_))) => Some("there is a Raft log; open it with RaftLog"),
        _ => None,
    })
}

/// Blocks that are kept for when others have filled the disk. RocksDB removes a file of such a name when it opens the store (not of number 0), which a process may
/// have left that died.
pub(crate) const BALLAST: FileName = FileName::Temporary(FileNumber::new(1));

/// How long the manifest is that CURRENT names.
pub(super) fn manifest_bytes(store: &Store) -> Result<u64> {
    let current = current_manifest(&*store.env.files, &store.dir)?;
    Ok(store.env.files.metadata(&store.path_of(&FileName::Manifest(current)))?.len)
}

/// What the file at `path` is written for.
pub(super) fn need(path: &Path) -> Need {
    match path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse) {
        Some(FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_)) => Need::Work,
        Some(FileName::Wal(_)) => Need::Log,
        _ => Need::Vital,
    }
}

/// Names that a creation, even a failed one, does not leave.
fn strangers(env: &Env, dir: &Path) -> Result<Vec<String>> {
    let entries = match env.files.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names = entries.into_iter().map(|entry| entry.name);
    let is_harmless = |name: &String| {
        *name == durable::OF_THE_FILE_SYSTEM || FileName::parse(name).is_some_and(|name| is_left_by_creation(&name))
    };
    Ok(names.filter(|name| !is_harmless(name)).collect())
}

fn is_left_by_creation(name: &FileName) -> bool {
    match name {
        FileName::Lock | FileName::Identity => true,
        FileName::Manifest(number) | FileName::Temporary(number) => number.get() == 1,
        _ => false,
    }
}

/// Removes what a creation that failed left, except the lock, which is held.
pub(super) fn remove_failed_creation(env: &Env, dir: &Path) -> Result<()> {
    for entry in env.files.list(dir)? {
        let parsed = FileName::parse(&entry.name);
        if parsed.is_some_and(|name| is_left_by_creation(&name) && !matches!(name, FileName::Lock)) {
            env.files.remove(&dir.join(&entry.name))?;
        }
    }
    Ok(())
}

/// The logs in a store's directory.
pub(super) fn logs_in(env: &Env, dir: &Path) -> Result<BTreeSet<FileNumber>> {
    let names = env.files.list(dir)?.into_iter().filter_map(|entry| FileName::parse(&entry.name));
    Ok(names.filter_map(|name| if let FileName::Wal(number) = name { Some(number) } else { None }).collect())
}

/// What lies in a store's directory, as far as the names are known.
pub(super) struct Listing {
    pub(super) names: Vec<FileName>,
    /// The highest number that a file has.
    pub(super) highest_number: u64,
    logs: BTreeMap<FileNumber, u64>,
}

impl Listing {
    pub(super) fn of(env: &Env, dir: &Path) -> Result<Self> {
        let entries = env.files.list(dir)?;
        let names: Vec<_> = entries.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
        let highest_number = names.iter().filter_map(FileName::number).map(FileNumber::get).max().unwrap_or(0);
        let mut logs = BTreeMap::new();
        for name in &names {
            let FileName::Wal(number) = name else { continue };
            let path = dir.join(name.to_string());
            match env.files.metadata(&path) {
                Ok(metadata) => drop(logs.insert(*number, metadata.len)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    // Else a writer took it away meanwhile.
                    if env.files.list(dir)?.iter().any(|entry| entry.name == name.to_string()) {
                        let reason = "a link that leads nowhere, in the place of a log: put back what it led to";
                        return Err(Error::corruption(&path, 0, reason));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { names, highest_number, logs })
    }

    /// Logs from `first` on, with their lengths.
    pub(super) fn logs_from(&self, first: FileNumber) -> impl Iterator<Item = (FileNumber, u64)> + '_ {
        self.logs.range(first..).map(|(&number, &bytes)| (number, bytes))
    }

    /// Logs before `first` that RocksDB would read for transactions, if it is told to have any: those from `kept_from` on, which its manifests
    /// say since 5.13. Where no OPTIONS file tells, that they say so is enough.
    pub(super) fn logs_kept_before(
        &self,
        first: FileNumber,
        kept_from: FileNumber,
        allows_2pc: Option<bool>,
    ) -> impl Iterator<Item = FileNumber> + '_ {
        let may_have = allows_2pc.unwrap_or(kept_from > FileNumber::default());
        let from = if may_have { kept_from.min(first) } else { first };
        self.logs.range(from..first).map(|(&number, _)| number)
    }

    /// Whether there are blob files that the manifest does not name.
    pub(super) fn has_blobs_besides(&self, recovered: &Recovered) -> bool {
        let is_named = |number| recovered.families.values().any(|family| family.blobs.contains_key(number));
        self.names.iter().any(|name| matches!(name, FileName::Blob(number) if !is_named(number)))
    }

    /// Refuses a store whose logs are not where they are said to be, and one that would take those of another for its own.
    pub(super) fn check_logs(
        &self,
        env: &Env,
        dir: &Path,
        in_file: &OptionsInFile,
        first: FileNumber,
        chosen: Option<&Path>,
    ) -> Result<()> {
        if let Some(chosen) = chosen {
            self.refuse_logs_of_others(env, dir, first, chosen)?;
        }
        match &in_file.wal_dir {
            Some(logs_dir) => self.refuse_logs_elsewhere(env, dir, logs_dir, first, chosen),
            None => Ok(()),
        }
    }

    /// Refuses a store whose logs are elsewhere, where nobody said so: without them, what they hold would be missing.
    ///
    /// The directory that the OPTIONS file names counts only if no log that is needed was found, or if there are more of them in it, and no store: older
    /// releases of RocksDB always name one, and a store may have been moved since, or be a copy, which would take the logs of the one that it is a copy of.
    fn refuse_logs_elsewhere(
        &self,
        env: &Env,
        dir: &Path,
        logs_dir: &Path,
        first: FileNumber,
        chosen: Option<&Path>,
    ) -> Result<()> {
        // RocksDB writes down what it was given: that may be relative.
        let said = env.files.absolute(logs_dir)?;
        if [Some(dir), chosen].contains(&Some(&said)) {
            return Ok(());
        }
        let is_missing =
            |entry: &DirEntry| needed(env, &said, entry, first).is_some_and(|number| !self.logs.contains_key(&number));
        let is_current = |entry: &DirEntry| FileName::parse(&entry.name) == Some(FileName::Current);
        let there = env.files.list(&said);
        let are_all_here = match self.logs_from(first).next() {
            // Some may have stayed here while what came later went there (O4).
            Some(_) => !there.is_ok_and(|there| !there.iter().any(is_current) && there.iter().any(is_missing)),
            // Where nothing is at all, it is not mounted (`check_logs_dir`).
            None => there.is_ok_and(|there| !there.is_empty() && !there.iter().any(is_missing)),
        };
        if are_all_here {
            return Ok(());
        }
        let reason = format!(
            "the logs of the store lie in another directory, {}, or did; say so (wal_dir), or move them here",
            logs_dir.display()
        );
        Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(dir))
    }

    /// Refuses logs where the store has never had any, by what its newest OPTIONS file says: they are another store's, or those of the life that the
    /// store had before it was restored from a backup, and would be replayed above what they do not follow.
    fn refuse_logs_of_others(&self, env: &Env, dir: &Path, first: FileNumber, chosen: &Path) -> Result<()> {
        let Some(said) = self.wal_dir_line(env, dir) else { return Ok(()) };
        if !said.as_os_str().is_empty() && env.files.absolute(&said)? != dir {
            return Ok(());
        }
        // One that is empty may be of an open that died before it said where logs are.
        let entries = env.files.list(chosen)?;
        match entries.iter().find(|entry| needed(env, chosen, entry, first).is_some()) {
            Some(log) => {
                let reason = format!(
                    "{} is here already, but the store's OPTIONS file says that its logs are with it: they are another store's, or older than the \
                     backup that it was restored from; move them away, or give another directory (wal_dir); should they be the store's, move them to it",
                    log.name
                );
                Err(Error::invalid_argument(reason).with_path(chosen))
            }
            None => Ok(()),
        }
    }

    /// The OPTIONS files, newest first.
    fn options_paths(&self, dir: &Path) -> impl Iterator<Item = PathBuf> {
        let number = |name: &FileName| if let FileName::Options(number) = name { Some(*number) } else { None };
        let mut numbers: Vec<FileNumber> = self.names.iter().filter_map(number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.into_iter().map(move |number| dir.join(FileName::Options(number).to_string()))
    }

    /// In place of a newest OPTIONS file that cannot be read: the newest older one that can, with its path, or else the defaults. But where the
    /// logs are, the newest may still say, and what is in them would be missed; and whether it has transactions is not known.
    pub(super) fn options_but_newest(
        &self,
        env: &Env,
        dir: &Path,
        recovered: &Recovered,
    ) -> Result<(OptionsInFile, Option<PathBuf>)> {
        let (mut older, mut from) = (OptionsInFile::default(), None);
        for path in self.options_paths(dir).skip(1) {
            // One that asks for what Esker lacks was not the store's when it was opened last.
            if let Ok(read) = OptionsInFile::parse_of(&path, &env.files.read_small(&path)?, &names(recovered)) {
                (older, from) = (read, Some(path));
                break;
            }
        }
        let wal_dir = match self.wal_dir_line(env, dir) {
            Some(said) => Some(said).filter(|said| !said.as_os_str().is_empty()),
            None => older.wal_dir,
        };
        Ok((OptionsInFile { wal_dir, allows_2pc: None, ..older }, from))
    }

    /// Where the logs are by the newest OPTIONS file, though other lines of it cannot be read.
    fn wal_dir_line(&self, env: &Env, dir: &Path) -> Option<PathBuf> {
        wal_dir_line(&env.files.read_small(&self.options_paths(dir).next()?).ok()?)
    }

    /// What the newest OPTIONS file says; nothing if there is none.
    pub(super) fn options(&self, env: &Env, dir: &Path, recovered: &Recovered) -> Result<OptionsInFile> {
        let Some(path) = self.options_paths(dir).next() else { return Ok(OptionsInFile::default()) };
        OptionsInFile::parse_of(&path, &env.files.read_small(&path)?, &names(recovered))
    }

    /// What IDENTITY says; nothing if there is none.
    pub(super) fn identity(&self, env: &Env, dir: &Path) -> Result<String> {
        if !self.names.contains(&FileName::Identity) {
            return Ok(String::new());
        }
        let identity = env.files.read_small(&dir.join(FileName::Identity.to_string()))?;
        Ok(String::from_utf8_lossy(&identity).trim_end().to_owned())
    }
}

/// Of the column families.
fn names(recovered: &Recovered) -> Vec<&str> {
    recovered.families.values().map(|family| family.name.as_str()).collect()
}

/// Whether nothing was written to a log but notes of the one before it, as far as its first block tells: what is of another number is what a recycled log
/// held before.
fn begins_empty(env: &Env, log: &Path, number: FileNumber) -> bool {
    let front = env.files.open(log).and_then(|file| {
        let mut front = vec![0; BLOCK_BYTES.min(usize::try_from(file.len()?).unwrap_or(BLOCK_BYTES))];
        file.read_exact_at(0, &mut front).map(|()| front)
    });
    let Ok(front) = front else { return false };
    let mut at = 0;
    loop {
        match next_fragment(&front, at, Some(log_number_tag(number.get()))) {
            Fragment::Whole { kind: FragmentKind::Full, payload, next, .. }
                if front.get(payload.clone()).is_some_and(|batch| LogNote::of_batch(batch).is_some()) =>
            {
                at = next;
            }
            Fragment::EndOfBlock => return front.len() < BLOCK_BYTES,
            Fragment::Zeroes | Fragment::StaleRecycled => return true,
            _ => return false,
        }
    }
}

/// The number of a log in `dir` that a store which needs logs from `first` on would replay.
fn needed(env: &Env, dir: &Path, entry: &DirEntry, first: FileNumber) -> Option<FileNumber> {
    match FileName::parse(&entry.name) {
        Some(FileName::Wal(number)) if number >= first && !begins_empty(env, &dir.join(&entry.name), number) => {
            Some(number)
        }
        _ => None,
    }
}

/// Refuses to make a store that has its logs where there are some already.
pub(super) fn refuse_logs_before(env: &Env, logs_dir: &Path) -> Result<()> {
    let entries = env.files.list(logs_dir)?;
    match entries.iter().find(|entry| matches!(FileName::parse(&entry.name), Some(FileName::Wal(_)))) {
        Some(log) => {
            let reason = format!(
                "{} is here already, of a store that was here before: move it away, or give another directory (wal_dir)",
                log.name
            );
            Err(Error::invalid_argument(reason).with_path(logs_dir))
        }
        None => Ok(()),
    }
}

/// Looks at the directory that the logs of the store in `dir` are to be in. Where they are there already by what the store says, and nothing is, it is not
/// mounted: RocksDB always has a log there, and Esker its lock.
pub(super) fn check_logs_dir(env: &Env, dir: &Path, logs_dir: &Path) -> Result<()> {
    match env.files.list(logs_dir) {
        Ok(entries) if !entries.is_empty() => return Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Where there is no store yet, nothing is said.
    let said = Listing::of(env, dir).ok().and_then(|listing| listing.wal_dir_line(env, dir));
    let said = said.filter(|said| !said.as_os_str().is_empty()).map(|said| env.files.absolute(&said)).transpose()?;
    if said.is_some_and(|said| said == logs_dir) {
        let reason = "the store's logs are to be here, and nothing is: is it mounted? Should what was in them be lost, an empty file LOCK in it says so";
        return Err(Error::new(ErrorKind::NotFound, reason).with_path(logs_dir));
    }
    Ok(())
}

/// Opens the files that a manifest names. Tables come from [`super::tables`].
pub(super) struct Opener<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a Path,
    pub(super) trash: &'a Arc<Trash>,
    /// Those that are open already.
    pub(super) before: &'a Arc<OpenFiles>,
    pub(super) mmap_reads: bool,
}

/// Refuses a table whose keys lie in another order than its family's, or whose range deletions cannot be cut where it ends.
fn check_order(table: &TableFile, order: Order) -> Result<()> {
    let (path, found) = (table.table.path(), table.table.order());
    if found != order {
        let reason =
            format!("its keys are ordered by {:?}, those of its column family by {:?}", found.name(), order.name());
        return Err(Error::corruption(path, 0, reason));
    }
    let reaches_beyond = |range: &RangeDeletion| order.is_before(table.largest(), &range.end);
    let ends_in_key = !internal_key::is_end_of_range(&table.meta.largest);
    if ends_in_key && !order.is_bytewise() && table.table.range_deletions().iter().any(reaches_beyond) {
        let reason = format!(
            "a range deletion reaches beyond the table, and in the order {:?} no key can be named at which to cut it; compact the \
             store with the RocksDB that wrote it",
            order.name()
        );
        return Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(path));
    }
    Ok(())
}

impl Opener<'_> {
    /// The version of a family, of the tables that were opened.
    pub(super) fn version(
        &self,
        id: u32,
        family: &RecoveredFamily,
        chosen: &FamilyOptions,
        tables: &mut OpenTables,
        sieve: &mut Sieve,
    ) -> Result<Version> {
        let (mut edit, level_count) = (Edit::default(), chosen.level_count);
        for (level, number) in family.tables.keys() {
            let level = *level as usize;
            if level >= level_count {
                let reason = format!(
                    "option level_count is {level_count}, but table {number} of column family {:?} lies in level {level}",
                    family.name
                );
                return Err(Error::invalid_argument(reason).with_path(self.dir));
            }
            let Some(table) = tables.remove(number) else {
                if !sieve.has_left_out(&FileName::Table(*number)) {
                    let reason = format!("the manifest names table {number} for two column families, or in two levels");
                    sieve.pass::<()>(Err(Error::new(ErrorKind::Corruption, reason).with_path(self.dir)))?;
                }
                continue;
            };
            if let Err(error) = check_order(&table, chosen.order()) {
                sieve.pass_file::<()>(FileName::Table(*number), Err(error))?;
                continue;
            }
            edit.added.push((level, table));
        }
        // The manifest has no record of a blob file's end. RocksDB drops those of which nothing lives, and those before
        // the first that some table points to; the files may be gone.
        let pointed_to = family.tables.values().filter_map(|meta| meta.oldest_blob_file);
        let first_live = pointed_to.filter(|number| family.blobs.contains_key(number)).min();
        for (number, addition) in &family.blobs {
            let usage = family.ledger.get(*number).unwrap_or_default();
            if usage.is_dead() || first_live.is_none_or(|first| *number < first) {
                continue;
            }
            let opened = self.blob(id, addition, &edit.added);
            let Some(handle) = sieve.pass_file(FileName::Blob(*number), opened)? else { continue };
            edit.blobs.push(handle);
            if usage.garbage_count > 0 {
                edit.garbage.insert(*number, Garbage { count: usage.garbage_count, bytes: usage.garbage_bytes });
            }
        }
        let version =
            sieve.pass(Version::empty(chosen.order()).apply(&edit).map_err(|error| error.with_path(self.dir)))?;
        version.map_or_else(
            || {
                // Tables overlap. In level 0 they may.
                edit.added.iter_mut().for_each(|(level, _)| *level = 0);
                Version::empty(chosen.order()).apply(&edit).map_err(|error| error.with_path(self.dir))
            },
            Ok,
        )
    }

    /// A blob file of the family `id`, into which `tables` point.
    fn blob(
        &self,
        id: u32,
        addition: &BlobFileAddition,
        tables: &[(usize, Arc<TableFile>)],
    ) -> Result<Arc<BlobHandle>> {
        if let Some(open) = self.before.blob(&*self.env.files, id, addition) {
            return Ok(open);
        }
        let path = self.dir.join(FileName::Blob(addition.number).to_string());
        let is_pointed_to = || tables.iter().any(|(_, table)| has_pointer_into(table, addition.number));
        let file = open_sealed(&*self.env.files, &path, self.mmap_reads).map_err(Error::from);
        let file = file
            .and_then(|file| BlobFile::open_as(file, addition, id, is_pointed_to))
            .map_err(|error| missing(error, &path))?;
        let metadata = self.env.files.metadata(&path)?;
        let handle = BlobHandle::new(addition.clone(), file, path, self.trash.clone());
        handle.holes.set_bytes(metadata.len.saturating_sub(metadata.allocated));
        Ok(handle)
    }
}

/// Whether a table has a pointer into a blob file that can be read. Cost: one read of the table, if it may have one.
fn has_pointer_into(table: &TableFile, number: FileNumber) -> bool {
    let mut is_found = false;
    let mut look = |key: &[u8], value: &[u8]| {
        let pointer = InternalKey::decode(key).ok().and_then(|key| reference(&key, value).ok().flatten());
        is_found |= pointer.is_some_and(|pointer| pointer.file == number);
        Ok(())
    };
    if table.meta.oldest_blob_file.is_some_and(|oldest| oldest <= number) {
        // Damage of the table is told by whoever checks that.
        let _ = table.table.check(&mut look);
    }
    is_found
}

/// Of an OPTIONS file: whether it is damaged. One whose lines cannot be told, too: a rotten byte looks like what only a later version
/// writes. Not one that says plainly what Esker lacks.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    let is_of_a_decoder = || error.source().is_some_and(|source| source.is::<DecodeError>());
    error.kind() == ErrorKind::Corruption || is_of_a_decoder()
}

/// The same error of an OPTIONS file, with what the user can do if that is unreadable.
pub(super) fn what_helps(error: Error) -> Error {
    if !is_unreadable(&error) {
        return error;
    }
    let error = match error.kind() {
        ErrorKind::UnsupportedFormat => {
            error.with_advice("RocksDB wrote it for something that Esker does not read, or it is damaged")
        }
        _ => error,
    };
    error.with_advice("repair the store, or move this file away: then an older one counts, or else the defaults")
}

pub(super) fn missing(error: Error, path: &Path) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::corruption(
            path,
            0,
            "the manifest names this file, but it is not there; restore it from a backup, or repair the store",
        ),
        _ => error,
    }
}

/// Removes files that were numbered from `first` on, as far as that can be done: those of a recovery that failed.
pub(super) fn remove_numbered_from(store: &Store, first: u64) {
    let Ok(listing) = Listing::of(&store.env, &store.dir) else { return };
    for name in listing.names {
        if name.number().is_some_and(|number| number.get() >= first) {
            let _ = store.env.files.remove(&store.path_of(&name));
        }
    }
}

/// Removes what an attempt to open that died has written (O3), as far as that can be done: files with numbers that the manifest had not given
/// yet, so it lost no edit that names them, if neither it nor a log leads to them, and the last logs, if nothing is in them.
pub(super) fn remove_leftovers(store: &Store, logs: &Logs) -> Result<()> {
    let current = current_manifest(&*store.env.files, &store.dir)?;
    let mut live = live_files(store);
    live.insert(current);
    for name in Listing::of(&store.env, &store.dir)?.names {
        let is_nobodys = match name {
            FileName::Table(number)
            | FileName::LegacyTable(number)
            | FileName::Manifest(number)
            | FileName::Temporary(number) => !live.contains(&number),
            // Also of a log that is not replayed: a repair may read it.
            FileName::Blob(number) => !live.contains(&number) && logs.pointers.is_nobodys(number),
            FileName::Wal(number) => logs.is_nobodys(number),
            _ => false,
        };
        if is_nobodys && name.number().is_some_and(|number| number.get() >= store.first_unnamed) {
            let _ = store.env.files.remove(&store.path_of(&name));
        }
    }
    Ok(())
}

/// The tables and blob files of all versions.
fn live_files(store: &Store) -> BTreeSet<FileNumber> {
    let mut live = BTreeSet::new();
    for family in store.families.load().values() {
        let view = family.view.load();
        live.extend(view.version.tables().map(|(_, table)| table.number()));
        live.extend(view.version.blobs().keys());
    }
    live
}

/// Of a table or blob file: whether none of `live` is it.
fn is_unnamed(name: &FileName, live: &BTreeSet<FileNumber>) -> bool {
    match name {
        FileName::Table(number) | FileName::LegacyTable(number) | FileName::Blob(number) => !live.contains(number),
        _ => false,
    }
}

/// What [`remove_superfluous`] would free of tables and blob files, in a store that was opened for reading only.
pub(crate) fn superfluous_bytes(store: &Store) -> Result<u64> {
    let mut live = live_files(store);
    let names = Listing::of(&store.env, &store.dir)?.names;
    // To some, a log leads.
    let families = store.families.load();
    let leads_to = |number: &FileNumber| families.values().any(|family| family.view.load().blob(*number).is_some());
    live.extend(names.iter().filter_map(FileName::number).filter(leads_to));
    let mut bytes = 0;
    for name in names.iter().filter(|name| is_unnamed(name, &live)) {
        match store.env.files.metadata(&store.path_of(name)) {
            Ok(found) => bytes += found.len.min(found.allocated),
            // A writer took it away meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Removes what no manifest names any more (O3). The newest two OPTIONS files stay, as RocksDB leaves them.
pub(super) fn remove_superfluous(store: &Store) -> Result<()> {
    let mut live = live_files(store);
    live.extend(store.state.lock().wals.keys());
    live.extend(store.installer.lock().manifest.as_ref().map(|manifest| manifest.number()));
    let names = Listing::of(&store.env, &store.dir)?.names;
    let mut options: Vec<_> = names.iter().filter(|name| matches!(name, FileName::Options(_))).collect();
    options.sort_by_key(|name| std::cmp::Reverse(name.number()));
    let old_options: BTreeSet<_> = options.into_iter().skip(2).filter_map(FileName::number).collect();
    for name in &names {
        let superfluous = match name {
            FileName::Wal(number) | FileName::Manifest(number) => !live.contains(number),
            FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_) => is_unnamed(name, &live),
            FileName::Temporary(_) | FileName::OptionsTemporary(_) => *name != BALLAST,
            FileName::Options(number) => old_options.contains(number),
            _ => false,
        };
        if superfluous {
            store.trash.add(store.path_of(name));
        }
    }
    // What cannot be removed now takes up space, no more: it is told by `stats`, and tried again.
    if let Err(error) = store.trash.purge() {
        store.state.lock().upkeep_error = Some(error);
    }
    Ok(())
}
