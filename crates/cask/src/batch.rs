//! A batch: writes that take effect together or not at all.

use std::fmt;
use std::time::Duration;

use esker_format::cask::record;
use esker_format::limits::TooLarge;

use crate::options::validate_ttl;
use crate::{Error, Result};

/// Longest batch, keys and values together: all of it goes into one file, where offsets have 32 bits.
const BATCH_BYTES_MAX: u64 = 2 << 30;

/// Writes that take effect together. Of several on one key the last counts, whatever was before it.
#[derive(Clone, Default)]
pub struct CaskBatch {
    pub(crate) operations: Vec<Operation>,
    bytes: u64,
}

/// Not the operations: how many, and how long they are.
impl fmt::Debug for CaskBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaskBatch").field("len", &self.len()).field("bytes", &self.bytes).finish()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) key: Vec<u8>,
    /// `None` deletes.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) ttl: Option<Duration>,
}

/// A key that is too long, or a value.
pub(crate) fn too_large(error: &TooLarge) -> Error {
    let TooLarge { field, bytes, limit_bytes, .. } = error;
    Error::invalid_argument(format!("a {field} of {bytes} bytes, at most {limit_bytes} are allowed"))
}

impl CaskBatch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidArgument`: key or value, or the whole batch, would be too long; the batch is as before.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.push(key.as_ref(), Some(value.into()), None)
    }

    /// Sets `key` to `value` for so long. See [`CaskWriteOptions::ttl`](crate::CaskWriteOptions::ttl).
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the time is out of its range.
    pub fn put_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>, ttl: Duration) -> Result<()> {
        validate_ttl("the time to live", ttl)?;
        self.push(key.as_ref(), Some(value.into()), Some(ttl))
    }

    /// Removes `key`; no error if it is not there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(key.as_ref(), None, None)
    }

    fn push(&mut self, key: &[u8], value: Option<Vec<u8>>, ttl: Option<Duration>) -> Result<()> {
        TooLarge::check("key", key.len(), record::KEY_BYTES_MAX).map_err(|error| too_large(&error))?;
        let value_bytes = value.as_ref().map_or(0, Vec::len);
        let bytes = self.bytes + record::record_bytes(key.len(), value_bytes, true);
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::invalid_argument(format!(
                "the batch would have {bytes} bytes, at most {BATCH_BYTES_MAX} are allowed; write what it has, or put the value alone"
            )));
        }
        self.bytes = bytes;
        self.operations.push(Operation { key: key.to_owned(), value, ttl });
        Ok(())
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Forgets all operations.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.bytes = 0;
    }
}
