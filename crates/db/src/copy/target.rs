//! The directory that a copy is made in, beyond what all engines share ([`Place`]).
//!
//! - D2: an earlier backup is not touched before the new one is durable: files get names that it does not use. What only it has, the
//!   store's manifest knows nothing of, so the store's next numbers begin behind all that are there.
//!   A file that takes the place of a damaged one is made under another name ([`Target::begin_file`]): the damaged one stays until it is whole.
//! - D3: what a failure leaves is removed, CURRENT first. If it is unknown which of two backups CURRENT names, nothing is.
//! - D4: a checkpoint, whose moment is somebody's, is no earlier backup. It has the file [`CHECKPOINT`], durably before CURRENT, which RocksDB passes
//!   over; one of RocksDB, or of an Esker that knew no such file, is told by a file that it shares with the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use esker_env::{FileSystem, durable};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::copying::{Place, UNFINISHED, refuse_file};

use super::label::LABEL;
use super::said::Said;
use crate::repair::UNFINISHED as UNFINISHED_REPAIR;
use crate::store::Store;
use crate::version::recover;
use crate::{Error, ErrorKind, Result};

/// See D4.
pub(super) const CHECKPOINT: &str = "CHECKPOINT";

/// See the module's head. What was made is removed when it is dropped, unless it was [kept](Target::keep).
pub(super) struct Target<'a> {
    files: &'a dyn FileSystem,
    place: Place<'a>,
    /// Files of the backup that is there, and what it says of them.
    earlier: Option<BTreeMap<String, Said>>,
    /// The file of the new copy's options.
    options: FileNumber,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Unfinished,
    /// CURRENT may have been replaced.
    Unknown,
    /// The new copy is there, with this manifest.
    Finished(FileNumber),
}

impl<'a> Target<'a> {
    /// One for a checkpoint: empty but for what says so (D4).
    pub(super) fn for_checkpoint(store: &'a Store, dir: &Path) -> Result<Self> {
        let mut target = Self::empty(&*store.env.files, dir)?;
        let mark = target.begin(CHECKPOINT)?;
        target.files.create(&mark)?;
        Ok(target)
    }

    /// One for a copy that nothing is known of in advance: empty.
    pub(super) fn empty(files: &'a dyn FileSystem, dir: &Path) -> Result<Self> {
        let mut target = Self::take(files, dir)?;
        target.place.begin_empty(&FileName::Current.to_string())?;
        Ok(target)
    }

    /// One for a backup: empty, or with an earlier one.
    pub(super) fn for_backup(store: &'a Store, dir: &Path) -> Result<Self> {
        refuse_file(&*store.env.files, dir)?;
        if !durable::is_there(&*store.env.files, &dir.join(FileName::Current.to_string()))? {
            return Self::empty(&*store.env.files, dir);
        }
        let mut target = Self::take(&*store.env.files, dir)?;
        let names = target.place.names()?;
        if names.iter().any(|name| name == CHECKPOINT) {
            let reason = "this is a checkpoint, not a backup; choose another directory".to_owned();
            return Err(target.refuse(ErrorKind::Conflict, reason));
        }
        if names.iter().any(|name| name == LABEL) {
            let reason =
                "this is a generation of a set of backups, not a backup by itself; choose another directory".to_owned();
            return Err(target.refuse(ErrorKind::Conflict, reason));
        }
        if names.iter().any(|name| matches!(FileName::parse(name), Some(FileName::Wal(_)))) {
            let reason = "there is a store that was written to, not only a backup; choose another directory".to_owned();
            return Err(target.refuse(ErrorKind::Conflict, reason));
        }
        let earlier = recover(target.files, dir).map_err(|error| error.while_doing("reading the earlier backup"))?;
        if earlier.db_id != store.db_id {
            let reason = format!("there is a backup of another store, {}; choose another directory", earlier.db_id);
            return Err(target.refuse(ErrorKind::Conflict, reason));
        }
        // What a file holds was in the manifest of the store before it could get here.
        let tables = earlier.families.values().flat_map(|family| family.tables.values());
        if tables.map(|table| table.largest_sequence).max() > Some(store.visible()) {
            let reason = "there is a backup with writes that the store does not have: it went back to an earlier state, or lost them; \
                choose another directory";
            return Err(target.refuse(ErrorKind::Conflict, reason.to_owned()));
        }
        let said = Said::of_store(&earlier).flat_map(|said| said.names().into_iter().map(move |name| (name, said)));
        let said: BTreeMap<FileName, Said> = said.collect();
        let of_earlier = |name: &String| Some((name.clone(), *said.get(&FileName::parse(name)?)?));
        target.earlier = Some(names.iter().filter_map(of_earlier).collect());
        target.refuse_shared(store)?;
        let numbers = names.iter().filter_map(|name| Some(FileName::parse(name)?.number()?.get()));
        store.raise_file_number(earlier.next_file_number.max(numbers.max().unwrap_or(0).saturating_add(1)), dir)?;
        Ok(target)
    }

    /// See D4.
    fn refuse_shared(&self, store: &Store) -> Result<()> {
        for name in self.earlier.iter().flat_map(BTreeMap::keys) {
            if durable::is_same_file(self.files, &self.path_of(name), &store.dir.join(name))? {
                let reason = format!(
                    "this is a checkpoint, not a backup: its {name} is the store's own file; choose another directory"
                );
                return Err(self.refuse(ErrorKind::Conflict, reason));
            }
        }
        Ok(())
    }

    /// Removes what an attempt left that died. Manifests and options stay until there are new ones.
    pub(super) fn clear(&self) -> Result<()> {
        let is_left = |name: &String| match FileName::parse(name) {
            Some(FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_)) => self.said(name).is_none(),
            Some(FileName::Temporary(_) | FileName::OptionsTemporary(_)) => true,
            _ => false,
        };
        let left: Vec<String> = self.place.names()?.into_iter().filter(is_left).collect();
        if !left.is_empty() {
            // It may be the backup before that these are of, and CURRENT name it again after a power loss.
            self.files.sync_dir(self.dir())?;
        }
        left.iter().try_for_each(|name| Ok(self.files.remove(&self.path_of(name))?))
    }

    fn take(files: &'a dyn FileSystem, dir: &Path) -> Result<Self> {
        let place = Place::take(files, dir)?;
        let target = Self { files, place, earlier: None, options: FileNumber::default(), state: State::Unfinished };
        if durable::is_there(files, &target.path_of(UNFINISHED_REPAIR))? {
            let reason =
                "a repair of the store here was not finished; run it again, or choose another directory".to_owned();
            return Err(target.refuse(ErrorKind::Corruption, reason));
        }
        Ok(target)
    }

    fn refuse(&self, kind: ErrorKind, reason: String) -> Error {
        Error::new(kind, reason).with_path(self.dir())
    }

    pub(super) fn dir(&self) -> &Path {
        self.place.dir()
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.place.path_of(name)
    }

    /// What the earlier backup says of its file of that name, if it has one.
    pub(super) fn said(&self, name: &str) -> Option<&Said> {
        self.earlier.as_ref()?.get(name)
    }

    /// A file of that name is about to be made: here.
    pub(super) fn begin(&mut self, name: &str) -> Result<PathBuf> {
        self.place.begin(name)
    }

    /// The same for a table or blob file. If it takes the place of a damaged one, it is made beside that.
    pub(super) fn begin_file(&mut self, name: &str) -> Result<PathBuf> {
        match FileName::parse(name).and_then(|name| name.number()) {
            Some(number) if self.said(name).is_some() => self.begin(&FileName::Temporary(number).to_string()),
            _ => self.begin(name),
        }
    }

    /// The file that was begun at `path` is whole and durable. In the place of a damaged one it stays, whatever becomes of the copy.
    pub(super) fn settle_file(&mut self, name: &str, path: &Path) -> Result<()> {
        let to = self.path_of(name);
        if path != to {
            self.files.rename(path, &to)?;
        }
        Ok(())
    }

    /// Writes a small file, durable but for its name.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.begin(name)?;
        let file = self.files.create(&path)?;
        file.append(&[bytes])?;
        Ok(file.sync()?)
    }

    /// The same for an OPTIONS file, which whoever opens an earlier backup meanwhile reads: whole, or not there.
    pub(super) fn write_options(&mut self, number: FileNumber, text: &[u8]) -> Result<()> {
        let temporary = self.begin(&FileName::OptionsTemporary(number).to_string())?;
        let path = self.begin(&FileName::Options(number).to_string())?;
        self.options = number;
        Ok(self.files.write_atomically(&path, &temporary, text)?)
    }

    /// CURRENT is about to be replaced.
    pub(super) fn will_be_current(&mut self) {
        self.state = State::Unknown;
    }

    /// The copy is there and durable. Its mark, should that stay: where there is a CURRENT, it says nothing.
    pub(super) fn keep(&mut self, manifest: FileNumber) -> Option<(PathBuf, Error)> {
        self.state = State::Finished(manifest);
        let error = self.place.finish().err()?;
        Some((self.path_of(UNFINISHED), error))
    }

    /// Removes what only the earlier backup had; `names` are tables and blob files of the new one.
    pub(super) fn remove_others(&self, names: &BTreeSet<String>) -> Result<Vec<(PathBuf, Error)>> {
        let State::Finished(manifest) = self.state else { return Ok(Vec::new()) };
        let mut failed = Vec::new();
        for name in self.place.names()? {
            let is_superfluous = match FileName::parse(&name) {
                Some(FileName::Manifest(number)) => number != manifest,
                Some(FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_)) => !names.contains(&name),
                Some(FileName::Options(number)) => number != self.options,
                Some(FileName::Temporary(_) | FileName::OptionsTemporary(_)) => true,
                _ => false,
            };
            if is_superfluous && let Err(error) = self.files.remove(&self.path_of(&name)) {
                failed.push((self.path_of(&name), error.into()));
            }
        }
        Ok(failed)
    }

    /// See D3. What cannot be removed is told apart by its mark.
    fn abandon(&mut self) -> Result<()> {
        if self.state == State::Unknown {
            if self.earlier.is_some() {
                return Ok(());
            }
            self.place.remove_root(&FileName::Current.to_string())?;
        }
        self.place.abandon()
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !matches!(self.state, State::Finished(_)) {
            // Why it is given up was told; what stays is no store.
            let _ = self.abandon();
        }
    }
}
