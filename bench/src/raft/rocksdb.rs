//! RocksDB as a Raft log, as TiKV used it before: a key for each entry, a key for each group's state.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, IteratorMode, Options, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};

use super::{Append, RaftStore};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

struct RocksDb {
    db: DB,
    writing: WriteOptions,
}

/// Of the state; entries follow it.
const STATE: u8 = 0;
const ENTRY: u8 = 1;

fn key(group: u64, kind: u8, index: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..8].copy_from_slice(&group.to_be_bytes());
    key[8] = kind;
    key[9..].copy_from_slice(&index.to_be_bytes());
    key
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "block cache {}, {} write buffers of {}, {} background jobs, LZ4, range deletes to compact",
        sizes::print(settings.cache_bytes() as f64),
        Settings::WRITE_BUFFERS,
        sizes::print(settings.write_buffer_bytes() as f64),
        settings.background_jobs,
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn RaftStore>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_hyper_clock_cache(usize::try_from(settings.cache_bytes())?, 0));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(usize::try_from(settings.write_buffer_bytes())?);
    options.set_max_write_buffer_number(i32::try_from(Settings::WRITE_BUFFERS)?);
    options.set_max_background_jobs(i32::try_from(settings.background_jobs)?);
    let mut writing = WriteOptions::default();
    writing.set_sync(settings.sync);
    Ok(Box::new(RocksDb { db: DB::open(&options, dir)?, writing }))
}

impl RaftStore for RocksDb {
    fn append(&self, appends: &[Append<'_>]) -> Result<()> {
        let mut writes = WriteBatch::default();
        for append in appends {
            writes.put(key(append.group, ENTRY, append.index), append.entry);
            writes.put(key(append.group, STATE, 0), append.state);
        }
        Ok(self.db.write_opt(writes, &self.writing)?)
    }

    fn fetch(&self, group: u64, begin: u64, end: u64, show: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let from = key(group, ENTRY, begin);
        for (item, index) in self.db.iterator(IteratorMode::From(&from, rocksdb::Direction::Forward)).zip(begin..end) {
            let (found, entry) = item?;
            if *found != key(group, ENTRY, index) {
                return Err(format!("wrong answer: entry {index} of group {group} is missing").into());
            }
            show(index, &entry);
        }
        Ok(())
    }

    fn state(&self, group: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.db.get(key(group, STATE, 0))?)
    }

    fn compact(&self, group: u64, index: u64) -> Result<()> {
        let mut writes = WriteBatch::default();
        writes.delete_range(key(group, ENTRY, 0), key(group, ENTRY, index));
        Ok(self.db.write(writes)?)
    }

    fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_leaves_nothing_in_memory() {
        let settings = Settings { memory_bytes: 64 << 20, min_blob_bytes: 256, background_jobs: 2, sync: false };
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), &settings).unwrap();
        log.append(&[Append { group: 1, index: 1, entry: b"entry", state: b"state" }]).unwrap();
        log.settle().unwrap();
        let has_table = |path: std::path::PathBuf| path.extension().is_some_and(|extension| extension == "sst");
        assert!(std::fs::read_dir(dir.path()).unwrap().any(|entry| has_table(entry.unwrap().path())));
        log.close().unwrap();
    }
}
