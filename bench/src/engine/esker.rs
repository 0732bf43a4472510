//! Esker.

use std::path::Path;

use esker::{ColumnFamily, Db, FamilyOptions, Options, ReadOptions, Separation, WriteBatch, WriteOptions};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

pub(super) struct Esker {
    db: Db,
    family: ColumnFamily,
    reading: ReadOptions,
    writing: WriteOptions,
}

pub(super) fn setup(settings: &Settings) -> String {
    format!(
        "{}; blobs from {}, LZ4, in the cache where there is room or they are read again",
        setup_inline(settings),
        sizes::print(settings.min_blob_bytes as f64)
    )
}

pub(super) fn setup_mapped(settings: &Settings) -> String {
    format!("{}; tables and blob files mapped", setup(settings))
}

pub(super) fn setup_inline(settings: &Settings) -> String {
    format!(
        "block cache {}, {} memtables of {}, {} background jobs, LZ4, 10-bit filters, indexes and filters beside the cache",
        sizes::print(settings.cache_bytes() as f64),
        Settings::WRITE_BUFFERS,
        sizes::print(settings.write_buffer_bytes() as f64),
        settings.background_jobs,
    )
}

pub(super) fn open(dir: &Path, settings: &Settings, separation: Separation) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open_plain(dir, settings, separation)?))
}

pub(super) fn open_mapped(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let options = Options { mmap_reads: true, ..options(settings, Separation::AtFlush) };
    Ok(Box::new(open_with(dir, settings, options)?))
}

pub(super) fn open_plain(dir: &Path, settings: &Settings, separation: Separation) -> Result<Esker> {
    open_with(dir, settings, options(settings, separation))
}

fn options(settings: &Settings, separation: Separation) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: settings.write_buffer_bytes(),
        write_buffer_count_max: Settings::WRITE_BUFFERS as usize,
        separation,
        min_blob_size: settings.min_blob_bytes,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        families: [("default".to_owned(), family)].into(),
        background_jobs: settings.background_jobs as usize,
        cache_bytes: settings.cache_bytes(),
        ..Options::default()
    }
}

fn open_with(dir: &Path, settings: &Settings, options: Options) -> Result<Esker> {
    let db = Db::open(dir, options)?;
    let family = db.default_column_family();
    let writing = WriteOptions { sync: settings.sync, ..WriteOptions::default() };
    Ok(Esker { db, family, reading: ReadOptions::default(), writing })
}

impl Engine for Esker {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        let mut writes = WriteBatch::new();
        for pair in batch {
            writes.put(pair.key, &pair.value)?;
        }
        Ok(self.db.write(writes, &self.writing)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_cf(&self.family, key, &self.writing)?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(self.db.get_cf(&self.family, key, &self.reading)?.as_deref());
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.db.exists_cf(&self.family, key, &self.reading)?)
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut entries = self.db.iter_cf(&self.family, &self.reading)?;
        entries.seek(from)?;
        while entries.valid() && show(entries.key(), &entries.value()?) {
            entries.next()?;
        }
        Ok(())
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let mut entries = self.db.iter_cf(&self.family, &self.reading)?;
        entries.seek(from)?;
        while entries.valid() && show(entries.key()) {
            entries.next()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_for_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { db, .. } = *self;
        Ok(db.close()?)
    }
}
