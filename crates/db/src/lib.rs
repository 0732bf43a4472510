//! Esker's ordered engine: an LSM-tree with key-value separation, in RocksDB's own files.
//!
//! The public surface is [`Db`]; `ARCHITECTURE.md` at the top of the repository is the map of the rooms.

#![warn(clippy::indexing_slicing)]

mod background;
mod batch;
mod blob;
mod cache;
mod check;
mod compaction;
mod copy;
mod counters;
mod db;
mod entry;
mod events;
mod families;
mod family;
mod flush;
mod ingest;
mod iterate;
mod memory;
mod memtable;
mod open;
mod operands;
mod options;
mod output;
mod pieces;
mod pinned;
mod range_deletions;
mod read;
mod reclaim;
mod repair;
mod snapshot;
mod stats;
mod store;
mod table;
mod transaction;
mod ttl;
mod update;
mod version;
mod write;

pub use batch::WriteBatch;
pub use cache::Cache;
pub use check::{Check, CheckProgress, WithoutCurrent};
pub use compaction::{CompactionFilter, FilterCandidate, FilterDecision};
pub use copy::{BackupInfo, Backups, Copied, CopyProgress, NewBackup};
pub use db::Db;
pub use esker_format::checksum::ChecksumKind;
pub use esker_format::compression::Compression;
pub use esker_format::rocksdb::order::{BytewiseComparator, Comparator, ReverseBytewiseComparator};
pub use esker_format::rocksdb::prefix::PrefixExtractor;
pub use esker_log::scan::RecoveryMode;
pub use esker_log::{Error, ErrorKind, Result};
pub use events::{ChangedFile, Event, EventKind, FileChanges, Job, JobKind, Listener, WaitCause};
pub use family::ColumnFamily;
pub use ingest::{BulkLoad, IngestOptions, Ingested, Loaded, SstFileInfo, SstFileWriter};
pub use iterate::{DbIterator, Entries};
pub use open::Recovery;
pub use operands::{
    BytesXorOperator, MaxOperator, MergeOperator, PutOperator, StringAppendOperator, UInt64AddOperator,
};
pub use options::{
    BlobPartition, FamilyOptions, MutableOptions, Options, ReadOptions, ReclaimMode, Separation, TransactionOptions,
    WriteOptions,
};
pub use pinned::PinnedSlice;
pub use reclaim::{BlobFileUse, ReclaimPlan, Reclaimed};
pub use repair::{AsideReason, DbRepair, LostKey, PutAside};
pub use snapshot::Snapshot;
pub use stats::{CacheStats, FamilyStats, LevelStats, MemoryStats, OnDisk, Stats, Written};
pub use transaction::{Transaction, TransactionIterator};
pub use ttl::{TtlFamily, TtlIterator};
pub use update::Change;

/// What rooms that are model-checked lock and count by: `tests/view_model.rs` and `testing/models` compile them over a model of it.
mod sync {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::{OnceLock, atomic};
    pub(crate) use std::thread::yield_now as give_way;
}
