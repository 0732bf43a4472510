//! Writes entries in batches: small ones together, a large one alone.

use esker::{ColumnFamily, Db, Error, WriteBatch, WriteOptions};

/// Entries on their way into a store. Holds at most one batch, which is as long as asked for, or as its only value.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    db: &'a Db,
    family: &'a ColumnFamily,
    options: WriteOptions,
    batch_bytes: u64,
    batch: WriteBatch,
    loaded: Loaded,
}

/// What is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) entries: u64,
    /// Of keys and values.
    pub(crate) bytes: u64,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(db: &'a Db, family: &'a ColumnFamily, options: WriteOptions, batch_bytes: u64) -> Self {
        Self { db, family, options, batch_bytes, batch: WriteBatch::new(), loaded: Loaded::default() }
    }

    /// Takes an entry. It is written with its batch, by this call's successors.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let bytes = (key.len() + value.len()) as u64;
        if self.batch.len_bytes() as u64 + bytes > self.batch_bytes {
            self.write()?;
        }
        self.batch.put_cf(self.family, key, value)?;
        self.loaded.entries += 1;
        self.loaded.bytes += bytes;
        Ok(())
    }

    /// Writes the batch if it is full. Apart from [`put`](Self::put) so that the caller can let go of a large value first.
    pub(crate) fn write_if_full(&mut self) -> Result<(), Error> {
        if self.batch.len_bytes() as u64 >= self.batch_bytes { self.write() } else { Ok(()) }
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> Result<Loaded, Error> {
        self.write()?;
        Ok(self.loaded)
    }

    fn write(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.db.write(std::mem::take(&mut self.batch), &self.options)
    }
}
