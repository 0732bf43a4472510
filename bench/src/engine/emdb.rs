//! emdb: a hash index in memory over one append-only file. It has no key order: no ranges, and scans in the order of its
//! index. What it calls a batch may be cut by a crash, so it has none here.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use emdb::{Emdb, FlushPolicy};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;

struct Store {
    emdb: Emdb,
    /// Bytes of log for each key when it held nothing dead.
    dense_bytes: AtomicU64,
}

pub(super) fn setup(_: &Settings) -> String {
    "no compression, no cache, no background threads (it has none); the file is mapped, values are lent from it; it gives \
     space back only when told, and is told to at settling once a third of the file is dead"
        .into()
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let policy = if settings.sync { FlushPolicy::WriteThrough } else { FlushPolicy::OnEachFlush };
    let emdb = Emdb::builder().path(dir.join("store.emdb")).flush_policy(policy).build()?;
    let store = Store { emdb, dense_bytes: AtomicU64::new(0) };
    // Phases that write settle before the store is closed, so what is opened is dense enough.
    store.dense_bytes.store(store.bytes_for_each_key()?, Relaxed);
    Ok(Box::new(store))
}

impl Store {
    /// 0 if there are no keys.
    fn bytes_for_each_key(&self) -> Result<u64> {
        let stats = self.emdb.stats()?;
        Ok(stats.logical_size_bytes.checked_div(stats.live_records).unwrap_or(0))
    }
}

impl Engine for Store {
    fn is_ordered(&self) -> bool {
        false
    }

    fn put(&self, batch: &[Pair]) -> Result<()> {
        let [pair] = batch else { return Err("emdb has no batches that a crash cannot cut".into()) };
        Ok(self.emdb.insert(pair.key, pair.value.as_slice())?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.emdb.remove(key)?;
        Ok(())
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.emdb.get_zerocopy(key)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.emdb.contains_key(key)?)
    }

    fn scan(&self, _: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for (key, value) in self.emdb.iter()? {
            if !show(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, _: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        for key in self.emdb.keys()? {
            if !show(&key) {
                break;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.emdb.flush()?;
        let (dense, now) = (self.dense_bytes.load(Relaxed), self.bytes_for_each_key()?);
        if dense == 0 {
            self.dense_bytes.store(now, Relaxed);
        } else if now >= dense + dense / 2 {
            self.emdb.compact()?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.emdb.checkpoint()?)
    }
}
