//! RocksDB, through the `rocksdb` crate.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

struct RocksDb {
    db: DB,
    writing: WriteOptions,
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "HyperClock block cache {}, {} write buffers of {}, {} background jobs, LZ4, 10-bit full filters, indexes and \
         filters beside the cache, WAL on",
        sizes::print(settings.cache_bytes() as f64),
        Settings::WRITE_BUFFERS,
        sizes::print(settings.write_buffer_bytes() as f64),
        settings.background_jobs,
    )
}

pub(super) fn setup_blob(settings: &Settings) -> String {
    let blobs = sizes::print(settings.min_blob_bytes as f64);
    format!("{}; blobs from {blobs}, LZ4, in the same cache, garbage collection on with its defaults", setup(settings))
}

pub(super) fn open(dir: &Path, settings: &Settings, separated: bool) -> Result<Box<dyn Engine>> {
    let cache = Cache::new_hyper_clock_cache(usize::try_from(settings.cache_bytes()).unwrap_or(usize::MAX), 0);
    let mut writing = WriteOptions::default();
    writing.set_sync(settings.sync);
    Ok(Box::new(RocksDb { db: DB::open(&options(settings, separated, &cache), dir)?, writing }))
}

fn options(settings: &Settings, separated: bool, cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(usize::try_from(settings.write_buffer_bytes()).unwrap_or(usize::MAX));
    options.set_max_write_buffer_number(i32::try_from(Settings::WRITE_BUFFERS).unwrap_or(i32::MAX));
    options.set_max_background_jobs(i32::try_from(settings.background_jobs).unwrap_or(i32::MAX));
    if separated {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(settings.min_blob_bytes);
        options.set_blob_compression_type(DBCompressionType::Lz4);
        options.set_enable_blob_gc(true);
        // Without one of their own kind, blobs are in no cache at all; the two may share.
        options.set_blob_cache(cache);
    }
    options
}

impl Engine for RocksDb {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        let mut writes = WriteBatch::default();
        for pair in batch {
            writes.put(pair.key, &pair.value);
        }
        Ok(self.db.write_opt(writes, &self.writing)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.writing)?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.db.get_pinned(key)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.db.get_pinned(key)?.is_some())
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut entries = self.db.raw_iterator();
        entries.seek(from);
        while let Some((key, value)) = entries.item() {
            if !show(key, value) {
                break;
            }
            entries.next();
        }
        Ok(entries.status()?)
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let mut entries = self.db.raw_iterator();
        entries.seek(from);
        while let Some(key) = entries.key() {
            if !show(key) {
                break;
            }
            entries.next();
        }
        Ok(entries.status()?)
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
    fn blobs_that_were_read_are_in_the_cache() {
        let settings = Settings { memory_bytes: 64 << 20, min_blob_bytes: 256, background_jobs: 2, sync: false };
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new_hyper_clock_cache(16 << 20, 0);
        let db = DB::open(&options(&settings, true, &cache), dir.path()).unwrap();
        for number in 0..200_u32 {
            db.put(number.to_be_bytes(), vec![7; 10_000]).unwrap();
        }
        db.flush().unwrap();
        for number in 0..200_u32 {
            assert!(db.get(number.to_be_bytes()).unwrap().is_some());
        }
        assert!(cache.get_usage() > 200 * 10_000, "{} bytes in the cache", cache.get_usage());
    }
}
