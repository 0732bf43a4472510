//! The folder of what is not used any more, and the mark of a repair that is not finished.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use esker_env::{Env, FileSystem, Lock, durable};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::{copying, distrust};

use super::survey::is_damage;
use super::{AsideReason, DbRepair, LOST_KEYS_MAX, LostKey, PutAside};
use crate::open::first_log;
use crate::version::{Recovered, current_manifest, recover_from};
use crate::{Error, ErrorKind, Result};

/// The folder.
pub(super) const LOST: &str = "lost";
/// The mark. It names the manifest that is to become current: once it is, only files are left to be moved.
pub(crate) const UNFINISHED: &str = "UNFINISHED-REPAIR";

/// How far an earlier repair got.
#[derive(Debug)]
pub(super) enum Begun {
    /// There was none, or it was to make this manifest: it is not current, nor is anything of that number or above part of the store. Also none where
    /// that is not certain.
    Manifest(Option<FileNumber>),
    /// Its manifest is the current one: it has only files left to move.
    Current,
}

/// The right to the directory, and what there is of an earlier repair.
pub(super) fn begin(env: &Env, dir: &Path) -> Result<(Box<dyn Lock>, Begun)> {
    let files = &*env.files;
    let is_of_a_store = |name: FileName| {
        matches!(
            name,
            FileName::Wal(_)
                | FileName::Table(_)
                | FileName::LegacyTable(_)
                | FileName::Blob(_)
                | FileName::Manifest(_)
                | FileName::Current
        )
    };
    let has = |entry: &esker_env::DirEntry| FileName::parse(&entry.name).is_some_and(is_of_a_store);
    if !files.list(dir)?.iter().any(has) {
        return Err(Error::new(ErrorKind::NotFound, "there is no file of a store here").with_path(dir));
    }
    let lock = files.lock(&dir.join(FileName::Lock.to_string())).map_err(|error| {
        let error = Error::from(error);
        match error.kind() {
            ErrorKind::Busy => {
                let reason = "the store is open elsewhere; close it there";
                Error::new(ErrorKind::Busy, reason).with_path(dir).with_source(error)
            }
            _ => error,
        }
    })?;
    let is_there = |name: &str| durable::is_there(files, &dir.join(name));
    if is_there(copying::UNFINISHED)? && !is_there(&FileName::Current.to_string())? {
        let reason = format!(
            "a checkpoint or backup was not finished here: make it again, or remove the directory; if it was finished, and has lost its \
             CURRENT since, remove {} first",
            copying::UNFINISHED
        );
        return Err(Error::new(ErrorKind::Corruption, reason).with_path(dir));
    }
    let mark = dir.join(UNFINISHED);
    if !durable::is_there(files, &mark)? {
        return Ok((lock, Begun::Manifest(None)));
    }
    let marked = files.read_small(&mark)?;
    let named = std::str::from_utf8(&marked).ok().and_then(FileName::parse).and_then(|name| name.number());
    let begun = match named {
        Some(named) => how_far(files, dir, named)?,
        None => Begun::Manifest(None),
    };
    Ok((lock, begun))
}

/// How far the repair got that was to make the manifest `marked`.
///
/// RocksDB passes over the mark, and may have written here since. A repair makes no log and no other manifest, and its numbers were free in
/// the one that it found: where they are not any more, what has them counts.
fn how_far(files: &dyn FileSystem, dir: &Path, marked: FileNumber) -> Result<Begun> {
    let names: Vec<FileName> = files.list(dir)?.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
    let has_log_from = |first| names.iter().any(|name| matches!(name, FileName::Wal(number) if *number >= first));
    let current = undamaged(current_manifest(files, dir))?;
    // Where nothing says which one is current, a whole one may have been.
    let read = undamaged(recover_from(files, dir, current.unwrap_or(marked)))?;
    // One that needs a log is not the repair's, but has got its number.
    let is_done = |read: &Recovered| !has_log_from(first_log(read));
    if current == Some(marked) && read.as_ref().is_some_and(is_done) {
        return Ok(Begun::Current);
    }
    let counts = current == Some(marked)
        || read.is_some_and(|read| read.next_file_number > marked.get())
        || has_log_from(marked)
        || names.iter().any(|name| matches!(name, FileName::Manifest(number) if *number > marked));
    Ok(Begun::Manifest((!counts).then_some(marked)))
}

/// What was read, if it is not damaged.
fn undamaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if is_damage(&error) => Ok(None),
        read => read.map(Some),
    }
}

/// From now on nobody opens the store before the repair is finished.
pub(super) fn mark(files: &dyn FileSystem, dir: &Path, manifest: FileNumber) -> Result<()> {
    let temporary = dir.join(FileName::Temporary(manifest).to_string());
    let text = FileName::Manifest(manifest).to_string();
    Ok(files.write_atomically(&dir.join(UNFINISHED), &temporary, text.as_bytes())?)
}

/// Moves what the current manifest does not name, and takes the mark away. `why` is known of some.
pub(super) fn finish(
    files: &dyn FileSystem,
    dir: &Path,
    why: &BTreeMap<FileName, AsideReason>,
) -> Result<(Recovered, Vec<PutAside>)> {
    let manifest = current_manifest(files, dir)?;
    let recovered = recover_from(files, dir, manifest)?;
    // A repair that died may have made it current and not durably so: what the one before names must be there until it is.
    files.sync_dir(dir)?;
    let names: Vec<FileName> = files.list(dir)?.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
    let options = names.iter().filter(|name| matches!(name, FileName::Options(_))).max().copied();
    let tables = recovered.families.values().flat_map(|family| family.tables.keys().map(|(_, number)| *number));
    let tables: BTreeSet<FileNumber> = tables.collect();
    let is_named = |name: &FileName| match name {
        FileName::Table(number) | FileName::LegacyTable(number) => tables.contains(number),
        FileName::Blob(number) => recovered.families.values().any(|family| family.blobs.contains_key(number)),
        FileName::Manifest(number) => *number == manifest,
        FileName::Options(_) => Some(*name) == options,
        FileName::Wal(_) | FileName::Temporary(_) | FileName::OptionsTemporary(_) => false,
        _ => true,
    };
    let mut put_aside = Vec::new();
    let superfluous: BTreeSet<FileName> = names.into_iter().filter(|name| !is_named(name)).collect();
    // Earlier manifests go first, the oldest before others: should the current one turn out to be damaged, one that is still there has all
    // that it names.
    let (manifests, others): (Vec<_>, Vec<_>) =
        superfluous.into_iter().partition(|name| matches!(name, FileName::Manifest(_)));
    for names in [manifests, others].into_iter().filter(|names| !names.is_empty()) {
        let folder = dir.join(LOST);
        durable::create_dir(files, &folder)?;
        for name in names {
            let by_kind = match name {
                FileName::Wal(_) | FileName::Manifest(_) | FileName::Options(_) => AsideReason::Replaced,
                _ => AsideReason::Unused,
            };
            let path = free_name(files, &folder, &name.to_string())?;
            files.rename(&dir.join(name.to_string()), &path)?;
            put_aside.push(PutAside { path, reason: why.get(&name).copied().unwrap_or(by_kind) });
        }
        files.sync_dir(&folder)?;
        files.sync_dir(dir)?;
    }
    if distrust::is_warned(files, dir)? {
        distrust::trust_again(files, dir)?;
    }
    copying::remove_mark(files, dir)?;
    files.remove(&dir.join(UNFINISHED))?;
    files.sync_dir(dir)?;
    Ok((recovered, put_aside))
}

/// Earlier repairs may have put a file of that name aside.
fn free_name(files: &dyn FileSystem, folder: &Path, name: &str) -> Result<PathBuf> {
    let mut path = folder.join(name);
    let mut count = 0;
    while durable::is_there(files, &path)? {
        count += 1;
        path = folder.join(format!("{name}.{count}"));
    }
    Ok(path)
}

/// What is left of a repair that died after its manifest became current.
pub(super) fn finish_earlier(env: &Env, dir: &Path) -> Result<DbRepair> {
    let (recovered, put_aside) = finish(&*env.files, dir, &BTreeMap::new())?;
    let mut report = DbRepair { had_manifest: true, put_aside, ..DbRepair::default() };
    report.describe(&recovered);
    Ok(report)
}

impl DbRepair {
    /// A value is lost.
    pub(super) fn lose(&mut self, lost: LostKey) {
        self.lost_values += 1;
        if self.lost_keys.len() < LOST_KEYS_MAX {
            self.lost_keys.push(lost);
        }
    }

    /// What the store consists of now.
    pub(super) fn describe(&mut self, recovered: &Recovered) {
        let families = recovered.families.values();
        self.families = families.clone().map(|family| family.name.clone()).collect();
        self.tables = families.clone().map(|family| family.tables.len() as u64).sum();
        self.blob_files = families.map(|family| family.blobs.len() as u64).sum();
    }
}
