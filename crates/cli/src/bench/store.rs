//! The store that is put to work, of whatever kind, and what it tells of itself.
//!
//! - O1: an operation costs one comparison of the kind beside what the engine does: no allocation, no pointer to a call.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use esker::{
    Cask, CaskBatch, CaskScan, CaskValue, CaskWriteOptions, ColumnFamily, Db, Error, OnDisk, PinnedSlice, ReadOptions,
    Transaction, TransactionOptions, WriteBatch, WriteOptions,
};
use esker_format::cask::FileName;

use super::fault::Stop;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::sizes::{Bytes, plural};

/// An open store.
#[derive(Debug)]
pub(crate) enum Store {
    Db(Db),
    Cask(Cask),
}

/// Names and bytes, or other counts; of one store always the same names in the same order.
pub(super) type Parts = Vec<(&'static str, u64)>;

/// What a store tells of itself. Counters begin when it is opened.
#[derive(Debug, Clone, Default)]
pub(super) struct Picture {
    /// Grows with every write, also from one open to the next.
    pub(super) sequence: u64,
    /// Time that writers were held back, of all threads together.
    pub(super) stall: Duration,
    /// What users wrote.
    pub(super) user_bytes: u64,
    /// Bytes written to files, by what wrote them.
    pub(super) written: Parts,
    /// Bytes in files, by what they are.
    pub(super) on_disk: Parts,
    /// Bytes on the disk per live byte, as the store estimates.
    pub(super) space_amplification: Option<f64>,
    /// Other counts, by their names as fields.
    pub(super) counts: Parts,
    /// What people are told beside it.
    pub(super) words: Vec<(&'static str, String)>,
}

impl Picture {
    /// All bytes written to files.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.iter().map(|(_, bytes)| bytes).sum()
    }

    /// All bytes in files.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.on_disk.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Store {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Db(_) => Kind::Db,
            Self::Cask(_) => Kind::Cask,
        }
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        match self {
            Self::Db(db) => db.close(),
            Self::Cask(cask) => cask.close(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Db(db) => db.path(),
            Self::Cask(cask) => cask.path(),
        }
    }

    pub(super) fn picture(&self) -> Picture {
        match self {
            Self::Db(db) => of_db(db),
            Self::Cask(cask) => of_cask(cask),
        }
    }

    /// For the threads of one benchmark, whose writes are synced or not.
    pub(super) fn target(&self, sync: bool) -> Target<'_> {
        match self {
            Self::Db(db) => Target::Db {
                db,
                family: db.default_column_family(),
                read: ReadOptions::default(),
                write: WriteOptions { sync, ..WriteOptions::default() },
            },
            Self::Cask(cask) => Target::Cask { cask, write: CaskWriteOptions { sync, ..CaskWriteOptions::default() } },
        }
    }
}

fn of_db(db: &Db) -> Picture {
    let stats = db.stats();
    let written = &stats.written;
    let work = [(stats.flushes, "flush", "flushes"), (stats.compactions, "compaction", "compactions")];
    Picture {
        sequence: stats.sequence,
        stall: Duration::from_micros(stats.stall_micros),
        user_bytes: written.user_bytes,
        written: vec![
            ("log", written.wal_bytes),
            ("blobs at once", written.write_blob_bytes),
            ("flush, tables", written.flush_bytes),
            ("flush, blob files", written.flush_blob_bytes),
            ("compaction", written.compaction_bytes),
            ("manifest", written.manifest_bytes),
            ("reclaim", written.reclaim_bytes),
        ],
        on_disk: parts_on_disk(&stats.on_disk),
        space_amplification: stats.space_amplification(),
        counts: vec![
            ("flushes", stats.flushes),
            ("compactions", stats.compactions),
            ("cache_hits", stats.cache.hits),
            ("cache_misses", stats.cache.misses),
        ],
        words: vec![("background work", work.map(|(count, one, many)| plural(count, one, many)).join(", "))],
    }
}

/// By kind of file. The log of an open store is longer than what is in it.
pub(super) fn parts_on_disk(on_disk: &OnDisk) -> Parts {
    vec![
        ("tables", on_disk.table_bytes),
        ("blob files", on_disk.blob_bytes),
        ("log", on_disk.wal_bytes),
        ("other", on_disk.other_bytes),
    ]
}

fn of_cask(cask: &Cask) -> Picture {
    let stats = cask.stats();
    let live_bytes = stats.bytes.saturating_sub(stats.dead_bytes + stats.tombstone_bytes);
    let other_bytes = bytes_beside_data(cask.path());
    let disk_bytes = stats.bytes + other_bytes;
    Picture {
        sequence: stats.last_version,
        // A Cask lets no writer wait for its merges.
        stall: Duration::ZERO,
        user_bytes: stats.user_bytes,
        written: vec![("writes", stats.appended_bytes), ("merges", stats.merge_written_bytes)],
        on_disk: vec![
            ("alive", live_bytes),
            ("superseded", stats.dead_bytes),
            ("deletions", stats.tombstone_bytes),
            ("hints and manifest", other_bytes),
        ],
        space_amplification: (live_bytes > 0).then(|| disk_bytes as f64 / live_bytes as f64),
        counts: vec![
            ("keys", stats.keys),
            ("data_files", stats.files),
            ("merge_read_bytes", stats.merged_bytes),
            ("directory_bytes", stats.directory_bytes),
        ],
        words: vec![
            ("background work", format!("merges of {}", Bytes(stats.merged_bytes))),
            ("key directory", format!("{} of memory", Bytes(stats.directory_bytes))),
        ],
    }
}

/// Of all files of a Cask but the data files, whose preallocated ends are no records. What is removed meanwhile counts
/// nothing.
fn bytes_beside_data(path: &Path) -> u64 {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let others = files.filter(|file| {
        let name = file.file_name();
        !matches!(name.to_str().and_then(FileName::parse), Some(FileName::Data(_)))
    });
    others.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// A store, with the options of one benchmark.
#[derive(Debug)]
pub(super) enum Target<'a> {
    Db { db: &'a Db, family: ColumnFamily, read: ReadOptions, write: WriteOptions },
    Cask { cask: &'a Cask, write: CaskWriteOptions },
}

/// A value that was read.
#[derive(Debug)]
pub(super) enum Found {
    Db(PinnedSlice),
    Cask(CaskValue),
}

impl Deref for Found {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Db(value) => value,
            Self::Cask(value) => value,
        }
    }
}

/// Writes that take effect together.
#[derive(Debug)]
pub(super) enum Batch {
    Db(WriteBatch),
    Cask(CaskBatch),
}

impl Batch {
    #[inline]
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self {
            Self::Db(batch) => batch.put(key, value),
            Self::Cask(batch) => batch.put(key, value),
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        match self {
            Self::Db(batch) => batch.delete(key),
            Self::Cask(batch) => batch.delete(key),
        }
    }

    /// Only in a Db; see [`Benchmark::refusal`](super::Benchmark::refusal).
    pub(super) fn delete_range(&mut self, begin: &[u8], end: &[u8]) -> Result<(), Stop> {
        match self {
            Self::Db(batch) => Ok(batch.delete_range(begin, end)?),
            Self::Cask(_) => Err(Stop::Failed(Failure::new("this benchmark needs a Db"))),
        }
    }
}

impl<'a> Target<'a> {
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Found>, Error> {
        match self {
            Self::Db { db, family, read, .. } => Ok(db.get_cf(family, key, read)?.map(Found::Db)),
            Self::Cask { cask, .. } => Ok(cask.get(key)?.map(Found::Cask)),
        }
    }

    #[inline]
    pub(super) fn exists(&self, key: &[u8]) -> Result<bool, Error> {
        match self {
            Self::Db { db, family, read, .. } => db.exists_cf(family, key, read),
            Self::Cask { cask, .. } => cask.exists(key),
        }
    }

    #[inline]
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self {
            Self::Db { db, write, .. } => {
                let mut batch = WriteBatch::new();
                batch.put(key, value)?;
                db.write(batch, write)
            }
            Self::Cask { cask, write } => cask.put_with(key, value, write).map(drop),
        }
    }

    #[inline]
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Error> {
        match self {
            Self::Db { db, write, .. } => {
                let mut batch = WriteBatch::new();
                batch.delete(key)?;
                db.write(batch, write)
            }
            Self::Cask { cask, write } => cask.delete_with(key, write).map(drop),
        }
    }

    pub(super) fn batch(&self) -> Batch {
        match self {
            Self::Db { .. } => Batch::Db(WriteBatch::new()),
            Self::Cask { .. } => Batch::Cask(CaskBatch::new()),
        }
    }

    /// Applies what [`batch`](Self::batch) of the same store began.
    pub(super) fn write(&self, batch: Batch) -> Result<(), Stop> {
        match (self, batch) {
            (Self::Db { db, write, .. }, Batch::Db(batch)) => Ok(db.write(batch, write)?),
            (Self::Cask { cask, write }, Batch::Cask(batch)) => Ok(cask.write(&batch, write).map(drop)?),
            _ => Err(Stop::Failed(Failure::new("a batch of another kind of store; report it"))),
        }
    }

    /// Whether it can be walked through in the order of its keys.
    pub(super) fn has_order(&self) -> bool {
        matches!(self, Self::Db { .. })
    }

    pub(super) fn compact(&self) -> Result<(), Error> {
        match self {
            Self::Db { db, family, .. } => db.compact_range(family, None, None),
            Self::Cask { cask, .. } => cask.compact(),
        }
    }

    /// For what only a Db can do; see [`Benchmark::refusal`](super::Benchmark::refusal).
    pub(super) fn db(&self) -> Result<(&'a Db, &ColumnFamily, &ReadOptions), Stop> {
        match self {
            Self::Db { db, family, read, .. } => Ok((db, family, read)),
            Self::Cask { .. } => Err(Stop::Failed(Failure::new("this benchmark needs a Db"))),
        }
    }

    /// A transaction, and how it is committed.
    pub(super) fn transaction(&self, locking: bool) -> Result<(Transaction, &WriteOptions), Stop> {
        match self {
            Self::Db { db, write, .. } => {
                let options = TransactionOptions { locking, lock_timeout: Duration::MAX };
                Ok((db.transaction_with(&options), write))
            }
            Self::Cask { .. } => Err(Stop::Failed(Failure::new("this benchmark needs a Db"))),
        }
    }

    /// Deletes the keys from `begin` on and before `end`.
    pub(super) fn delete_range(&self, begin: &[u8], end: &[u8]) -> Result<(), Stop> {
        match self {
            Self::Db { db, family, write, .. } => Ok(db.delete_range_cf(family, begin, end, write)?),
            Self::Cask { .. } => Err(Stop::Failed(Failure::new("this benchmark needs a Db"))),
        }
    }

    /// Merges an operand into a key's value.
    pub(super) fn merge(&self, key: &[u8], operand: &[u8]) -> Result<(), Stop> {
        match self {
            Self::Db { db, family, write, .. } => Ok(db.merge_cf(family, key, operand, write)?),
            Self::Cask { .. } => Err(Stop::Failed(Failure::new("this benchmark needs a Db"))),
        }
    }

    /// A walk through everything, in no order.
    pub(super) fn scan(&self) -> Result<CaskScan, Stop> {
        match self {
            Self::Db { .. } => Err(Stop::Failed(Failure::new("this benchmark needs a Cask"))),
            Self::Cask { cask, .. } => Ok(cask.scan()?),
        }
    }
}
