//! Esker's Cask: a hash index over append-only files. It has no key order: no ranges, and scans in the order of its files.

use std::path::Path;

use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, Compression};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;

struct Store {
    cask: Cask,
    writing: CaskWriteOptions,
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "LZ4 for values from 512 B, {} background jobs; no cache of its own: files are mapped, keys cost some 20 B of memory \
         each",
        settings.background_jobs.min(2)
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let options = CaskOptions {
        create_if_missing: true,
        compression: Compression::Lz4,
        background_jobs: settings.background_jobs.min(2) as usize,
        ..CaskOptions::default()
    };
    let writing = CaskWriteOptions { sync: settings.sync, ..CaskWriteOptions::default() };
    Ok(Box::new(Store { cask: Cask::open(dir, options)?, writing }))
}

impl Engine for Store {
    fn is_ordered(&self) -> bool {
        false
    }

    fn put(&self, batch: &[Pair]) -> Result<()> {
        if let [pair] = batch {
            self.cask.put_with(pair.key, &pair.value, &self.writing)?;
            return Ok(());
        }
        let mut writes = CaskBatch::new();
        for pair in batch {
            writes.put(pair.key, pair.value.as_slice())?;
        }
        self.cask.write(&writes, &self.writing)?;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.cask.delete_with(key, &self.writing)?;
        Ok(())
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.cask.get(key)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.cask.exists(key)?)
    }

    fn scan(&self, _: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut entries = self.cask.scan()?;
        while entries.advance()? {
            let value = entries.pinned_value()?;
            if !show(entries.key(), &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, _: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let mut entries = self.cask.scan()?;
        while entries.advance()? && show(entries.key()) {}
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.cask.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.cask.close()?)
    }
}
