//! CandyStore: a hash table in a mapped file over append-only files. It has no key order: no ranges, and scans in the order
//! of its rows. It has no batches either.

use std::path::Path;
use std::time::Duration;

use candystore::{CandyStore, Config};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

struct Store {
    candy: CandyStore,
    sync: bool,
}

/// Its default is one every 5 seconds and every 128 KiB; its own benchmark has none. What they guard against is power loss,
/// which nobody is guarded against without sync.
const CHECKPOINT_INTERVAL: Option<Duration> = None;
const CHECKPOINT_DELTA_BYTES: Option<usize> = None;

pub(super) fn setup(settings: &Settings) -> String {
    let checkpoints = if settings.sync { "after every write" } else { "only at settling, as its own benchmark" };
    format!(
        "no compression, no cache (it has none); index mapped, values are read by calls; checkpoints {checkpoints}; it compacts \
         only what a checkpoint has passed, {} a second (its default), so this goes on into the next phases",
        sizes::print(Config::default().compaction_throughput_bytes_per_sec as f64),
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let config = Config {
        checkpoint_interval: CHECKPOINT_INTERVAL,
        checkpoint_delta_bytes: CHECKPOINT_DELTA_BYTES,
        ..Config::default()
    };
    Ok(Box::new(Store { candy: CandyStore::open(dir, config)?, sync: settings.sync }))
}

impl Store {
    fn make_durable(&self) -> Result<()> {
        if self.sync {
            self.candy.checkpoint()?;
        }
        Ok(())
    }
}

impl Engine for Store {
    fn is_ordered(&self) -> bool {
        false
    }

    fn put(&self, batch: &[Pair]) -> Result<()> {
        let [pair] = batch else { return Err("CandyStore has no batches".into()) };
        self.candy.set(pair.key, &pair.value)?;
        self.make_durable()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.candy.remove(key)?;
        self.make_durable()
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.candy.get(key)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.candy.contains(key)?)
    }

    fn scan(&self, _: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.candy.iter_items() {
            let (key, value) = entry?;
            if !show(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        self.scan(from, &mut |key, _| show(key))
    }

    fn settle(&self) -> Result<()> {
        Ok(self.candy.checkpoint()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.candy.checkpoint()?)
    }
}
