#![doc = include_str!("../../../README.md")]

pub use esker_db::{AsideReason, DbRepair, LostKey, PutAside};
pub use esker_db::{BackupInfo, Backups, NewBackup};
pub use esker_db::{
    BlobFileUse, BlobPartition, BulkLoad, BytesXorOperator, BytewiseComparator, Cache, CacheStats, Change, ChangedFile,
    Check, CheckProgress, ColumnFamily, CompactionFilter, Comparator, Copied, CopyProgress, Db, DbIterator, Entries,
    Event, EventKind, FamilyOptions, FamilyStats, FileChanges, FilterCandidate, FilterDecision, IngestOptions,
    Ingested, Job, JobKind, LevelStats, Listener, Loaded, MaxOperator, MemoryStats, MergeOperator, MutableOptions,
    OnDisk, Options, PinnedSlice, PutOperator, ReadOptions, ReclaimMode, ReclaimPlan, Reclaimed, Recovery,
    ReverseBytewiseComparator, Separation, Snapshot, SstFileInfo, SstFileWriter, Stats, StringAppendOperator,
    Transaction, TransactionIterator, TransactionOptions, TtlFamily, TtlIterator, UInt64AddOperator, WaitCause,
    WithoutCurrent, WriteBatch, WriteOptions, Written,
};
pub use esker_db::{ChecksumKind, Compression, Error, ErrorKind, PrefixExtractor, RecoveryMode, Result};

pub use esker_cask::{
    Cask, CaskBatch, CaskCheck, CaskCheckProgress, CaskCopied, CaskCopyProgress, CaskDamage, CaskOptions, CaskRecovery,
    CaskRepair, CaskScan, CaskStats, CaskValue, CaskWriteOptions,
};

pub use esker_raft_log::{LogBatch, RaftLog};

pub mod coming_from;

/// What goes with [`RaftLog`].
pub mod raft {
    pub use esker_raft_log::*;
}

/// The machine an engine runs on: for tests on a simulated disk, see [`env::sim`].
///
/// What stands here follows what the engines need of a machine: unlike all other names of this crate, it may change in any release.
pub use esker_env as env;
