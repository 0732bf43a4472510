//! A table that is written outside of any store, for one to take in.

use std::fmt;
use std::path::{Path, PathBuf};

use esker_env::Env;
use esker_env::os::Origin;
use esker_format::limits::{self, TooLarge};
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

use crate::options::FamilyOptions;
use crate::range_deletions::{Fragments, RangeDeletion};
use crate::table::{TableIdentity, TableOptions, TableWriter};
use crate::{Error, ErrorKind, Result};

/// What RocksDB writes for a table that any column family may take in.
pub(super) const UNKNOWN_FAMILY: u64 = i32::MAX as u64;
/// Every file has a session of its own, so this is its first file, as RocksDB has it.
const NUMBER: FileNumber = FileNumber::new(1);

/// Writes a table of sorted keys outside of a store, for [`Db::ingest`](crate::Db::ingest) or RocksDB's `IngestExternalFile`
/// to take in.
///
/// Values stay with their keys, however large: what a store takes in has no blob files. [`Db::bulk_load`](crate::Db::bulk_load)
/// writes both, straight into a store.
///
/// Dropped without [`finish`](Self::finish), it removes the file. A child that is forked meanwhile may drop it, which does nothing there; the file is
/// its parent's.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("store");
/// # extern crate esker_db as esker;
/// use esker::{Db, FamilyOptions, IngestOptions, Options, SstFileWriter};
///
/// let file = dir.path().join("hills.sst");
/// let mut writer = SstFileWriter::create(&file, &FamilyOptions::default())?;
/// writer.put("drumlin", "oval")?;
/// writer.put("esker", "winding")?;
/// writer.finish()?;
///
/// let db = Db::open(&path, Options { create_if_missing: true, ..Options::default() })?;
/// db.ingest(&db.default_column_family(), &[file], &IngestOptions::default())?;
/// assert_eq!(db.get("esker")?.as_deref(), Some(&b"winding"[..]));
/// # Ok::<(), esker_db::Error>(())
/// ```
pub struct SstFileWriter {
    writer: Option<TableWriter>,
    order: Order,
    env: Env,
    info: SstFileInfo,
    internal: Vec<u8>,
    range_deletions: Vec<RangeDeletion>,
    origin: Origin,
}

/// A name that is taken is the caller's own choice here, not a failure of the system.
fn taken(error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<esker_env::Error>());
    match source.map(esker_env::Error::kind) {
        Some(std::io::ErrorKind::AlreadyExists) => error.with_kind(ErrorKind::Conflict),
        _ => error,
    }
}

/// What an [`SstFileWriter`] wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SstFileInfo {
    /// Where.
    pub path: PathBuf,
    /// The file's length.
    pub file_bytes: u64,
    /// Keys, those that are deleted too.
    pub entries: u64,
    /// Keys that are deleted, each by itself.
    pub deletions: u64,
    /// Ranges of keys that are deleted.
    pub range_deletions: u64,
    /// The first key, but for those of ranges.
    pub smallest_key: Vec<u8>,
    /// The last key, but for those of ranges.
    pub largest_key: Vec<u8>,
}

impl SstFileWriter {
    /// Begins the file `path`, as a family with these options writes its tables: compression, filter, size of blocks, checksum.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its range; `Conflict` if there is a file already; `Io` or `Exhausted` if it cannot be made.
    pub fn create(path: impl AsRef<Path>, options: &FamilyOptions) -> Result<Self> {
        Self::create_with_env(path, options, Env::os())
    }

    /// As [`create`](Self::create), on another machine than the real one.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with_env(path: impl AsRef<Path>, options: &FamilyOptions, env: Env) -> Result<Self> {
        options.validate()?;
        let now = env.clock.unix_seconds();
        let identity = TableIdentity {
            column_family_id: UNKNOWN_FAMILY as u32,
            creation_time: now,
            oldest_key_time: now,
            db_id: "SST Writer".to_owned(),
            session_id: crate::open::new_session(&env),
            ..TableIdentity::default()
        };
        let path = path.as_ref();
        let options = TableOptions { compression: options.compression_of_loads(), ..TableOptions::of(options) };
        let writer = TableWriter::create(&*env.files, path, NUMBER, &options, &identity);
        let (mut writer, order) = (writer.map_err(taken)?, options.order);
        writer.set_external();
        let info = SstFileInfo { path: path.to_owned(), ..SstFileInfo::default() };
        Ok(Self {
            writer: Some(writer),
            order,
            env,
            info,
            internal: Vec::new(),
            range_deletions: Vec::new(),
            origin: Origin::here(),
        })
    }

    /// Adds `key` with `value`. Keys come in ascending order, each once.
    ///
    /// # Errors
    /// `InvalidArgument`: the key does not follow the one before, or key or value is too long; the file is as before.
    /// After `Exhausted` or `Io` it cannot be finished. `Closed` in a process that was forked since it was begun.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), value.as_ref(), ValueKind::Value)
    }

    /// Adds that `key` is gone: hides what a store that takes the file in has for it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), &[], ValueKind::Deletion)
    }

    /// Adds that all keys from `begin` on and before `end` are gone, wherever they come among the others: hides what a store that takes the file
    /// in has for them, and nothing of the file itself. Nothing if the two are equal.
    ///
    /// # Errors
    /// `InvalidArgument`: `begin` comes after `end`, or a key is too long; `Closed` as [`put`](Self::put).
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.check_here()?;
        let (begin, end) = (begin.as_ref(), end.as_ref());
        let longest = begin.len().max(end.len());
        let fits = TooLarge::check("key", longest, limits::KEY_BYTES_MAX).map_err(|error| error.to_string());
        let order = self.order;
        let ascends = if order.is_before(end, begin) {
            Err(format!("a range of keys cannot begin at {} and end before {}", shown(begin), shown(end)))
        } else {
            Ok(())
        };
        fits.and(ascends).map_err(|reason| Error::invalid_argument(reason).with_path(&self.info.path))?;
        if order.is_before(begin, end) {
            let sequence = SequenceNumber::default();
            self.range_deletions.push(RangeDeletion { begin: begin.into(), end: end.into(), sequence });
            self.info.range_deletions += 1;
        }
        Ok(())
    }

    /// Adds `operand`, to be merged into what a store that takes the file in has for `key`, by the operator of the family there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), operand.as_ref(), ValueKind::Merge)
    }

    fn check_here(&self) -> Result<()> {
        if self.origin.is_here() {
            return Ok(());
        }
        let reason = "the file is written by the process that this one was forked from";
        Err(Error::new(ErrorKind::Closed, reason).with_path(&self.info.path))
    }

    fn add(&mut self, key: &[u8], value: &[u8], kind: ValueKind) -> Result<()> {
        self.check_here()?;
        let last = (self.info.entries > 0).then_some(&*self.info.largest_key);
        check_next(self.order, last, key, value).map_err(|error| error.with_path(&self.info.path))?;
        let Some(writer) = &mut self.writer else {
            return Err(Error::invalid_argument("the file is finished").with_path(&self.info.path));
        };
        self.internal.clear();
        internal_key::append(&mut self.internal, key, SequenceNumber::new(0), kind);
        writer.add(&self.internal, value)?;
        if self.info.entries == 0 {
            self.info.smallest_key = key.to_vec();
        }
        self.info.largest_key.clear();
        self.info.largest_key.extend_from_slice(key);
        self.info.entries += 1;
        self.info.deletions += u64::from(kind == ValueKind::Deletion);
        Ok(())
    }

    /// Length of the file so far.
    pub fn file_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, TableWriter::file_bytes)
    }

    /// Completes the file and syncs it; its name is synced by whoever takes it in.
    ///
    /// # Errors
    /// `InvalidArgument`: it has no entries. `Exhausted`, `Io`: it could not be written. The file is removed then. `Closed` in
    /// a process that was forked since it was begun: nothing is touched.
    pub fn finish(mut self) -> Result<SstFileInfo> {
        self.check_here()?;
        if self.info.entries == 0 && self.range_deletions.is_empty() {
            return Err(
                Error::invalid_argument("a table without entries cannot be taken in").with_path(&self.info.path)
            );
        }
        if let Some(mut writer) = self.writer.take() {
            let added = writer.add_range_deletions(&Fragments::of(self.order, &self.range_deletions));
            let finished = added.and_then(|()| writer.finish());
            // Dropped without a writer, nothing is removed: whatever fails, this has to be done here.
            let summary = finished.inspect_err(|_| drop(self.env.files.remove(&self.info.path)))?;
            self.info.file_bytes = summary.file_bytes;
        }
        Ok(std::mem::take(&mut self.info))
    }
}

impl Drop for SstFileWriter {
    fn drop(&mut self) {
        let writer = self.writer.take();
        if !self.origin.is_here() {
            std::mem::forget(writer);
        } else if writer.is_some() {
            // Whoever gave up on the file has nobody to tell that it is still there.
            let _ = self.env.files.remove(&self.info.path);
        }
    }
}

impl fmt::Debug for SstFileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SstFileWriter").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Whether `key` may come after `last`, and the store takes both it and `value`.
pub(super) fn check_next(order: Order, last: Option<&[u8]>, key: &[u8], value: &[u8]) -> Result<()> {
    if let Some(last) = last
        && !order.is_before(last, key)
    {
        let in_order = if order.is_bytewise() { String::new() } else { format!(" in the order {:?}", order.name()) };
        let is = if last == key { "is there twice" } else { "does not come after" };
        let reason = format!(
            "keys must ascend{in_order}: {} {is}{}",
            shown(key),
            if last == key { String::new() } else { format!(" {}", shown(last)) }
        );
        return Err(Error::invalid_argument(reason));
    }
    let limited = TooLarge::check("key", key.len(), limits::KEY_BYTES_MAX)
        .and_then(|()| TooLarge::check("value", value.len(), limits::VALUE_BYTES_MAX));
    limited.map_err(|error| Error::invalid_argument(error.to_string()))
}

/// Longest part of a key that goes into an error.
const SHOWN_BYTES: usize = 64;

fn shown(key: &[u8]) -> String {
    let begin = key.get(..SHOWN_BYTES).unwrap_or(key);
    let more = if begin.len() < key.len() { format!("... ({} bytes)", key.len()) } else { String::new() };
    format!("\"{}\"{more}", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_env::sim::SimDisk;

    #[test]
    fn a_file_that_is_there_is_a_conflict_and_stays() {
        let disk = SimDisk::new();
        let create = || SstFileWriter::create_with_env("/a.sst", &FamilyOptions::default(), disk.env());
        let mut writer = create().unwrap();
        writer.put("k", "v").unwrap();
        let written = writer.finish().unwrap();
        let error = create().unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Conflict, Some(Path::new("/a.sst"))), "{error}");
        assert_eq!(disk.env().files.metadata(Path::new("/a.sst")).unwrap().len, written.file_bytes);
    }
}
