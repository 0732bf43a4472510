//! Reads one block, and one key.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use esker_env::os::prefetch;
use esker_env::{ReadRequest, read_many};
use esker_format::compression::Compression;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout, KeyOrder};
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber};
use esker_format::rocksdb::table::BlockHandle;

use super::index::{IndexWalk, Indexed};
use super::open::unpack;
use super::{Table, TableHit};
use crate::Result;
use crate::cache::Block;
use crate::pinned::PinnedSlice;

pub(super) const DOING: &str = "reading a block";

/// What a thread keeps between two lookups, so that they need not allocate.
#[derive(Default)]
struct Scratch {
    walk: IndexWalk,
    cursor: BlockCursor,
}

/// Packed blocks up to this size are read into a buffer that the thread keeps.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Table {
    /// The first entry at or after the internal key `lookup`, if it has the same user key.
    ///
    /// Cost: a filter probe, and nothing else for 99 of 100 absent keys at ten bits a key; then a search in the index and
    /// in one block, which is read and checked if the cache lacks it. Allocates only that block.
    ///
    /// # Errors
    /// `Corruption` and `UnsupportedFormat` with the block's offset; otherwise as reading a file.
    pub(crate) fn get(&self, lookup: &[u8], fill_cache: bool) -> Result<Option<TableHit>> {
        let resident = self.resident()?;
        if !resident.filter.may_hold(internal_key::user_key(lookup)) {
            return Ok(None);
        }
        let of = Indexed { table: self, index: &resident.index };
        SCRATCH.with_borrow_mut(|scratch| {
            let found = self.search(of, scratch, lookup, |handle| self.block(handle, fill_cache));
            scratch.walk.release();
            found
        })
    }

    /// As [`get`](Self::get) for each of `lookups`, which are sorted. Blocks that the cache lacks are read in one batch.
    pub(crate) fn get_many(&self, lookups: &[&[u8]], fill_cache: bool) -> Vec<Result<Option<TableHit>>> {
        let resident = match self.resident() {
            Ok(resident) => resident,
            Err(error) => return lookups.iter().map(|_| Err(error.clone())).collect(),
        };
        let of = Indexed { table: self, index: &resident.index };
        let may_hold = |lookup: &[u8]| resident.filter.may_hold(internal_key::user_key(lookup));
        SCRATCH.with_borrow_mut(|scratch| {
            let maybe: Vec<Option<&[u8]>> =
                lookups.iter().map(|lookup| Some(*lookup).filter(|lookup| may_hold(lookup))).collect();
            let ready = self.read_ahead_of(of, &mut scratch.walk, maybe.iter().flatten().copied(), fill_cache);
            let load = |handle: BlockHandle| match ready.binary_search_by_key(&handle.offset, |(held, _)| held.offset) {
                Ok(at) => {
                    ready.get(at).map(|(_, block)| block.clone()).map_or_else(|| self.block(handle, fill_cache), Ok)
                }
                Err(_) => self.block(handle, fill_cache),
            };
            let hits = maybe
                .into_iter()
                .map(|lookup| lookup.map_or(Ok(None), |lookup| self.search(of, scratch, lookup, load)));
            let hits = hits.collect();
            scratch.walk.release();
            hits
        })
    }

    /// Whether it may hold a user key from `lower` on and before `upper`, as far as its filter of prefixes says.
    pub(crate) fn may_hold_range(&self, lower: &[u8], upper: &[u8]) -> bool {
        // What cannot be read denies nothing.
        self.resident().map_or(true, |resident| resident.filter.may_hold_range(lower, upper))
    }

    /// Whether the table may hold `user_key`, as far as what is in memory says; `None` where it does not.
    pub(crate) fn filter_holds(&self, user_key: &[u8]) -> Option<bool> {
        let resident = self.resident_now();
        (resident.is_there() && resident.filter.has_keys()).then(|| resident.filter.may_hold(user_key))
    }

    /// The blocks that `lookups`, which are sorted, begin their searches in: those that the cache lacks are read at once. What
    /// cannot be read is left out; whoever needs it meets the error.
    fn read_ahead_of<'a>(
        &self,
        of: Indexed<'_>,
        walk: &mut IndexWalk,
        lookups: impl Iterator<Item = &'a [u8]>,
        fill_cache: bool,
    ) -> Vec<(BlockHandle, Arc<Block>)> {
        let mut missing: Vec<BlockHandle> = Vec::new();
        let mut ready = Vec::new();
        let mut before = None;
        for lookup in lookups {
            walk.reset(of);
            let handle = walk.seek(of, lookup).and_then(|()| walk.handle(of)).ok().flatten();
            let Some(handle) = handle.filter(|&handle| before != Some(handle)) else { continue };
            before = Some(handle);
            match self.cache.get(self.number.get(), handle.offset) {
                Some(block) => ready.push((handle, block)),
                None => missing.push(handle),
            }
        }
        if missing.len() > 1 {
            ready.extend(self.read_blocks(&missing, fill_cache));
        }
        ready.sort_unstable_by_key(|(handle, _)| handle.offset);
        ready
    }

    /// Reads blocks in one batch; those that cannot be read or unpacked are left out.
    fn read_blocks(&self, handles: &[BlockHandle], fill_cache: bool) -> Vec<(BlockHandle, Arc<Block>)> {
        let sized = handles.iter().filter_map(|&handle| Some((handle, vec![0; self.stored_bytes(handle).ok()?])));
        let mut stored: Vec<(BlockHandle, Vec<u8>)> = sized.collect();
        let mut requests: Vec<_> =
            stored.iter_mut().map(|(handle, buffer)| ReadRequest::new(&*self.file, handle.offset, buffer)).collect();
        read_many(&mut requests);
        self.cache.table_reads.add(requests.len() as u64, requests.iter().map(|request| request.buffer.len()).sum());
        let is_read: Vec<bool> = requests.iter().map(|request| request.result.is_ok()).collect();
        let read = stored.into_iter().zip(is_read).filter(|(_, is_read)| *is_read);
        read.filter_map(|((handle, stored), _)| {
            let block = Arc::new(Block::new(self.unpack_owned(stored, handle).ok()?));
            if fill_cache {
                self.cache.insert(self.number.get(), handle.offset, block.clone());
            }
            Some((handle, block))
        })
        .collect()
    }

    /// The first entry at or after `lookup`, if it has the same user key, in the blocks that `load` gives.
    fn search(
        &self,
        of: Indexed<'_>,
        scratch: &mut Scratch,
        lookup: &[u8],
        load: impl Fn(BlockHandle) -> Result<Arc<Block>>,
    ) -> Result<Option<TableHit>> {
        let Scratch { walk, cursor } = scratch;
        let user_key = internal_key::user_key(lookup);
        walk.reset(of);
        walk.seek(of, lookup)?;
        while let Some(handle) = walk.handle(of)? {
            let block = load(handle)?;
            let damaged = |error| self.damaged(handle.offset, DOING, error);
            match block.directory() {
                Some(directory) => {
                    prefetch(directory.memory());
                    cursor.seek_with(directory, block.bytes(), lookup).map_err(damaged)?;
                }
                None => {
                    cursor.reset(BlockLayout::parse(block.bytes()).map_err(damaged)?);
                    cursor.seek(block.bytes(), lookup, KeyOrder::Internal).map_err(damaged)?;
                }
            }
            if cursor.valid() {
                let entry = InternalKey::decode(cursor.key()).map_err(damaged)?;
                if entry.user_key != user_key {
                    return Ok(None);
                }
                if let Some(sequence) = self.taken_in {
                    return self.hit_taken_in(sequence, lookup, entry, handle, block.clone(), cursor.value_range());
                }
                let value = self.pin(handle, block, cursor.value_range())?;
                return Ok(Some(TableHit { sequence: entry.sequence, kind: entry.kind, value }));
            }
            // All of this block is before `lookup`. Only if the block ends at this very user key may it go on in the next.
            if walk.ends_beyond(of, user_key) {
                return Ok(None);
            }
            walk.next(of)?;
        }
        Ok(None)
    }

    /// The entry of a table that was taken in, unless it is newer than `lookup`: there is no older one (T4).
    #[inline(never)]
    fn hit_taken_in(
        &self,
        sequence: SequenceNumber,
        lookup: &[u8],
        entry: InternalKey<'_>,
        handle: BlockHandle,
        block: Arc<Block>,
        range: Range<usize>,
    ) -> Result<Option<TableHit>> {
        self.check_taken_in(handle, &entry)?;
        if internal_key::pack(sequence, entry.kind) > internal_key::tag(lookup) {
            return Ok(None);
        }
        let value = self.pin(handle, block, range)?;
        Ok(Some(TableHit { sequence, kind: entry.kind, value }))
    }

    /// See T4.
    pub(super) fn check_taken_in(&self, handle: BlockHandle, entry: &InternalKey<'_>) -> Result<()> {
        if entry.sequence == SequenceNumber::default() {
            return Ok(());
        }
        let reason = format!("a key of a table that was taken in has a sequence number of its own, {}", entry.sequence);
        Err(self.corrupt(handle.offset, reason))
    }

    pub(super) fn pin(&self, handle: BlockHandle, block: Arc<Block>, range: Range<usize>) -> Result<PinnedSlice> {
        PinnedSlice::from_block(block, range).ok_or_else(|| self.corrupt(handle.offset, "a value runs past its block"))
    }

    /// A block, from the cache or the file; checked and unpacked.
    #[inline]
    pub(super) fn block(&self, handle: BlockHandle, fill_cache: bool) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.get(self.number.get(), handle.offset) {
            return Ok(block);
        }
        let block = Arc::new(Block::new(self.read_block(handle)?));
        if fill_cache {
            self.cache.insert(self.number.get(), handle.offset, block.clone());
        }
        Ok(block)
    }

    /// Length of a block with its trailer.
    pub(super) fn stored_bytes(&self, handle: BlockHandle) -> Result<usize> {
        handle.stored_bytes(self.blocks_end()).map_err(|error| self.damaged(handle.offset, "reading the index", error))
    }

    /// A block from the file.
    #[cold]
    pub(super) fn read_block(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let count = self.stored_bytes(handle)?;
        if let Some(stored) = self.file.memory(handle.offset..handle.offset.saturating_add(count as u64)) {
            return self.unpack(stored, handle);
        }
        self.cache.table_reads.add(1, count);
        if count > KEPT_BYTES_MAX {
            let mut stored = vec![0; count];
            self.file.read_exact_at(handle.offset, &mut stored)?;
            return self.unpack_owned(stored, handle);
        }
        STORED.with_borrow_mut(|stored| {
            if stored.len() < count {
                stored.resize(count, 0);
            }
            let stored = stored.get_mut(..count).unwrap_or_default();
            self.file.read_exact_at(handle.offset, stored)?;
            self.unpack(stored, handle)
        })
    }

    /// Checks and unpacks a block as stored, trailer included.
    pub(super) fn unpack(&self, stored: &[u8], handle: BlockHandle) -> Result<Vec<u8>> {
        unpack(self.checksum(), stored, handle.offset).map_err(|error| self.damaged(handle.offset, DOING, error))
    }

    /// The same; a block that is not compressed stays where it is.
    fn unpack_owned(&self, mut stored: Vec<u8>, handle: BlockHandle) -> Result<Vec<u8>> {
        let damaged = |error| self.damaged(handle.offset, DOING, error);
        let (data, compression) = self.checksum().verify(&stored, handle.offset).map_err(damaged)?;
        if compression != Compression::None {
            return self.unpack(&stored, handle);
        }
        let count = data.len();
        stored.truncate(count);
        Ok(stored)
    }
}
