//! A batch as it is read back: checked once, and unpacked once, however many of its entries are wanted.
//!
//! - K1: blocks are kept by weight, at most [`Options::cache_bytes`](crate::Options::cache_bytes) of memory of their own.
//! - K2: a kept block holds its file, so blocks of a file are let go after the file left its queue; who puts one in looks
//!   afterwards whether it did meanwhile.
//!
//! Cost: what is packed is copied, entries and items, so that reading it again looks at one piece of memory and not at the file.

use std::hint;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_name::FileId;
use esker_format::raft::item::{Action, Entries, ItemPlace, Items};
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES, checked};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::group::Place;
use crate::queue::{Bytes, LogFile};
use crate::{Error, Result};

/// What a block usually weighs: sizes the cache's own tables, nothing else.
const BLOCK_BYTES_USUAL: usize = 8 << 10;
/// A shard of the cache is never smaller: what is larger than its shard cannot be kept.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// Shards at most.
const SHARDS_MAX: usize = 16;
/// What a block weighs beside its bytes: itself, and its place in the cache.
const BLOCK_BYTES_MIN: usize = 256;
/// The shortest item: group, kind, command.
const ITEM_BYTES_MIN: usize = 3;

/// One batch.
#[derive(Debug)]
pub(crate) struct Block {
    file: Arc<LogFile>,
    offset: u64,
    /// Where its items begin in the file, for messages.
    items_offset: u64,
    bytes: Bytes,
    /// Where in `bytes` the entries lie, unpacked.
    entries: Range<usize>,
    /// Where in `bytes` the items lie.
    items: Range<usize>,
    /// The items with entries, by group and first index, and in their order.
    index: Vec<Indexed>,
    /// Where those lie that have several.
    places: Vec<ItemPlace>,
}

/// An item with entries: half a cache line.
#[derive(Debug)]
struct Indexed {
    group: u64,
    first: u64,
    /// Where its entries lie together.
    entries: Range<u32>,
    /// Where each of them ends is said at this of the block's places, if there are several.
    several: Option<NonZeroU32>,
}

/// Where entries lie that were found.
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    One(Range<u32>),
    Several(Entries<'a>),
}

impl<'a> Found<'a> {
    /// Each of them, in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let (one, several) = match self {
            Self::One(range) => (Some(range), None),
            Self::Several(entries) => (None, Some(entries.ranges())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl Block {
    /// Reads, checks and unpacks the batch at `offset` of `file`.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub(crate) fn read(file: Arc<LogFile>, offset: u64) -> Result<Self> {
        let raw = file.read(offset..offset.saturating_add(HEADER_BYTES as u64))?;
        let Some(head) = raw.as_slice().first_chunk() else {
            return Err(file.corruption(offset, "a batch ends within its header"));
        };
        let decode =
            |base: u64, error| Error::decode(&file.path, offset.saturating_add(base), "reading a batch", error);
        let header = BatchHeader::decode(head).map_err(|error| decode(0, error))?;
        let bytes = file.read(offset..offset.saturating_add(header.len))?;
        let part =
            |range: Range<u64>| bytes.as_slice().get(range.start as usize..range.end as usize).unwrap_or_default();
        let items =
            checked("items", part(header.items()), file.salt()).map_err(|error| decode(header.items_offset, error))?;
        let stored = match header.entries() {
            none if none.is_empty() => &[],
            range => checked("entries", part(range), 0).map_err(|error| decode(HEADER_BYTES as u64, error))?,
        };
        let (entries, items, own) = match header.packing {
            Packing::None => {
                let items_at = header.items_offset as usize;
                (HEADER_BYTES..HEADER_BYTES + stored.len(), items_at..items_at + items.len(), None)
            }
            Packing::Lz4 => {
                let at = |error| decode(HEADER_BYTES as u64, error);
                let wanted = entries::raw_bytes(stored).map_err(at)?;
                let mut own = Vec::with_capacity(wanted.saturating_add(items.len()));
                entries::unpack(stored, &mut own).map_err(at)?;
                let entries_end = own.len();
                own.extend_from_slice(items);
                (0..entries_end, entries_end..own.len(), Some(own))
            }
        };
        let items_offset = offset.saturating_add(header.items_offset);
        let bytes = own.map_or(bytes, Bytes::Owned);
        let (index, places) = (Vec::new(), Vec::new());
        let mut block = Self { file, offset, items_offset, bytes, entries, items, index, places };
        (block.index, block.places) = block.sorted()?;
        Ok(block)
    }

    fn damaged(&self, error: esker_format::DecodeError) -> Error {
        Error::decode(&self.file.path, self.items_offset, "reading a batch's items", error)
    }

    /// The items, which were checked.
    fn raw_items(&self) -> &[u8] {
        self.bytes.as_slice().get(self.items.clone()).unwrap_or_default()
    }

    /// The items with entries, sorted, and the places of those with several.
    fn sorted(&self) -> Result<(Vec<Indexed>, Vec<ItemPlace>)> {
        let mut items = Items::new(self.raw_items()).map_err(|error| self.damaged(error))?;
        // Mostly every other item puts a key.
        let expected = usize::try_from(items.left()).unwrap_or(usize::MAX).min(self.items.len() / ITEM_BYTES_MIN);
        let (mut sorted, mut places) = (Vec::with_capacity(expected.div_ceil(2)), Vec::new());
        loop {
            let place = items.place();
            let Some(item) = items.read().map_err(|error| self.damaged(error))? else { break };
            if let Action::Entries(entries) = item.action
                && entries.count > 0
            {
                let mut several = None;
                if entries.count > 1 {
                    places.push(place);
                    several = u32::try_from(places.len()).ok().and_then(NonZeroU32::new);
                }
                let (first, entries) = (entries.first_index, entries.start..entries.end);
                sorted.push(Indexed { group: item.group, first, entries, several });
            }
        }
        // Mostly they are.
        sorted.sort_by_key(|item| (item.group, item.first));
        Ok((sorted, places))
    }

    /// Where the entries of `group` from `first` on lie: those of the last of such items, since each replaces those before it.
    pub(crate) fn find(&self, group: u64, first: u64) -> Result<Found<'_>> {
        let behind = self.index.partition_point(|item| (item.group, item.first) <= (group, first));
        let last = behind.checked_sub(1).and_then(|at| self.index.get(at));
        let none = || self.file.corruption(self.offset, format!("no entries of group {group} from {first} on"));
        let item = last.filter(|item| (item.group, item.first) == (group, first)).ok_or_else(none)?;
        let Some(number) = item.several else { return Ok(Found::One(item.entries.clone())) };
        let place = self.places.get(number.get() as usize - 1).ok_or_else(none)?;
        let item = Items::at(self.raw_items(), *place).read().map_err(|error| self.damaged(error))?;
        match item.map(|item| item.action) {
            Some(Action::Entries(entries)) => Ok(Found::Several(entries)),
            _ => Err(none()),
        }
    }

    /// Touches what [`find`](Self::find) will look at first, so that the processor fetches it beside what else it waits for.
    pub(crate) fn touch_index(&self) {
        hint::black_box(self.index.get(self.index.len() / 2).map(|item| item.group));
    }

    /// The same for the first of the entries that were found.
    pub(crate) fn touch_entry(&self, found: &Found<'_>) {
        if let Found::One(range) = found {
            let start = self.entries.start.saturating_add(range.start as usize);
            hint::black_box(self.bytes.as_slice().get(start));
        }
    }

    /// The bytes of an entry.
    pub(crate) fn entry(&self, range: Range<u32>) -> Result<&[u8]> {
        let entries = self.bytes.as_slice().get(self.entries.clone()).unwrap_or_default();
        entries
            .get(range.start as usize..range.end as usize)
            .ok_or_else(|| self.file.corruption(self.offset, format!("the entries end before byte {}", range.end)))
    }

    /// Memory of its own that it may take.
    fn memory_bytes(&self) -> usize {
        let own = if let Bytes::Owned(bytes) = &self.bytes { bytes.capacity() } else { 0 };
        BLOCK_BYTES_MIN
            + own
            + self.index.capacity() * size_of::<Indexed>()
            + self.places.capacity() * size_of::<ItemPlace>()
    }
}

/// Where a block lies.
type Key = (FileId, u64);

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Key, Arc<Block>> for Weight {
    fn weight(&self, _: &Key, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

/// Batches that were read and may be read again (K1).
#[derive(Debug)]
pub(crate) struct Blocks {
    /// `None` keeps nothing.
    cache: Option<Cache<Key, Arc<Block>, Weight>>,
}

impl Blocks {
    /// With room for `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        // The cache rounds the number of shards up to a power of two: round down first.
        let shards = 1usize << (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(bytes as u64)
            .estimated_items_capacity((bytes / BLOCK_BYTES_USUAL).max(shards * 32))
            .build();
        // Both required options are set, so it does not fail; if it did, reading would only be slower.
        let cache = options.ok().filter(|_| bytes > 0);
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { cache: cache.map(|options| Cache::with_options(options, Weight, hashes, life)) }
    }

    /// The batch at `place`, which lies in `file`; `is_there` says whether its queue still has it (K2).
    pub(crate) fn read(&self, file: Arc<LogFile>, place: Place, is_there: impl FnOnce() -> bool) -> Result<Arc<Block>> {
        let Some(cache) = &self.cache else { return Block::read(file, place.offset).map(Arc::new) };
        let key = (place.file, place.offset);
        if let Some(block) = cache.get(&key) {
            return Ok(block);
        }
        let block = Arc::new(Block::read(file, place.offset)?);
        cache.insert(key, Arc::clone(&block));
        if !is_there() {
            cache.remove(&key);
        }
        Ok(block)
    }

    /// The batch at `place`, if it is here.
    pub(crate) fn get(&self, place: Place) -> Option<Arc<Block>> {
        self.cache.as_ref()?.get(&(place.file, place.offset))
    }

    /// Lets go of the files of one queue before `file`, which have left it (K2).
    pub(crate) fn forget_before(&self, file: FileId) {
        if let Some(cache) = &self.cache {
            cache.retain(|(of, _), _| of.queue != file.queue || *of >= file);
        }
    }
}

impl crate::store::Store {
    /// The batch at `place`, which lies in `file`.
    pub(crate) fn block(&self, file: Arc<LogFile>, place: Place) -> Result<Arc<Block>> {
        self.blocks.read(file, place, || self.queue(place.file.queue).has(place.file.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogBatch, Options, RaftLog};

    /// K1, to the last byte that a block can take.
    #[test]
    fn blocks_never_take_more_than_they_weigh() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compress_from_bytes: 1, ..Options::default() };
        let log = RaftLog::open(dir.path(), options).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(1, 1, (0..20u8).map(|byte| [byte; 500])).unwrap();
        log.write(&mut batch, false).unwrap();
        let file = log.store.append.file(1).unwrap();
        let place = Place { file: file.id, offset: log.store.append.shape.header.len_bytes() as u64 };
        let block = log.store.block(file, place).unwrap();
        for entry in [19u32, 3] {
            assert_eq!(block.entry(entry * 500..entry * 500 + 500).unwrap(), [entry as u8; 500]);
        }
        assert_eq!(block.find(1, 1).unwrap().ranges().count(), 20);
        let Bytes::Owned(own) = &block.bytes else { panic!("what is packed is unpacked to memory of its own") };
        let index = block.index.capacity() * size_of::<Indexed>() + block.places.capacity() * size_of::<ItemPlace>();
        let taken = own.capacity() + index;
        assert!(taken > 10_000 && taken <= block.memory_bytes(), "{taken} of {}", block.memory_bytes());
    }

    /// Of two items with entries from one index on, the later counts; other groups and indexes are told apart.
    #[test]
    fn the_last_item_of_a_group_and_index_is_found() {
        for compress_from_bytes in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let log = RaftLog::open(dir.path(), Options { compress_from_bytes, ..Options::default() }).unwrap();
            let mut batch = LogBatch::new();
            batch.add_entries(7, 10, [[1; 3], [2; 3]]).unwrap();
            batch.put(7, b"key", b"value").unwrap();
            batch.add_entries(7, 10, [[3; 3]]).unwrap();
            batch.add_entries(8, 10, [[4; 30], [5; 30]]).unwrap();
            log.write(&mut batch, false).unwrap();
            let file = log.store.append.file(1).unwrap();
            let place = Place { file: file.id, offset: log.store.append.shape.header.len_bytes() as u64 };
            let block = log.store.block(file, place).unwrap();
            let found = |group, first| block.find(group, first).map(|found| found.ranges().collect::<Vec<_>>());
            assert_eq!(found(7, 10).unwrap(), std::slice::from_ref(&(6..9)));
            assert_eq!(found(8, 10).unwrap(), [9..39, 39..69]);
            assert!(found(7, 11).is_err() && found(9, 10).is_err());
        }
    }
}
