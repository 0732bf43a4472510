//! Writes entries in batches: small ones together, a large one alone.

use esker::Error;

use super::target::{Batch, Target};

/// Entries on their way into a store. Holds at most one batch, which is as long as asked for, or as its only value.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    target: &'a Target,
    sync: bool,
    batch_bytes: u64,
    batch: Batch,
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
    pub(crate) fn new(target: &'a Target, sync: bool, batch_bytes: u64) -> Self {
        Self { target, sync, batch_bytes, batch: target.batch(), loaded: Loaded::default() }
    }

    /// Takes an entry. It is written with its batch, by this call's successors.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let bytes = (key.len() + value.len()) as u64;
        if self.batch.bytes() + bytes > self.batch_bytes {
            self.write()?;
        }
        self.batch.put(self.target, key, value)?;
        self.loaded.entries += 1;
        self.loaded.bytes += bytes;
        Ok(())
    }

    /// Writes the batch if it is full. Apart from [`put`](Self::put) so that the caller can let go of a large value first.
    pub(crate) fn write_if_full(&mut self) -> Result<(), Error> {
        if self.batch.bytes() >= self.batch_bytes { self.write() } else { Ok(()) }
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
        let batch = std::mem::replace(&mut self.batch, self.target.batch());
        self.target.write(batch, self.sync)
    }
}
