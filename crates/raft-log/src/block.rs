//! A batch as it is read back: checked once, and unpacked once, however many of its entries are wanted; those near its
//! front without the rest.
//!
//! - K1: blocks are kept by weight, at most [`Options::cache_bytes`](crate::Options::cache_bytes) of memory of their own.
//! - K2: a kept block holds its file, so blocks of a file are let go after the file left its queue; who puts one in looks
//!   afterwards whether it did meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
/// Less than this part of the entries is unpacked for itself; more is not worth coming back for the rest.
const FRONT_PART: f64 = 0.8;

/// One batch.
#[derive(Debug)]
pub(crate) struct Block {
    file: Arc<LogFile>,
    offset: u64,
    header: BatchHeader,
    /// The whole batch, as it lies in the file.
    bytes: Bytes,
    /// How many bytes its entries have.
    entries_bytes: usize,
    /// The entries, if they are packed and were wanted to the end.
    whole: OnceLock<Vec<u8>>,
    /// The first of them, if they are packed and no more was wanted yet.
    front: OnceLock<Vec<u8>>,
    /// Whether something was looked for here before: then it pays to sort the items.
    searched: AtomicBool,
    /// The items with entries, by group and first index, and in their order.
    sorted: OnceLock<Vec<(u64, u64, ItemPlace)>>,
}

impl Block {
    /// Reads and checks the batch at `offset` of `file`.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub(crate) fn read(file: Arc<LogFile>, offset: u64) -> Result<Self> {
        let raw = file.read(offset..offset.saturating_add(HEADER_BYTES as u64))?;
        let Some(head) = raw.as_slice().first_chunk() else {
            return Err(file.corruption(offset, "a batch ends within its header"));
        };
        let decode = |base: u64, error| Error::decode(&file.path, base, "reading a batch", error);
        let header = BatchHeader::decode(head).map_err(|error| decode(offset, error))?;
        let bytes = file.read(offset..offset.saturating_add(header.len))?;
        let mut block = Self {
            file: Arc::clone(&file),
            offset,
            header,
            bytes,
            entries_bytes: 0,
            whole: OnceLock::new(),
            front: OnceLock::new(),
            searched: AtomicBool::new(false),
            sorted: OnceLock::new(),
        };
        checked("items", block.part(header.items()), file.salt())
            .map_err(|error| decode(offset.saturating_add(header.items_offset), error))?;
        if !header.entries().is_empty() {
            let at = offset.saturating_add(HEADER_BYTES as u64);
            let stored = checked("entries", block.part(header.entries()), 0).map_err(|error| decode(at, error))?;
            block.entries_bytes = match header.packing {
                Packing::None => stored.len(),
                Packing::Lz4 => entries::raw_bytes(stored).map_err(|error| decode(at, error))?,
            };
        }
        Ok(block)
    }

    fn part(&self, range: std::ops::Range<u64>) -> &[u8] {
        self.bytes.as_slice().get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// The entries as they are stored, without their checksum.
    fn stored(&self) -> &[u8] {
        self.part(self.header.entries()).split_last_chunk::<4>().map_or(&[], |(stored, _)| stored)
    }

    fn undecodable(&self, error: esker_format::DecodeError) -> Error {
        let base = self.offset.saturating_add(HEADER_BYTES as u64);
        Error::decode(&self.file.path, base, "unpacking a batch", error)
    }

    /// The bytes of the entries, at least the first `until`.
    fn entries(&self, until: usize) -> Result<&[u8]> {
        if self.header.packing == Packing::None {
            return Ok(self.stored());
        }
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let is_front = (until as f64) < self.entries_bytes as f64 * FRONT_PART;
        let kept = if is_front { &self.front } else { &self.whole };
        if let Some(front) = kept.get().filter(|front| front.len() >= until) {
            return Ok(front);
        }
        let mut unpacked = Vec::new();
        if is_front && kept.get().is_none() {
            entries::unpack_front(self.stored(), until, &mut unpacked).map_err(|error| self.undecodable(error))?;
            let front = kept.get_or_init(|| unpacked);
            // Another thread may have unpacked less at the same time.
            return if front.len() >= until { Ok(front) } else { self.entries(self.entries_bytes) };
        }
        entries::unpack(self.stored(), &mut unpacked).map_err(|error| self.undecodable(error))?;
        Ok(self.whole.get_or_init(|| unpacked))
    }

    fn damaged(&self, error: esker_format::DecodeError) -> Error {
        let base = self.offset.saturating_add(self.header.items_offset);
        Error::decode(&self.file.path, base, "reading a batch", error)
    }

    fn raw_items(&self) -> &[u8] {
        self.part(self.header.items()).split_last_chunk::<4>().map_or(&[][..], |(items, _)| items)
    }

    /// Shows every item with entries.
    fn scan(&self, mut show: impl FnMut(u64, ItemPlace, Entries<'_>)) -> Result<()> {
        let mut items = Items::new(self.raw_items()).map_err(|error| self.damaged(error))?;
        loop {
            let place = items.place();
            let Some(item) = items.read().map_err(|error| self.damaged(error))? else { return Ok(()) };
            if let Action::Entries(entries) = item.action
                && entries.count > 0
            {
                show(item.group, place, entries);
            }
        }
    }

    /// The items with entries, sorted.
    fn sorted(&self) -> Result<&[(u64, u64, ItemPlace)]> {
        if self.sorted.get().is_none() {
            let mut sorted = Vec::new();
            self.scan(|group, place, entries| sorted.push((group, entries.first_index, place)))?;
            sorted.sort_by_key(|(group, first, _)| (*group, *first));
            let _ = self.sorted.set(sorted);
        }
        Ok(self.sorted.get().map_or(&[][..], Vec::as_slice))
    }

    /// The entries of `group` from `first` on: the last of such items, since each replaces those before it.
    pub(crate) fn find(&self, group: u64, first: u64) -> Result<Entries<'_>> {
        let mut found = None;
        if self.searched.swap(true, Ordering::Relaxed) {
            let sorted = self.sorted()?;
            let behind = sorted.partition_point(|(other, index, _)| (*other, *index) <= (group, first));
            let last = behind.checked_sub(1).and_then(|at| sorted.get(at));
            if let Some((_, _, place)) = last.filter(|(other, index, _)| (*other, *index) == (group, first))
                && let Some(item) = Items::at(self.raw_items(), *place).read().map_err(|error| self.damaged(error))?
                && let Action::Entries(entries) = item.action
            {
                found = Some(entries);
            }
        } else {
            let mut items = Items::new(self.raw_items()).map_err(|error| self.damaged(error))?;
            found = items.find_entries(group, first).map_err(|error| self.damaged(error))?;
        }
        found.ok_or_else(|| self.file.corruption(self.offset, format!("no entries of group {group} from {first} on")))
    }

    /// The bytes of an entry. Who wants more of the same item asks for the last first: then nothing is unpacked twice.
    pub(crate) fn entry(&self, range: std::ops::Range<u32>) -> Result<&[u8]> {
        let (start, end) = (range.start as usize, range.end as usize);
        let held = if end <= self.entries_bytes { self.entries(end)? } else { &[] };
        held.get(start..end)
            .ok_or_else(|| self.file.corruption(self.offset, format!("the entries end before byte {end}")))
    }

    /// Memory of its own that it may take.
    fn memory_bytes(&self) -> usize {
        let copied = if let Bytes::Owned(bytes) = &self.bytes { bytes.len() } else { 0 };
        // The front may stay beside the whole.
        let parts = 1.0 + FRONT_PART;
        let unpacked = if self.header.packing == Packing::None { 0.0 } else { self.entries_bytes as f64 * parts };
        // Sorted items take as much as the items themselves, about.
        BLOCK_BYTES_MIN + unpacked as usize + copied + self.raw_items().len()
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
        // First what is near the front, then all of it.
        for last in [3, 15, 18, 19u32] {
            let entry = block.entry(last * 500..last * 500 + 500).unwrap();
            assert_eq!(entry, [last as u8; 500]);
        }
        let taken = block.front.get().map_or(0, Vec::capacity) + block.whole.get().map_or(0, Vec::capacity);
        assert!(taken > 10_000 && taken <= block.memory_bytes(), "{taken} of {}", block.memory_bytes());
    }
}
