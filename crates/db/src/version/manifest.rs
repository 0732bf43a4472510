//! The manifest: which files are a store, as a log of edits, and CURRENT, which names the manifest.
//!
//! - M1: CURRENT is replaced only after the manifest that it will name holds the whole state and was synced.
//! - M2: an edit counts once it was synced. If that fails, nobody knows whether it counts: the store becomes
//!   read-only, and neither the files it adds nor those it drops are removed, until an open has read what is there.
//! - M3: reading is pure of consequences: nothing is written before everything was read and accepted.
//! - M4: a manifest says which file numbers are free only behind the state that it begins with, as RocksDB's, which refuses one that does
//!   not say it: what a death has left of one that was begun is never taken for a smaller store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_env::FileSystem;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::version_edit::{BlobFileAddition, BlobFileGarbage, TableMeta, VersionEdit};
use esker_log::ledger::{Ledger, Usage};
use esker_log::scan::{LogEnd, RecoveryMode, Scanner};
use esker_log::writer::LogWriter;

use super::Version;
use crate::{Error, ErrorKind, Result};

/// A column family as the manifest has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecoveredFamily {
    pub(crate) name: String,
    /// The name of the order of its keys; empty if nobody said it.
    pub(crate) comparator: String,
    pub(crate) tables: BTreeMap<(u32, FileNumber), TableMeta>,
    pub(crate) blobs: BTreeMap<FileNumber, BlobFileAddition>,
    pub(crate) ledger: Ledger,
    pub(crate) log_number: FileNumber,
}

/// A store as the manifest has it.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) db_id: String,
    pub(crate) families: BTreeMap<u32, RecoveredFamily>,
    pub(crate) family_id_max: u32,
    pub(crate) next_file_number: u64,
    pub(crate) last_sequence: SequenceNumber,
    /// Logs before this one are needed by nobody.
    pub(crate) log_number_min: FileNumber,
    /// How much of logs is durable, as far as that was written down. They may be needed by nobody any more.
    pub(crate) durable_logs: BTreeMap<FileNumber, u64>,
    /// Of logs before this one nothing is known, whatever was written down of them.
    durable_logs_from: FileNumber,
}

/// Reads CURRENT and the manifest that it names.
///
/// # Errors
/// `NotFound` if there is no CURRENT; corruption with path and offset; `UnsupportedFormat` for what a later writer added.
pub(crate) fn recover(files: &dyn FileSystem, dir: &Path) -> Result<Recovered> {
    recover_from(files, dir, current_manifest(files, dir)?)
}

/// The manifest that CURRENT names.
///
/// # Errors
/// `NotFound` if there is no CURRENT; corruption if it names none.
pub(crate) fn current_manifest(files: &dyn FileSystem, dir: &Path) -> Result<FileNumber> {
    let current_path = dir.join(FileName::Current.to_string());
    let current = files.read_small(&current_path)?;
    manifest_number(&current).ok_or_else(|| {
        Error::corruption(
            &current_path,
            0,
            "CURRENT does not name a manifest; repair the store, or restore it from a backup",
        )
    })
}

/// Reads a manifest.
///
/// # Errors
/// As [`recover`].
pub(crate) fn recover_from(files: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<Recovered> {
    let path = dir.join(FileName::Manifest(number).to_string());
    let mut recovered = Recovered::default();
    recovered.families.insert(0, RecoveredFamily { name: "default".into(), ..RecoveredFamily::default() });
    // Only an edit whose sync never returned can be torn, and nobody was told of it.
    let mut scanner = Scanner::open(files, &path, RecoveryMode::PointInTime, true, number.get() as u32)
        .map_err(|error| missing_manifest(error, &path))?
        .of_manifest();
    let mut group = Vec::new();
    let mut edit_count = 0u64;
    while let Some((offset, record)) = scanner.next()? {
        let edit = VersionEdit::decode(record)
            .map_err(|error| Error::decode(&path, offset, "reading an edit of the manifest", error))?;
        edit_count += 1;
        let remaining = edit.atomic_group_remaining;
        group.push(edit);
        // An atomic group counts once its last edit is there.
        if remaining.unwrap_or(0) == 0 {
            for edit in group.drain(..) {
                recovered.take(edit).map_err(|error| error.with_path(&path).with_offset(offset))?;
            }
        }
    }
    // What an edit named would be taken for orphans: a manifest that lost its end to something else than a power loss is
    // not opened.
    if let LogEnd::Torn { offset, .. } = scanner.end()
        && scanner.is_cut_off()
    {
        return Err(Error::corruption(
            &path,
            offset,
            "the manifest was cut short; restore it from a backup, or repair the store",
        ));
    }
    if edit_count == 0 {
        return Err(Error::corruption(&path, 0, "the manifest holds no edit; restore the store from a backup"));
    }
    if recovered.next_file_number == 0 {
        let reason =
            "the manifest ends before all of the store is in it; restore it from a backup, or repair the store";
        return Err(Error::corruption(&path, 0, reason));
    }
    Ok(recovered)
}

/// Which manifest is current, and how long it is: whatever changes a store changes this.
pub(crate) fn manifest_state(files: &dyn FileSystem, dir: &Path) -> Result<(Vec<u8>, u64)> {
    let current = files.read_small(&dir.join(FileName::Current.to_string()))?;
    let path = manifest_number(&current).map(|number| dir.join(FileName::Manifest(number).to_string()));
    let bytes = path.and_then(|path| files.metadata(&path).ok()).map_or(0, |metadata| metadata.len);
    Ok((current, bytes))
}

fn missing_manifest(error: Error, path: &Path) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::corruption(
            path,
            0,
            "CURRENT names this manifest, but it is not there; restore it from a backup, or repair the store",
        ),
        _ => error,
    }
}

fn manifest_number(current: &[u8]) -> Option<FileNumber> {
    let name = std::str::from_utf8(current).ok()?.strip_suffix('\n')?;
    match FileName::parse(name)? {
        FileName::Manifest(number) => Some(number),
        _ => None,
    }
}

fn misfit(reason: String) -> Error {
    Error::new(ErrorKind::Corruption, format!("{reason}; restore the manifest, or the store, from a backup"))
}

impl Recovered {
    fn take(&mut self, edit: VersionEdit) -> Result<()> {
        self.take_durable_logs(&edit);
        if let Some(id) = edit.db_id {
            self.db_id = id;
        }
        self.next_file_number = self.next_file_number.max(edit.next_file_number.unwrap_or(0));
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or_default());
        self.log_number_min = self.log_number_min.max(edit.min_log_number_to_keep.unwrap_or_default());
        self.family_id_max = self.family_id_max.max(edit.max_column_family.unwrap_or(0)).max(edit.column_family);
        let id = edit.column_family;
        if let Some(name) = edit.column_family_add {
            // What is there of the first would be gone unseen, or out of reach.
            if let Some((other, family)) =
                self.families.iter().find(|(other, family)| **other == id || family.name == name)
            {
                let there = format!("{:?} with id {other} is there", family.name);
                return Err(misfit(format!("an edit adds column family {name:?} with id {id}, but {there}")));
            }
            self.families.insert(id, RecoveredFamily { name, ..RecoveredFamily::default() });
        }
        if edit.column_family_drop {
            self.families.remove(&id);
            return Ok(());
        }
        let Some(family) = self.families.get_mut(&id) else {
            return Err(misfit(format!("an edit is for column family {id}, which does not exist")));
        };
        if let Some(name) = edit.comparator {
            family.comparator = name;
        }
        if let Some(number) = edit.log_number {
            family.log_number = family.log_number.max(number);
        }
        for (level, number) in edit.deleted_files {
            if family.tables.remove(&(level, number)).is_none() {
                return Err(misfit(format!("an edit deletes table {number} of level {level}, which is not there")));
            }
        }
        for (level, meta) in edit.new_files {
            let number = meta.number;
            if family.tables.insert((level, number), meta).is_some() {
                return Err(misfit(format!("an edit adds table {number} to level {level} a second time")));
            }
        }
        for addition in edit.blob_additions {
            family.ledger.add_file(addition.number, addition.total_count, addition.total_bytes)?;
            family.blobs.insert(addition.number, addition);
        }
        for garbage in edit.blob_garbage {
            family.ledger.add_garbage(garbage.number, garbage.count, garbage.bytes)?;
        }
        Ok(())
    }
}

impl Recovered {
    /// What RocksDB keeps account of, and what Esker says when it closes a store. A log that is only added need not be there.
    fn take_durable_logs(&mut self, edit: &VersionEdit) {
        if let Some(first) = edit.wal_deletion {
            self.durable_logs_from = self.durable_logs_from.max(first);
            self.durable_logs = self.durable_logs.split_off(&self.durable_logs_from);
        }
        let synced = edit.wal_additions.iter().filter_map(|log| Some((log.number, log.synced_bytes?)));
        let closed = edit.durable_logs.iter().map(|log| (log.number, log.bytes));
        for (number, bytes) in synced.chain(closed).filter(|(number, _)| *number >= self.durable_logs_from) {
            let most = self.durable_logs.entry(number).or_default();
            *most = bytes.max(*most);
        }
    }
}

/// The manifest that edits are appended to.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    log: LogWriter,
    number: FileNumber,
    /// What it held when it was begun, or when the last attempt to replace it failed.
    begun_bytes: u64,
    scratch: Vec<u8>,
}

impl ManifestWriter {
    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.log.len()
    }

    /// See [`LogWriter::cut_back`].
    pub(crate) fn cut_back(&self) -> Result<()> {
        self.log.cut_back()
    }

    /// Whether a new one is due: at `bytes_max`, but not before as much again was appended as the whole state takes, or each edit would
    /// write all of a large one.
    pub(crate) fn is_large(&self, bytes_max: u64) -> bool {
        self.bytes() >= self.due_bytes(bytes_max)
    }

    fn due_bytes(&self, bytes_max: u64) -> u64 {
        bytes_max.max(self.begun_bytes.saturating_mul(2))
    }

    /// What may come on top of it until a new one is there, which is about as large as this one was when it was begun.
    pub(crate) fn growth_bytes(&self, bytes_max: u64) -> u64 {
        self.due_bytes(bytes_max).saturating_sub(self.bytes()).saturating_add(self.begun_bytes)
    }

    /// A new one could not be begun: this one goes on for as long again.
    pub(crate) fn go_on(&mut self) {
        self.begun_bytes = self.bytes();
    }

    /// Appends and syncs an edit; returns the bytes that took.
    ///
    /// # Errors
    /// `Exhausted` or `Io`: nothing was appended. `ReadOnly`: unknown whether the edit counts (M2).
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<u64> {
        let before = self.log.len();
        self.scratch.clear();
        edit.encode(&mut self.scratch);
        self.log.append(&[&self.scratch])?;
        self.log.sync()?;
        Ok(self.log.len().saturating_sub(before))
    }
}

/// A new manifest holding `edits`, made current (M1). Returns what was appended, in bytes.
///
/// # Errors
/// As the file system's; the manifest that was current still is, unless the very last step, the sync of the directory, failed.
pub(crate) fn write_new(
    files: &dyn FileSystem,
    dir: &Path,
    number: FileNumber,
    edits: &[VersionEdit],
) -> Result<ManifestWriter> {
    let writer = prepare_new(files, dir, number, edits)?;
    set_current(files, dir, number)?;
    Ok(writer)
}

/// A new manifest holding `edits`, durable but not current.
///
/// # Errors
/// As the file system's; nothing has changed but that there may be a file that nobody names.
pub(crate) fn prepare_new(
    files: &dyn FileSystem,
    dir: &Path,
    number: FileNumber,
    edits: &[VersionEdit],
) -> Result<ManifestWriter> {
    let name = FileName::Manifest(number).to_string();
    let path = dir.join(&name);
    let log = LogWriter::new(files.create(&path)?);
    let mut writer = ManifestWriter { log, number, begun_bytes: 0, scratch: Vec::with_capacity(4096) };
    for edit in edits {
        writer.scratch.clear();
        edit.encode(&mut writer.scratch);
        writer.log.append(&[&writer.scratch])?;
    }
    writer.log.sync()?;
    writer.begun_bytes = writer.bytes();
    files.sync_dir(dir)?;
    Ok(writer)
}

/// Makes a manifest the current one (M1).
///
/// # Errors
/// As the file system's; CURRENT may name either.
pub(crate) fn set_current(files: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<()> {
    let name = FileName::Manifest(number).to_string();
    let temporary: PathBuf = dir.join(FileName::Temporary(number).to_string());
    let current = dir.join(FileName::Current.to_string());
    Ok(files.write_atomically(&current, &temporary, format!("{name}\n").as_bytes())?)
}

/// What a family is, as edits: the first creates it, the second holds its files.
pub(crate) fn snapshot_edits(id: u32, name: &str, version: &Version, log_number: FileNumber) -> Vec<VersionEdit> {
    let create = VersionEdit {
        column_family: id,
        column_family_add: (id != 0).then(|| name.to_owned()),
        comparator: Some(version.order().name().to_owned()),
        ..VersionEdit::default()
    };
    let garbage = |(number, usage): (FileNumber, Usage)| BlobFileGarbage {
        number,
        count: usage.garbage_count,
        bytes: usage.garbage_bytes,
    };
    let contents = VersionEdit {
        column_family: id,
        log_number: Some(log_number),
        new_files: version.tables().map(|(level, table)| (level as u32, table.record())).collect(),
        blob_additions: version.blobs().values().map(|blob| blob.addition.clone()).collect(),
        blob_garbage: version.ledger().iter().filter(|(_, usage)| usage.garbage_count > 0).map(garbage).collect(),
        ..VersionEdit::default()
    };
    vec![create, contents]
}
