//! One cache, and one limit of memory, for several stores.

use std::sync::Arc;

use super::BlockCache;
use crate::Result;
use crate::options::{check_cache_bytes, check_memory_limit};
use crate::stats::CacheStats;

/// Memory that several stores share, as [`Options::cache`](crate::Options::cache) of each: RocksDB's block cache of several, and with a limit its `WriteBufferManager`, too. What is
/// asked for most stays, whichever store it is of. Clones are the same cache; it goes with the last of them and of the stores.
///
/// ```
/// # fn main() -> esker_db::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("esker-cache-{}", std::process::id()));
/// use esker_db::{Cache, Db, Options};
///
/// let cache = Cache::within_limit(256 << 20)?;
/// let options = Options { create_if_missing: true, cache: Some(cache.clone()), ..Options::default() };
/// let users = Db::open(dir.join("users"), options.clone())?;
/// let orders = Db::open(dir.join("orders"), options)?;
/// # users.close()?;
/// # orders.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Cache(pub(crate) Arc<BlockCache>);

impl Cache {
    /// Of blocks and values, so many bytes of them: as `cache_bytes` of one store. Indexes, filters and memtables are held beside it.
    ///
    /// # Errors
    /// `InvalidArgument`: more than 1 TiB.
    pub fn new(cache_bytes: u64) -> Result<Self> {
        check_cache_bytes(cache_bytes)?;
        Ok(Self(Arc::new(BlockCache::new(cache_bytes))))
    }

    /// Of everything that the stores keep in memory, together: as `memory_limit` of one store. A store of several that write has at least its part of the quarter for
    /// memtables, and more while the others leave it; those that wrote much and then rest keep theirs, so that all together may have twice that quarter.
    ///
    /// # Errors
    /// `InvalidArgument`: less than 1 MiB or more than 1 TiB.
    pub fn within_limit(memory_limit: u64) -> Result<Self> {
        check_memory_limit(memory_limit)?;
        Ok(Self(Arc::new(BlockCache::within_limit(memory_limit))))
    }

    /// Keeps so many bytes from now on, of what it was made to keep (RocksDB's `SetCapacity`). What is too much goes before this returns: stores
    /// whose memtables are flush them, or have begun to, as after [`Db::set_db_options`](crate::Db::set_db_options). Made for less than a 16th, its blocks
    /// share fewer locks than one of that size would have; made for much more, large blocks find no place.
    ///
    /// # Errors
    /// `InvalidArgument`: out of the range of [`new`](Self::new) or [`within_limit`](Self::within_limit), whichever made it, or it was made to keep nothing.
    pub fn set_bytes(&self, bytes: u64) -> Result<()> {
        if self.0.limit_bytes() > 0 {
            check_memory_limit(bytes)?
        } else {
            check_cache_bytes(bytes)?
        }
        self.0.check_may_change()?;
        self.0.set_bytes(bytes);
        self.0.tell_followers();
        Ok(())
    }

    /// What it did, for all its stores, and holds now.
    pub fn stats(&self) -> CacheStats {
        self.0.stats().into()
    }
}

#[cfg(test)]
mod tests;
