//! Index and filter of an open table: in memory as long as the table is open, or, where the memory of a store is limited,
//! until others are needed more; then they are read again by whoever needs them next.
//!
//! - N1: whoever walks an index holds it, so an eviction takes it away from nobody. Read again, it is the same: a table
//!   never changes, and its checksum is checked again.
//! - N2: a table has them in memory once: what was evicted and is held by somebody is taken back from there. Out of the budget they are as
//!   long as the table keeps them; an iterator that holds them beyond that counts as the user's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arc_swap::Guard;
use esker_format::rocksdb::block::BlockLayout;
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::{BlockHandle, IndexType};

use super::fences::Fences;
use super::filter::Filter;
use super::{Index, Table};
use crate::Result;
use crate::cache::{Block, BlockCache, Evict, Reserved};

/// See the module's head.
pub(super) struct Resident {
    pub(super) index: Index,
    pub(super) filter: Filter,
    /// Of both; 0 for what stands in their place when they are not there.
    bytes: usize,
}

impl Resident {
    /// What was read.
    pub(super) fn new(index: Index, filter: Filter) -> Self {
        let bytes =
            index.block.bytes().len() + index.fences.memory_bytes() + filter.memory_bytes() + size_of::<Table>();
        Self { index, filter, bytes }
    }

    /// What stands in the place of what is not there.
    fn absent() -> Self {
        Self { index: Index::default(), filter: Filter::default(), bytes: 0 }
    }

    pub(super) fn is_there(&self) -> bool {
        self.bytes > 0
    }
}

/// See N2. Locked by whoever evicts them, or reads them again.
#[derive(Default)]
pub(super) struct Keeping {
    /// What they take of the cache's budget; `None` when they are not there.
    reserved: Option<Reserved>,
    /// What was evicted last.
    evicted: Weak<Resident>,
}

impl Keeping {
    /// Takes the memory of `resident` out of the budget of `cache`.
    pub(super) fn of(resident: &Resident, cache: &Arc<BlockCache>) -> Self {
        Self { reserved: Some(cache.reserve(resident.bytes)), evicted: Weak::new() }
    }
}

/// Where index and filter lie in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResidentAt {
    pub(super) index: BlockHandle,
    /// `None` if there is none that can be used.
    pub(super) filter: Option<BlockHandle>,
}

/// The index `block` of a table, which lies at `offset`, ready to be searched.
pub(super) fn index_of(
    block: Vec<u8>,
    properties: &esker_format::rocksdb::table::TableProperties,
    (index_type, order): (IndexType, Order),
    offset: u64,
) -> std::result::Result<Index, esker_format::DecodeError> {
    let layout = BlockLayout::parse(&block)?;
    let format = properties.index_format(order);
    let fences = Fences::of(&block, layout, format)?;
    let has_partitions = index_type == IndexType::TwoLevel;
    Ok(Index { block: Block::new(block), layout, format, fences, has_partitions, offset })
}

impl Table {
    /// Index and filter; reads them if they were evicted.
    ///
    /// # Errors
    /// As opening the table.
    #[inline]
    pub(super) fn resident(&self) -> Result<Guard<Arc<Resident>>> {
        let resident = self.resident.load();
        if !resident.is_there() {
            return self.read_resident().map(Guard::from_inner);
        }
        self.touch();
        Ok(resident)
    }

    /// Index or filter is used: others go before them.
    #[inline]
    pub(super) fn touch(&self) {
        // Mostly set already: then the line stays shared.
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn read_resident(&self) -> Result<Arc<Resident>> {
        // One reads for all who come meanwhile.
        let mut keeping = self.keeping.lock();
        let resident = self.resident.load_full();
        if resident.is_there() {
            return Ok(resident);
        }
        let resident = match keeping.evicted.upgrade() {
            Some(held) => held,
            None => Arc::new(self.read_index_and_filter()?),
        };
        keeping.reserved = Some(self.cache.reserve(resident.bytes));
        self.touched.store(true, Ordering::Relaxed);
        self.resident.store(resident.clone());
        // Somebody else may have to go for it. Not this one, which is locked: alone, it may be larger than the share of all.
        self.cache.make_room();
        Ok(resident)
    }

    fn read_index_and_filter(&self) -> Result<Resident> {
        let at = self.resident_at;
        let damaged = |error| self.damaged(at.index.offset, "reading the index", error);
        let index_type = self.properties.index_type().map_err(damaged)?;
        let block = self.read_block(at.index)?;
        let index = index_of(block, &self.properties, (index_type, self.order), at.index.offset).map_err(damaged)?;
        let filter = match at.filter {
            Some(handle) => Filter::new(self.read_block(handle)?, &self.properties),
            None => Filter::default(),
        };
        Ok(Resident::new(index, filter))
    }

    /// Index and filter as they are now, there or not.
    pub(super) fn resident_now(&self) -> Arc<Resident> {
        self.resident.load_full()
    }

    /// What of it is in memory as long as it is open, or until it is evicted.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.resident.load().bytes
    }
}

impl Evict for Table {
    fn evict(&self) -> bool {
        if self.touched.swap(false, Ordering::Relaxed) || !self.resident.load().is_there() {
            return false;
        }
        // Locked by whoever has just read it, and may wait for the caller of this.
        let Some(mut keeping) = self.keeping.try_lock() else { return false };
        keeping.evicted = Arc::downgrade(&self.resident.swap(Arc::new(Resident::absent())));
        keeping.reserved = None;
        true
    }
}
