//! Fjall.

use std::path::Path;
use std::time::Duration;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    mode: PersistMode,
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "cache {}, memtables of {} (a bound on all of them together it does not have yet), {} worker threads, LZ4 and \
         10-bit filters on every level, every write reaches the kernel before it returns",
        sizes::print(settings.cache_bytes() as f64),
        sizes::print(settings.write_buffer_bytes() as f64),
        settings.background_jobs,
    )
}

pub(super) fn setup_blob(settings: &Settings) -> String {
    format!("{}; blobs from {}, LZ4", setup(settings), sizes::print(settings.min_blob_bytes as f64))
}

pub(super) fn open(dir: &Path, settings: &Settings, separated: bool) -> Result<Box<dyn Engine>> {
    let database = Database::builder(dir)
        .cache_size(settings.cache_bytes())
        .worker_threads(settings.background_jobs as usize)
        .open()?;
    let separation = separated.then(|| {
        KvSeparationOptions::default()
            .compression(CompressionType::Lz4)
            .separation_threshold(u32::try_from(settings.min_blob_bytes).unwrap_or(u32::MAX))
    });
    let keyspace = database.keyspace("default", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(settings.write_buffer_bytes())
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0))))
            .with_kv_separation(separation)
    })?;
    let mode = if settings.sync { PersistMode::SyncData } else { PersistMode::Buffer };
    Ok(Box::new(Fjall { database, keyspace, mode }))
}

impl Engine for Fjall {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        if let ([pair], PersistMode::Buffer) = (batch, self.mode) {
            // Cheaper than a batch of one, and as durable: it hands its bytes to the kernel by default.
            return Ok(self.keyspace.insert(pair.key, pair.value.as_slice())?);
        }
        let mut writes = self.database.batch().durability(Some(self.mode));
        for pair in batch {
            writes.insert(&self.keyspace, pair.key, pair.value.as_slice());
        }
        Ok(writes.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        if self.mode != PersistMode::Buffer {
            self.database.persist(self.mode)?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.keyspace.get(key)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.keyspace.contains_key(key)?)
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.keyspace.range(from..) {
            let (key, value) = entry.into_inner()?;
            if !show(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        for entry in self.keyspace.range(from..) {
            if !show(&entry.key()?) {
                break;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        self.database.persist(PersistMode::SyncAll)?;
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
