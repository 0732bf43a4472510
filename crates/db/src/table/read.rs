//! Reads one block, and one key.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use esker_env::os::prefetch;
use esker_env::{ReadRequest, read_many};
use esker_format::compression::Dictionary;
use esker_format::kept::with_kept;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout, KeyOrder, put_together};
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber};
use esker_format::rocksdb::table::{BlockHandle, unpack, unpack_owned};

use super::index::{IndexWalk, Indexed};
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

/// Many lookups in a table, between [`Table::begin_many`] and [`finish`](Self::finish).
pub(crate) struct Many<'a> {
    table: &'a Table,
    /// `None` where the filter denies it.
    lookups: Vec<Result<Option<&'a [u8]>>>,
    ready: Vec<(BlockHandle, Arc<Block>)>,
    missing: Vec<BlockHandle>,
}

impl Many<'_> {
    /// Reads what all of `searches` miss, of whatever tables, in one batch. What cannot be read or unpacked is left out: whoever needs it
    /// meets the error. One block alone is read by the search.
    pub(crate) fn read_missing(searches: &mut [Many<'_>], fill_cache: bool) {
        let missing = searches.iter().enumerate().flat_map(|(at, search)| {
            let table = search.table;
            search
                .missing
                .iter()
                .filter_map(move |&handle| Some((at, handle, vec![0; table.stored_bytes(handle).ok()?])))
        });
        let mut stored: Vec<(usize, BlockHandle, Vec<u8>)> = missing.collect();
        if stored.len() < 2 {
            return;
        }
        let requests = stored.iter_mut().filter_map(|(at, handle, buffer)| {
            let table = searches.get(*at)?.table;
            table.cache.table_reads.add(1, buffer.len());
            Some(ReadRequest::new(&*table.file, handle.offset, buffer))
        });
        let mut requests: Vec<_> = requests.collect();
        read_many(&mut requests);
        let is_read: Vec<bool> = requests.iter().map(|request| request.result.is_ok()).collect();
        for ((at, handle, stored), is_read) in stored.into_iter().zip(is_read) {
            let Some(search) = searches.get_mut(at).filter(|_| is_read) else { continue };
            let block =
                search.table.unpack_owned(stored, handle).and_then(|block| search.table.together(block, handle));
            let Ok(block) = block else { continue };
            let block = Arc::new(Block::new(block));
            if fill_cache {
                search.table.cache.insert(search.table.id, handle.offset, block.clone());
            }
            search.ready.push((handle, block));
        }
    }

    /// The second half of what [`Table::get`] does for each lookup, in their order.
    pub(crate) fn finish(mut self, fill_cache: bool) -> Vec<Result<Option<TableHit>>> {
        let table = self.table;
        self.ready.sort_unstable_by_key(|(handle, _)| handle.offset);
        let ready = |handle: BlockHandle| {
            let at = self.ready.binary_search_by_key(&handle.offset, |(held, _)| held.offset).ok()?;
            self.ready.get(at).map(|(_, block)| block.clone())
        };
        let load = |handle: BlockHandle| ready(handle).map_or_else(|| table.block(handle, fill_cache), Ok);
        let resident = match table.resident() {
            Ok(resident) => resident,
            Err(error) => return self.lookups.iter().map(|_| Err(error.clone())).collect(),
        };
        let of = Indexed { table, index: &resident.index };
        with_kept(&SCRATCH, |scratch| {
            let mut search = |lookup| table.search(of, scratch, lookup, load);
            let hit = |lookup: &Result<Option<_>>| lookup.clone()?.map_or(Ok(None), &mut search);
            let hits = self.lookups.iter().map(hit).collect();
            scratch.walk.release();
            hits
        })
    }
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
        with_kept(&SCRATCH, |scratch| {
            let found = self.search(of, scratch, lookup, |handle| self.block(handle, fill_cache));
            scratch.walk.release();
            found
        })
    }

    /// The first half of what [`get`](Self::get) does for each of `lookups`, which are sorted: which blocks their searches begin in, and which
    /// of them the cache has.
    pub(crate) fn begin_many<'a>(&'a self, lookups: Vec<&'a [u8]>) -> Many<'a> {
        let mut many = Many { table: self, lookups: Vec::new(), ready: Vec::new(), missing: Vec::new() };
        let resident = match self.resident() {
            Ok(resident) => resident,
            Err(error) => {
                many.lookups = lookups.iter().map(|_| Err(error.clone())).collect();
                return many;
            }
        };
        let of = Indexed { table: self, index: &resident.index };
        let mut before = None;
        with_kept(&SCRATCH, |Scratch { walk, .. }| {
            for &lookup in &lookups {
                if !resident.filter.may_hold(internal_key::user_key(lookup)) {
                    many.lookups.push(Ok(None));
                    continue;
                }
                many.lookups.push(Ok(Some(lookup)));
                walk.reset(of);
                // What cannot be found is left out; the search meets the error.
                let handle = walk.seek(of, lookup).and_then(|()| walk.handle(of)).ok().flatten();
                let Some(handle) = handle.filter(|&handle| before != Some(handle)) else { continue };
                before = Some(handle);
                match self.cache.get(self.id, handle.offset) {
                    Some(block) => many.ready.push((handle, block)),
                    None => many.missing.push(handle),
                }
            }
            walk.release();
        });
        many
    }

    /// Whether it may hold a user key from `lower` on and before `upper`, as far as its filter of prefixes says.
    pub(crate) fn may_hold_range(&self, lower: &[u8], upper: &[u8]) -> bool {
        // A prefix of both ends is one of all between them only where keys lie by their bytes; and what cannot be read denies nothing.
        !self.order.is_bytewise()
            || self.resident().map_or(true, |resident| resident.filter.may_hold_range(lower, upper))
    }

    /// Whether the table may hold `user_key`, as far as what is in memory says; `None` where it does not.
    pub(crate) fn filter_holds(&self, user_key: &[u8]) -> Option<bool> {
        let resident = self.resident_now();
        (resident.is_there() && resident.filter.has_keys()).then(|| resident.filter.may_hold(user_key))
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
            match block.directory().filter(|_| self.order.is_bytewise()) {
                Some(directory) => {
                    prefetch(directory.memory());
                    cursor.seek_with(directory, block.bytes(), lookup).map_err(damaged)?;
                }
                None => {
                    cursor.reset(BlockLayout::parse(block.bytes()).map_err(damaged)?);
                    cursor.seek(block.bytes(), lookup, KeyOrder::Internal(self.order)).map_err(damaged)?;
                }
            }
            if cursor.valid() {
                let entry = InternalKey::decode(cursor.key())
                    .map_err(|error| self.unreadable_key(handle, cursor.key(), error))?;
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
        if let Some(block) = self.cache.get(self.id, handle.offset) {
            return Ok(block);
        }
        let block = Arc::new(Block::new(self.together(self.read_block(handle)?, handle)?));
        if fill_cache {
            self.cache.insert(self.id, handle.offset, block.clone());
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
        with_kept(&STORED, |stored| {
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
        unpack(self.checksum(), self.dictionary(), stored, handle.offset)
            .map_err(|error| self.damaged(handle.offset, DOING, error))
    }

    /// The same; a block that is not compressed stays where it is.
    fn unpack_owned(&self, stored: Vec<u8>, handle: BlockHandle) -> Result<Vec<u8>> {
        unpack_owned(self.checksum(), self.dictionary(), stored, handle.offset)
            .map_err(|error| self.damaged(handle.offset, DOING, error))
    }

    /// A block of data as it is read.
    pub(super) fn together(&self, unpacked: Vec<u8>, handle: BlockHandle) -> Result<Vec<u8>> {
        put_together(unpacked).map_err(|error| self.damaged(handle.offset, DOING, error))
    }

    fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_ref().map(|(dictionary, _)| dictionary)
    }
}
