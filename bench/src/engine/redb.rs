//! redb.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");

/// Without sync, redb keeps what it commits in its own memory, and its file grows, until a commit is durable.
/// So one commit is, whenever this much was put.
const DURABLE_EVERY_BYTES: u64 = 16 << 20;

struct Redb {
    database: Database,
    sync: bool,
    unsynced_bytes: AtomicU64,
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "cache {}, no compression (it has none); without sync a commit every {} is durable and what lies between would \
         be lost with the process (weaker than the others: it has no middle way)",
        sizes::print(settings.memory_bytes as f64),
        sizes::print(DURABLE_EVERY_BYTES as f64),
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let cache_bytes = usize::try_from(settings.memory_bytes).unwrap_or(usize::MAX);
    let database = Database::builder().set_cache_size(cache_bytes).create(dir.join("store.redb"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(Box::new(Redb { database, sync: settings.sync, unsynced_bytes: AtomicU64::new(0) }))
}

impl Redb {
    fn begin(&self, bytes: u64) -> Result<redb::WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        let unsynced = self.unsynced_bytes.fetch_add(bytes, Relaxed) + bytes;
        if !self.sync && unsynced < DURABLE_EVERY_BYTES {
            transaction.set_durability(Durability::None)?;
        } else {
            self.unsynced_bytes.store(0, Relaxed);
        }
        Ok(transaction)
    }
}

impl Engine for Redb {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        let transaction = self.begin(batch.iter().map(|pair| pair.value.len() as u64).sum())?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for pair in batch {
                table.insert(pair.key.as_slice(), pair.value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let transaction = self.begin(key.len() as u64)?;
        transaction.open_table(TABLE)?.remove(key)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let value = table.get(key)?;
        show(value.as_ref().map(|value| value.value()));
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.is_some())
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for entry in table.range(from..)? {
            let (key, value) = entry?;
            if !show(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for entry in table.range(from..)? {
            if !show(entry?.0.value()) {
                break;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        // The first makes everything durable, the second gives back what the first had to keep.
        for _ in 0..2 {
            self.database.begin_write()?.commit()?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}
