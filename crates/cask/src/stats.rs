//! What there is.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::rocksdb::internal_key::FileNumber as LedgerNumber;
use esker_log::ledger::{Ledger, Usage};

use crate::store::{Counters, Store};
use crate::{Error, Result};

/// A picture of a store.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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
    /// Keys and values that users wrote since the store was opened, as they gave them; of a deletion the key.
    pub user_bytes: u64,
    /// The records that these writes became, with their heads, values packed.
    pub appended_bytes: u64,
    /// Syncs of data files since the store was opened, one for all who waited for it; those of hints and of the manifest not included.
    pub syncs: u64,
    /// Data files that were sealed since.
    pub seals: u64,
    /// Those of them that a writer has sealed, and waited for, because files filled up faster than the background could follow.
    pub seals_by_writers: u64,
    /// Merges that came to an end since.
    pub merges: u64,
    /// Bytes that merges have read since the store was opened.
    pub merged_bytes: u64,
    /// Bytes of records that merges have written since, those of merges that failed included.
    pub merge_written_bytes: u64,
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
        let Counters { syncs, seals, seals_by_writers, merges, merged_bytes, merge_written_bytes } = &self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = CaskStats {
            keys: self.key_count(),
            directory_bytes: self.keydir.memory_bytes(),
            syncs: count(syncs),
            seals: count(seals),
            seals_by_writers: count(seals_by_writers),
            merges: count(merges),
            merged_bytes: count(merged_bytes),
            merge_written_bytes: count(merge_written_bytes),
            last_version: self.next_version.load(Ordering::Acquire).saturating_sub(1),
            background_error: self.background_error(),
            ..CaskStats::default()
        };
        (stats.user_bytes, stats.appended_bytes) = self.stripes.written();
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

#[cfg(test)]
mod tests {
    use crate::{Cask, CaskBatch, CaskOptions};

    #[test]
    fn bytes_are_counted_by_who_wrote_them_from_each_open_on() {
        let dir = tempfile::tempdir().unwrap();
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open(dir.path(), options.clone()).unwrap();
        let written = |cask: &Cask| {
            let stats = cask.stats();
            (stats.user_bytes, stats.appended_bytes, stats.merge_written_bytes)
        };
        assert_eq!(written(&cask), (0, 0, 0));
        cask.put("key", "old").unwrap();
        cask.put("key", "value").unwrap();
        assert!(cask.delete("absent").is_ok_and(|was_there| !was_there));
        assert!(!cask.put_if_absent("key", "other", &Default::default()).unwrap());
        let (user, appended, _) = written(&cask);
        // What was not written is not counted.
        assert_eq!((user, appended), (6 + 8, cask.stats().bytes));
        let mut batch = CaskBatch::new();
        batch.put("other", "two").unwrap();
        batch.delete("key").unwrap();
        cask.write(&batch, &Default::default()).unwrap();
        let (user, appended, merged) = written(&cask);
        assert_eq!((user, appended, merged), (14 + 8 + 3, cask.stats().bytes, 0));
        cask.compact().unwrap();
        let (user_after, appended_after, merged) = written(&cask);
        assert_eq!((user_after, appended_after, merged), (user, appended, cask.stats().bytes));
        assert!(0 < merged && merged < appended);
        cask.close().unwrap();
        assert_eq!(written(&Cask::open(dir.path(), options).unwrap()), (0, 0, 0));
    }

    #[test]
    fn what_was_synced_sealed_and_merged_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let file_bytes = 4 << 10;
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, file_bytes, ..CaskOptions::default() };
        let cask = Cask::open(dir.path(), options).unwrap();
        let counted = || {
            let stats = cask.stats();
            [stats.syncs, stats.seals, stats.merges]
        };
        assert_eq!(counted(), [0; 3]);
        cask.put("key", "value").unwrap();
        cask.sync().unwrap();
        cask.sync().unwrap();
        assert_eq!(counted(), [1, 0, 0], "the second had nothing to do");
        cask.put("other", [b'x'; 4000]).unwrap();
        cask.put("third", [b'x'; 4000]).unwrap();
        assert_eq!(counted(), [2, 1, 0], "the first file was full");
        cask.put("key", "anew").unwrap();
        cask.compact().unwrap();
        let [syncs, seals, merges] = counted();
        assert!(syncs >= 4 && seals >= 2 && merges == 1, "{syncs}, {seals}, {merges}");
    }

    #[test]
    fn a_packed_value_counts_for_users_as_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let compression = crate::Compression::Lz4;
        let options = CaskOptions { create_if_missing: true, compression, ..CaskOptions::default() };
        let cask = Cask::open(dir.path(), options).unwrap();
        cask.put("key", [b'x'; 10_000]).unwrap();
        let stats = cask.stats();
        assert!(stats.user_bytes == 10_003 && stats.appended_bytes < 1_000, "{stats:?}");
    }
}
