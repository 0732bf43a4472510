//! LMDB, through heed.

use std::ops::Bound;
use std::path::Path;

use heed::types::{Bytes, DecodeIgnore};
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::{Engine, Pair};
use crate::Result;
use crate::plan::Settings;

/// Address space for the map: the store may not outgrow it. Nothing is taken from the disk or memory for it.
const MAP_BYTES: usize = 256 << 30;

struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

pub(super) fn setup(settings: &Settings) -> String {
    let sync = if settings.sync { "" } else { ", MDB_NOSYNC" };
    format!(
        "one named database, no compression (it has none), no cache of its own: it maps the file and takes as much of \
         the page cache as it gets, whatever the budget{sync}, MDB_NORDAHEAD"
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(256).max_dbs(1);
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if !settings.sync {
        flags |= EnvFlags::NO_SYNC;
    }
    let env = open_env(&mut options, flags, dir)?;
    let mut transaction = env.write_txn()?;
    let database = env.create_database(&mut transaction, Some("default"))?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, database }))
}

#[expect(unsafe_code, reason = "LMDB maps its file: that nobody else changes it is the caller's promise")]
fn open_env(options: &mut EnvOpenOptions, flags: EnvFlags, dir: &Path) -> Result<Env> {
    // SAFETY: neither flag lets readers see unfinished writes (that would be `NO_LOCK` and `WRITE_MAP` without care).
    unsafe { options.flags(flags) };
    // SAFETY: the directory is this process' own and made for this run; it is opened once at a time.
    Ok(unsafe { options.open(dir) }?)
}

impl Engine for Lmdb {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for pair in batch {
            self.database.put(&mut transaction, &pair.key, &pair.value)?;
        }
        Ok(transaction.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.database.delete(&mut transaction, key)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let transaction = self.env.read_txn()?;
        show(self.database.get(&transaction, key)?);
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        Ok(self.database.remap_data_type::<DecodeIgnore>().get(&transaction, key)?.is_some())
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for entry in self.database.range(&transaction, &(Bound::Included(from), Bound::Unbounded))? {
            let (key, value) = entry?;
            if !show(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let transaction = self.env.read_txn()?;
        let keys = self.database.remap_data_type::<DecodeIgnore>();
        for entry in keys.range(&transaction, &(Bound::Included(from), Bound::Unbounded))? {
            if !show(entry?.0) {
                break;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
