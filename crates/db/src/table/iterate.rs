//! Reads a table in order.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arc_swap::Guard;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout, KeyOrder};
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber};
use esker_format::rocksdb::table::BlockHandle;

use super::Table;
use super::index::{IndexWalk, Indexed};
use super::read::DOING;
use super::resident::Resident;
use crate::Result;
use crate::cache::Block;
use crate::iterate::InternalIterator;
use crate::pinned::PinnedSlice;

/// Blocks read one after the other before reading ahead begins: a short scan should not pay for a long one.
const STREAK_MIN: u32 = 2;
/// First and largest amount read ahead.
const AHEAD_BYTES_MIN: usize = 16 << 10;
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// A position in a table. Keeps the table open.
///
/// - I1: it stands on an entry only if it holds the block of that entry, and `cursor` walks that block.
/// - I2: after an error it stands on no entry.
/// - I3: on an entry of a table that was taken in (T4), `taken_in` is its key as others see it.
///
/// Cost: one block and, in a long scan, up to `AHEAD_BYTES_MAX` of what comes next; the system is told of twice as much
/// beyond, so that the device works while blocks are unpacked.
pub(crate) struct TableIterator {
    table: Arc<Table>,
    /// Of the table; there since the last seek.
    resident: Arc<Resident>,
    fill_cache: bool,
    walk: IndexWalk,
    cursor: BlockCursor,
    block: Option<(BlockHandle, Arc<Block>)>,
    ahead: Ahead,
    taken_in: Vec<u8>,
}

/// Bytes of the file that were read before anybody asked for them.
#[derive(Default)]
struct Ahead {
    /// Blocks asked for in a row, each a neighbour of the one before.
    streak: u32,
    /// Whether each lies before the one asked for before it.
    is_backward: bool,
    /// The last block that was asked for.
    last: Range<u64>,
    /// How much to read next time.
    next_bytes: usize,
    offset: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// An iterator that stands nowhere yet. With `fill_cache`, blocks that it reads stay in the cache.
    pub(crate) fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIterator {
        TableIterator {
            table: self.clone(),
            resident: self.resident_now(),
            fill_cache,
            walk: IndexWalk::default(),
            cursor: BlockCursor::default(),
            block: None,
            ahead: Ahead::default(),
            taken_in: Vec::new(),
        }
    }
}

impl TableIterator {
    /// Goes to another table, where it stands nowhere yet.
    pub(crate) fn move_to(&mut self, table: &Arc<Table>) {
        self.table = table.clone();
        self.resident = table.resident_now();
        self.walk.release();
        self.block = None;
        self.ahead.leave();
    }

    /// Has the index there and the walk before it.
    fn begin(&mut self) -> Result<()> {
        if !self.resident.is_there() {
            self.resident = Guard::into_inner(self.table.resident()?);
        } else if self.fill_cache {
            self.table.touch();
        }
        self.walk.reset(Indexed { table: &self.table, index: &self.resident.index });
        Ok(())
    }

    /// Holds the block that the walk stands on, if any.
    fn load(&mut self) -> Result<()> {
        self.block = None;
        let Some(handle) = self.walk.handle(Indexed { table: &self.table, index: &self.resident.index })? else {
            return Ok(());
        };
        let block = self.block(handle)?;
        let layout =
            BlockLayout::parse(block.bytes()).map_err(|error| self.table.damaged(handle.offset, DOING, error))?;
        self.cursor.reset(layout);
        self.block = Some((handle, block));
        Ok(())
    }

    fn block(&mut self, handle: BlockHandle) -> Result<Arc<Block>> {
        let table = &*self.table;
        self.ahead.note(handle);
        if self.ahead.streak < STREAK_MIN && self.ahead.bytes.is_empty() {
            return table.block(handle, self.fill_cache);
        }
        if let Some(block) = table.cache.get(table.id, handle.offset) {
            return Ok(block);
        }
        let stored = self.ahead.stored(table, handle)?;
        let block = Arc::new(Block::new(table.together(table.unpack(stored, handle)?, handle)?));
        if self.fill_cache {
            table.cache.insert(table.id, handle.offset, block.clone());
        }
        Ok(block)
    }

    /// Runs `step` on the cursor; without a block nothing happens.
    #[inline]
    fn on_block(
        &mut self,
        step: impl FnOnce(&mut BlockCursor, &[u8]) -> std::result::Result<(), esker_format::DecodeError>,
    ) -> Result<()> {
        let Some((handle, block)) = &self.block else {
            return Ok(());
        };
        let Err(error) = step(&mut self.cursor, block.bytes()) else {
            return Ok(());
        };
        let offset = handle.offset;
        self.block = None;
        Err(self.table.damaged(offset, DOING, error))
    }

    /// The last step of every move: see I3.
    #[inline]
    fn arrive(&mut self) -> Result<()> {
        match self.table.taken_in {
            None => Ok(()),
            Some(sequence) => self.arrive_taken_in(sequence),
        }
    }

    #[inline(never)]
    fn arrive_taken_in(&mut self, sequence: SequenceNumber) -> Result<()> {
        self.taken_in.clear();
        let Some((handle, _)) = self.block.as_ref().filter(|_| self.cursor.valid()) else {
            return Ok(());
        };
        let handle = *handle;
        let kept = InternalKey::decode(self.cursor.key())
            .map_err(|error| self.table.unreadable_key(handle, self.cursor.key(), error))
            .and_then(|entry| self.table.check_taken_in(handle, &entry).map(|()| entry));
        match kept {
            Ok(entry) => {
                internal_key::append(&mut self.taken_in, entry.user_key, sequence, entry.kind);
                Ok(())
            }
            Err(error) => {
                self.block = None;
                Err(error)
            }
        }
    }

    /// While the block has no entry left, goes to the first of the next.
    #[inline]
    fn skip_forward(&mut self) -> Result<()> {
        while self.block.is_some() && !self.cursor.valid() {
            self.block = None;
            self.walk.next(Indexed { table: &self.table, index: &self.resident.index })?;
            self.load()?;
            self.on_block(|cursor, block| cursor.seek_to_first(block))?;
        }
        Ok(())
    }

    #[inline]
    fn skip_backward(&mut self) -> Result<()> {
        while self.block.is_some() && !self.cursor.valid() {
            self.block = None;
            self.walk.prev(Indexed { table: &self.table, index: &self.resident.index })?;
            self.load()?;
            self.on_block(|cursor, block| cursor.seek_to_last(block))?;
        }
        Ok(())
    }
}

impl InternalIterator for TableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.block.is_some() && self.cursor.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.block = None;
        self.begin()?;
        self.walk.seek_to_first(Indexed { table: &self.table, index: &self.resident.index })?;
        self.load()?;
        self.on_block(|cursor, block| cursor.seek_to_first(block))?;
        self.skip_forward()?;
        self.arrive()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.block = None;
        self.begin()?;
        self.walk.seek_to_last(Indexed { table: &self.table, index: &self.resident.index })?;
        self.load()?;
        self.on_block(|cursor, block| cursor.seek_to_last(block))?;
        self.skip_backward()?;
        self.arrive()
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let before = self.block.take();
        self.begin()?;
        self.walk.seek(Indexed { table: &self.table, index: &self.resident.index }, target)?;
        // Most seeks of a merge stay in the block that they are in.
        match (before, self.walk.handle(Indexed { table: &self.table, index: &self.resident.index })?) {
            (Some((held, block)), Some(handle)) if held == handle => self.block = Some((held, block)),
            _ => self.load()?,
        }
        let order = KeyOrder::Internal(self.table.order);
        self.on_block(|cursor, block| cursor.seek(block, target, order))?;
        self.skip_forward()?;
        self.arrive()?;
        // The order in the file is that of the keys without their time.
        while self.table.taken_in.is_some()
            && self.valid()
            && self.table.order.compare_internal(self.key(), target).is_lt()
        {
            self.next()?;
        }
        Ok(())
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.seek(target)?;
        if !self.valid() {
            return self.seek_to_last();
        }
        if self.table.order.compare_internal(self.key(), target).is_gt() {
            return self.prev();
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.on_block(|cursor, block| cursor.next(block))?;
        self.skip_forward()?;
        self.arrive()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.on_block(|cursor, block| cursor.prev(block))?;
        self.skip_backward()?;
        self.arrive()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match (&self.block, self.table.taken_in) {
            (None, _) => &[],
            (Some(_), None) => self.cursor.key(),
            (Some(_), Some(_)) => &self.taken_in,
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(_, block)| self.cursor.value(block.bytes()))
    }

    fn pinned_value(&self) -> PinnedSlice {
        let Some((_, block)) = &self.block else {
            return PinnedSlice::default();
        };
        // The cursor has checked the range against this very block.
        PinnedSlice::from_block(block.clone(), self.cursor.value_range()).unwrap_or_default()
    }

    fn place(&self) -> Option<(&Path, Option<u64>)> {
        Some((self.table.path(), self.block.as_ref().map(|(handle, _)| handle.offset)))
    }
}

impl Ahead {
    /// Forgets what it has, which is of another file; a streak goes on there.
    fn leave(&mut self) {
        let Self { streak, is_backward, next_bytes, .. } = *self;
        *self = Self { streak, is_backward, next_bytes, ..Self::default() };
    }

    /// Counts neighbours; anything else ends the streak.
    fn note(&mut self, handle: BlockHandle) {
        let here = handle.offset..handle.end().unwrap_or(u64::MAX);
        let (follows, precedes) = (here.start == self.last.end, here.end == self.last.start);
        if (follows && !self.is_backward) || (precedes && self.is_backward) {
            self.streak = self.streak.saturating_add(1);
        } else {
            let held = std::mem::take(self);
            if held.contains(handle) {
                (self.offset, self.bytes) = (held.offset, held.bytes);
            }
            self.is_backward = precedes;
            self.streak = u32::from(follows || precedes);
        }
        self.last = here;
    }

    fn contains(&self, handle: BlockHandle) -> bool {
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        handle.offset >= self.offset && handle.end().is_some_and(|wanted| wanted <= end)
    }

    /// The block as stored, trailer included; reads it and what follows if need be.
    fn stored<'a>(&'a mut self, table: &'a Table, handle: BlockHandle) -> Result<&'a [u8]> {
        let count = table.stored_bytes(handle)?;
        if let Some(stored) = table.file.memory(handle.offset..handle.offset.saturating_add(count as u64)) {
            return Ok(stored);
        }
        if !self.contains(handle) {
            self.next_bytes = (self.next_bytes * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
            let is_alone = self.streak < STREAK_MIN;
            let place = self.place(table, handle, if is_alone { count } else { self.next_bytes.max(count) });
            self.bytes.resize(usize::try_from(place.end - place.start).unwrap_or(count), 0);
            self.offset = place.start;
            table.cache.table_reads.add(1, self.bytes.len());
            let mut read = table.file.read_exact_at(place.start, &mut self.bytes);
            if read.is_err() && self.bytes.len() > count {
                // It may be a neighbour that cannot be read: that is for whoever asks for it.
                self.next_bytes = 0;
                self.bytes.truncate(count);
                self.offset = handle.offset;
                table.cache.table_reads.add(1, count);
                read = table.file.read_exact_at(handle.offset, &mut self.bytes);
            }
            if let Err(error) = read {
                self.bytes.clear();
                return Err(error.into());
            }
            if !is_alone {
                table.file.will_read(self.beyond(table, &place));
            }
        }
        let start = usize::try_from(handle.offset - self.offset).unwrap_or(usize::MAX);
        Ok(self.bytes.get(start..start.saturating_add(count)).unwrap_or_default())
    }

    /// `wanted` bytes of data blocks from the block at `handle` on, or up to its end; the block at least.
    fn place(&self, table: &Table, handle: BlockHandle, wanted: usize) -> Range<u64> {
        let (begin, end) = (handle.offset, handle.end().unwrap_or(handle.offset));
        let wanted = wanted as u64;
        if self.is_backward {
            return end.saturating_sub(wanted).min(begin)..end;
        }
        begin..begin.saturating_add(wanted).min(table.data_end()).max(end)
    }

    /// Data blocks behind `place`, or before it, that will be asked for next if this goes on.
    fn beyond(&self, table: &Table, place: &Range<u64>) -> Range<u64> {
        let bytes = 2 * (place.end - place.start).min(AHEAD_BYTES_MAX as u64);
        if self.is_backward {
            return place.start.saturating_sub(bytes)..place.start;
        }
        place.end..place.end.saturating_add(bytes).min(table.data_end()).max(place.end)
    }
}
