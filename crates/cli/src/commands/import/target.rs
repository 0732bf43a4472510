//! What is imported into: a column family of a Db, or a Cask.

use std::time::{Duration, Instant};

use esker::{Cask, CaskBatch, CaskWriteOptions, ColumnFamily, Db, Error, ReadOptions, WriteBatch, WriteOptions};

use crate::stores::bytes_at_rest;

/// An open store.
#[derive(Debug)]
pub(crate) enum Target {
    Db { db: Db, family: ColumnFamily },
    Cask(Cask),
}

/// Entries that are written together.
#[derive(Debug)]
pub(crate) enum Batch {
    Db(WriteBatch),
    /// With the bytes of its keys and values.
    Cask(CaskBatch, u64),
}

/// What an import leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) bytes_on_disk: u64,
    /// Bytes written per byte imported, where the store counts them.
    pub(crate) write_amplification: Option<f64>,
}

impl Target {
    pub(crate) fn batch(&self) -> Batch {
        match self {
            Self::Db { .. } => Batch::Db(WriteBatch::new()),
            Self::Cask(_) => Batch::Cask(CaskBatch::new(), 0),
        }
    }

    pub(crate) fn write(&self, batch: Batch, sync: bool) -> Result<(), Error> {
        match (self, batch) {
            (Self::Db { db, .. }, Batch::Db(batch)) => {
                db.write(batch, &WriteOptions { sync, ..WriteOptions::default() })
            }
            (Self::Cask(cask), Batch::Cask(batch, _)) => {
                cask.write(&batch, &CaskWriteOptions { sync, ttl: None, stripe: None }).map(drop)
            }
            _ => Err(Error::invalid_argument("the batch is of another kind of store")),
        }
    }

    /// The value of `key`, as `look` sees it.
    pub(crate) fn get<T>(&self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, Error> {
        match self {
            Self::Db { db, family } => {
                // One pass over many values should not push out what others keep in the cache.
                let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
                Ok(look(db.get_cf(family, key, &options)?.as_deref()))
            }
            Self::Cask(cask) => Ok(look(cask.get(key)?.as_deref())),
        }
    }

    /// Whether the time of what was written since `begun` may be over. It is counted in whole seconds, so it may end one early.
    pub(crate) fn may_have_expired(&self, begun: Instant) -> bool {
        match self {
            Self::Db { .. } => false,
            Self::Cask(cask) => {
                cask.options().default_ttl.is_some_and(|ttl| begun.elapsed() + Duration::from_secs(1) >= ttl)
            }
        }
    }

    /// Ends the load: what is written is where it stays.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match self {
            Self::Db { db, .. } => db.flush(),
            Self::Cask(cask) => cask.sync(),
        }
    }

    /// Closes the store: only then is its log no longer than what is in it.
    pub(crate) fn close(self) -> Result<Cost, Error> {
        match self {
            Self::Db { db, family } => {
                let (path, write_amplification) = (db.path().to_owned(), db.stats().write_amplification());
                let before = db.stats().on_disk.total_bytes();
                drop(family);
                db.close()?;
                // All is imported, though somebody else may write to it by now.
                let bytes_on_disk = bytes_at_rest(&path).unwrap_or(before);
                Ok(Cost { bytes_on_disk, write_amplification })
            }
            Self::Cask(cask) => {
                let bytes_on_disk = cask.stats().bytes;
                cask.close()?;
                Ok(Cost { bytes_on_disk, write_amplification: None })
            }
        }
    }
}

/// An entry with a time of its own is refused, for who would keep it for ever loses what it was told.
pub(crate) fn needs_cask() -> Error {
    Error::invalid_argument(
        "it has \"expires_at\", which only a Cask keeps; import into one (--kind cask), or leave the field out",
    )
}

impl Batch {
    pub(crate) fn put(
        &mut self,
        target: &Target,
        key: &[u8],
        value: &[u8],
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        match (self, target) {
            (Self::Db(_), Target::Db { .. }) if ttl.is_some() => Err(needs_cask()),
            (Self::Db(batch), Target::Db { family, .. }) => batch.put_cf(family, key, value),
            (Self::Cask(batch, bytes), _) => {
                match ttl {
                    Some(ttl) => batch.put_with_ttl(key, value, ttl)?,
                    None => batch.put(key, value)?,
                }
                *bytes += (key.len() + value.len()) as u64;
                Ok(())
            }
            (Self::Db(_), Target::Cask(_)) => Err(Error::invalid_argument("the batch is of another kind of store")),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Db(batch) => batch.len_bytes() as u64,
            Self::Cask(_, bytes) => *bytes,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Db(batch) => batch.is_empty(),
            Self::Cask(batch, _) => batch.is_empty(),
        }
    }
}
