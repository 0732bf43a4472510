//! What there is.

use std::sync::atomic::Ordering;

use esker_format::rocksdb::internal_key::FileNumber as LedgerNumber;
use esker_log::ledger::{Ledger, Usage};

use crate::store::Store;
use crate::{Error, Result};

/// A picture of a store.
#[derive(Debug, Clone, Default)]
pub struct CaskStats {
    /// Keys that have a value, those included that have expired and were not merged since.
    pub keys: u64,
    /// Data files.
    pub files: u64,
    /// Those of them that change no more.
    pub sealed_files: u64,
    /// Those of them with bytes that are no records. They are served, and not merged.
    pub damaged_files: u64,
    /// Records in all files, dead ones and deletions included.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that were superseded or deleted.
    pub dead_records: u64,
    /// Their bytes.
    pub dead_bytes: u64,
    /// Deletions.
    pub tombstones: u64,
    /// Their bytes.
    pub tombstone_bytes: u64,
    /// Memory of the key directory, in bytes.
    pub directory_bytes: u64,
    /// Memory of the ledger, in bytes.
    pub ledger_bytes: u64,
    /// Bytes that merges have read since the store was opened.
    pub merged_bytes: u64,
    /// The version of the last write.
    pub last_version: u64,
    /// What made the store refuse writes, or what background work failed at last.
    pub background_error: Option<Error>,
}

impl Store {
    /// Live and dead bytes of every file.
    pub(crate) fn ledger(&self) -> Result<Ledger> {
        let mut ledger = Ledger::new();
        for file in self.files.load().iter() {
            let (usage, number) = (file.usage(), LedgerNumber::new(file.number.get().into()));
            ledger.add_file(number, usage.records, usage.bytes)?;
            ledger.add_garbage(number, usage.dead_records, usage.dead_bytes)?;
        }
        Ok(ledger)
    }

    pub(crate) fn stats(&self) -> CaskStats {
        let mut stats = CaskStats {
            keys: self.key_count(),
            directory_bytes: self.keydir.memory_bytes(),
            merged_bytes: self.merged_bytes.load(Ordering::Relaxed),
            last_version: self.next_version.load(Ordering::Acquire).saturating_sub(1),
            background_error: self.background_error(),
            ..CaskStats::default()
        };
        for file in self.files.load().iter() {
            let usage = file.usage();
            stats.files += 1;
            stats.sealed_files += u64::from(file.is_sealed());
            stats.damaged_files += u64::from(file.is_damaged());
            stats.ledger_bytes += file.memory_bytes();
            stats.tombstones += usage.tombstones;
            stats.tombstone_bytes += usage.tombstone_bytes;
        }
        // A write between two files may make the sums differ by a record; no sum is more precise than that.
        let Usage { count, bytes, garbage_count, garbage_bytes } =
            self.ledger().map(|ledger| ledger.total()).unwrap_or_default();
        (stats.records, stats.bytes, stats.dead_records, stats.dead_bytes) =
            (count, bytes, garbage_count, garbage_bytes);
        stats
    }
}
