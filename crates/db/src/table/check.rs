//! Reads every byte of a table and compares what must agree.

use esker_format::DecodeErrorKind;
use esker_format::checksum::ChecksumKind;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout};
use esker_format::rocksdb::internal_key::{self, InternalKey, ValueKind};
use esker_format::rocksdb::table::{BlockHandle, FOOTER_BYTES, Footer, PROPERTIES};

use super::index::{IndexWalk, Indexed};
use super::open::unpack_properties;
use super::read::DOING;
use super::resident::Resident;
use super::{Table, TableCheck};
use crate::entry;
use crate::range_deletions::RangeDeletion;
use crate::{Error, ErrorKind, Result};

/// Read at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// Damaged blocks of one table that are told one by one.
pub(crate) const DAMAGES_MAX: usize = 100;

/// Takes an internal key and its value.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

struct Check<'a> {
    table: &'a Table,
    visit: &'a mut Visit<'a>,
    /// Where what is wrong with a block goes; `None`: it ends the check.
    damage: Option<&'a mut Vec<Error>>,
    damaged_blocks: usize,
    done: TableCheck,
    /// A part of the file, so that small blocks do not need a call each.
    chunk: Vec<u8>,
    chunk_offset: u64,
    last_key: Vec<u8>,
    /// Of a table that was taken in: the last key, as others see it.
    seen_key: Vec<u8>,
    deletion_count: u64,
    /// Entries of kinds that a later RocksDB has.
    unknown_count: u64,
    data_blocks: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
}

impl Table {
    /// Reads every block from the file, past the cache, and shows every entry to `visit`. Compares: checksums, the order of
    /// keys, separators of the index, the filter, and what the properties count.
    ///
    /// Cost: the file, read once in order; 1 MiB.
    ///
    /// # Errors
    /// The first damage as `Corruption`, with its offset; whatever `visit` returns.
    pub(crate) fn check<'a>(&'a self, visit: &'a mut Visit<'a>) -> Result<TableCheck> {
        self.check_with(visit, None)
    }

    /// The same, going on behind each damaged block of data: what is wrong with them comes into `damage`, of the first [`DAMAGES_MAX`] one by one. Then what was
    /// found is all but what they have.
    ///
    /// # Errors
    /// As [`check`](Self::check), of what ends the walk.
    pub(crate) fn check_on<'a>(&'a self, visit: &'a mut Visit<'a>, damage: &'a mut Vec<Error>) -> Result<TableCheck> {
        self.check_with(visit, Some(damage))
    }

    fn check_with<'a>(&'a self, visit: &'a mut Visit<'a>, damage: Option<&'a mut Vec<Error>>) -> Result<TableCheck> {
        let mut check = Check {
            table: self,
            visit,
            damage,
            damaged_blocks: 0,
            done: TableCheck::default(),
            chunk: Vec::new(),
            chunk_offset: 0,
            last_key: Vec::new(),
            seen_key: Vec::new(),
            deletion_count: 0,
            unknown_count: 0,
            data_blocks: 0,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
        };
        let has_checksums = check.table.checksum().kind != ChecksumKind::None;
        check.meta_blocks().and_then(|()| check.data_blocks()).and_then(|()| check.counts()).map_err(|error| {
            // The table was opened, so it is of a kind that is known. Where nothing tells rot from what is newer, it is rot.
            let is_rot = !has_checksums && error.kind() == ErrorKind::UnsupportedFormat;
            if is_rot { error.with_kind(ErrorKind::Corruption) } else { error }
        })?;
        Ok(check.done)
    }
}

impl Check<'_> {
    /// A block from the file, checked and unpacked.
    fn read(&mut self, handle: BlockHandle) -> Result<Vec<u8>> {
        let table = self.table;
        table.unpack(self.stored(handle)?, handle)
    }

    /// A block as it is stored, trailer included.
    fn stored(&mut self, handle: BlockHandle) -> Result<&[u8]> {
        let table = self.table;
        let count = table.stored_bytes(handle)?;
        let end = self.chunk_offset + self.chunk.len() as u64;
        if handle.offset < self.chunk_offset || handle.offset + count as u64 > end {
            let wanted = (count as u64).max(CHUNK_BYTES.min(table.file_bytes - handle.offset));
            self.chunk.clear();
            self.chunk.resize(usize::try_from(wanted).unwrap_or(count), 0);
            self.chunk_offset = handle.offset;
            table.file.read_exact_at(handle.offset, &mut self.chunk)?;
        }
        let start = usize::try_from(handle.offset - self.chunk_offset).unwrap_or(usize::MAX);
        self.done.blocks += 1;
        self.done.bytes += count as u64;
        Ok(self.chunk.get(start..start.saturating_add(count)).unwrap_or_default())
    }

    /// What was read when the table was opened may have rotted since.
    fn meta_blocks(&mut self) -> Result<()> {
        let table = self.table;
        let mut raw = [0; FOOTER_BYTES];
        table.file.read_exact_at(table.blocks_end(), &mut raw)?;
        let footer = Footer::decode(&raw, table.file_bytes)
            .map_err(|error| crate::Error::decode(&table.path, 0, "reading the footer of a table", error))
            // One that could be read when the table was opened.
            .map_err(|error| error.with_kind(ErrorKind::Corruption))?;
        if footer != table.footer {
            return Err(table.corrupt(table.blocks_end(), "the footer is not what it was when the table was opened"));
        }
        // Bytes of it that mean nothing are zeroes in every writer's tables, and no checksum covers them before version 6.
        if footer.encode(table.blocks_end()) != raw {
            return Err(table.corrupt(table.blocks_end(), "the footer has bytes that no writer puts there"));
        }
        self.done.bytes += FOOTER_BYTES as u64;
        self.read(footer.meta_index)?;
        if let Some(index) = footer.index {
            self.read(index)?;
        }
        let others: Vec<_> =
            table.meta.entries().map(|(name, handle)| (name == PROPERTIES.as_bytes(), handle)).collect();
        for (is_properties, handle) in others {
            if is_properties && table.properties.external_sequence() > 0 {
                let stored = self.stored(handle)?;
                unpack_properties(table.checksum(), stored, handle.offset)
                    .map_err(|error| table.damaged(handle.offset, "reading the properties", error))?;
            } else {
                self.read(handle)?;
            }
        }
        Ok(())
    }

    fn data_blocks(&mut self) -> Result<()> {
        let table = self.table;
        let resident = table.resident()?;
        let of = Indexed { table, index: &resident.index };
        let mut walk = IndexWalk::default();
        walk.reset(of);
        walk.seek_to_first(of)?;
        let mut partition = None;
        while let Some(handle) = walk.handle(of)? {
            if let Some(at) = walk.partition().filter(|at| partition != Some(*at)) {
                self.read(at)?;
                partition = Some(at);
            }
            match self.data_block(handle, &resident).and_then(|()| self.separator(&walk, handle, of)) {
                Err(error) if self.damage.is_some() && error.kind() == ErrorKind::Corruption => self.note(error),
                checked => checked?,
            }
            walk.next(of)?;
        }
        Ok(())
    }

    /// One of those behind which it goes on.
    fn note(&mut self, error: Error) {
        let Some(damage) = &mut self.damage else { return };
        self.damaged_blocks += 1;
        match self.damaged_blocks.checked_sub(DAMAGES_MAX) {
            None | Some(0) => damage.push(error),
            Some(more) => {
                let reason = format!("{more} more of its blocks are damaged");
                let last = Error::corruption(self.table.path(), 0, reason);
                if more > 1 {
                    damage.pop()
                } else {
                    None
                };
                damage.push(last);
            }
        }
    }

    fn data_block(&mut self, handle: BlockHandle, resident: &Resident) -> Result<()> {
        let table = self.table;
        let block = table.together(self.read(handle)?, handle)?;
        let damaged = |error| table.damaged(handle.offset, DOING, error);
        let mut cursor = BlockCursor::new(BlockLayout::parse(&block).map_err(damaged)?);
        cursor.seek_to_first(&block).map_err(damaged)?;
        while cursor.valid() {
            self.entry(handle, resident, cursor.key(), cursor.value(&block))?;
            cursor.next(&block).map_err(damaged)?;
        }
        self.data_blocks += 1;
        Ok(())
    }

    fn entry(&mut self, handle: BlockHandle, resident: &Resident, key: &[u8], value: &[u8]) -> Result<()> {
        let table = self.table;
        let place = Some((table.path.as_path(), Some(handle.offset)));
        let parsed = match InternalKey::decode(key) {
            Ok(parsed) => Some(parsed),
            // Whole, for all that can be said of it. One that was taken in cannot be shown as it will be read.
            Err(error)
                if error.kind == DecodeErrorKind::Unsupported
                    && table.taken_in.is_none()
                    && table.checksum().kind != ChecksumKind::None =>
            {
                None
            }
            Err(error) => return Err(table.unreadable_key(handle, key, error)),
        };
        let (user_key, order) = (internal_key::user_key(key), table.order);
        if self.done.entries > 0 && table.is_order_known && order.compare_internal(&self.last_key, key).is_ge() {
            return Err(table.corrupt(handle.offset, format!("key {key:?} does not follow {:?}", self.last_key)));
        }
        let filter = &resident.filter;
        if !filter.may_hold(user_key) || !filter.may_hold_prefix_of(user_key) {
            return Err(table.corrupt(handle.offset, format!("the filter denies key {user_key:?}")));
        }
        let deletion = [ValueKind::Deletion, ValueKind::SingleDeletion, ValueKind::DeletionWithTimestamp];
        self.deletion_count += u64::from(parsed.is_some_and(|parsed| deletion.contains(&parsed.kind)));
        self.unknown_count += u64::from(parsed.is_none());
        self.raw_key_bytes += key.len() as u64;
        self.raw_value_bytes += value.len() as u64;
        self.done.entries += 1;
        let repeats = self.done.entries > 1 && internal_key::user_key(&self.last_key) == user_key;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let (Some(sequence), Some(parsed)) = (table.taken_in, parsed) else {
            return (self.visit)(key, value).map_err(|error| entry::located(error, place));
        };
        table.check_taken_in(handle, &parsed)?;
        if repeats {
            let reason = format!("a table that was taken in has two entries of key {user_key:?}");
            return Err(table.corrupt(handle.offset, reason));
        }
        self.seen_key.clear();
        internal_key::append(&mut self.seen_key, parsed.user_key, sequence, parsed.kind);
        (self.visit)(&self.seen_key, value).map_err(|error| entry::located(error, place))
    }

    /// The separator of the block just read must not be before its last key, nor before the keys to come: order sees to that.
    fn separator(&mut self, walk: &IndexWalk, handle: BlockHandle, of: Indexed<'_>) -> Result<()> {
        let (table, order) = (self.table, self.table.order);
        let separator = walk.separator();
        let is_before = if !table.is_order_known {
            false
        } else if of.index.format.user_keys {
            order.is_before(separator, internal_key::user_key(&self.last_key))
        } else {
            order.compare_internal(separator, &self.last_key).is_lt()
        };
        if is_before {
            let reason =
                format!("the index says that this block ends at {separator:?}, but it has {:?}", self.last_key);
            return Err(table.corrupt(handle.offset, reason));
        }
        Ok(())
    }

    fn counts(&self) -> Result<()> {
        if self.damaged_blocks > 0 {
            return Ok(());
        }
        let (properties, ranges) = (&self.table.properties, self.table.range_deletions());
        // Range deletions count as entries, and as deletions.
        let range_count = ranges.len() as u64;
        let sums = |(keys, values): (u64, u64), (key, value): (u64, u64)| (keys + key, values + value);
        let (range_key_bytes, range_value_bytes) = ranges.iter().map(RangeDeletion::raw_bytes).fold((0, 0), sums);
        // Those of kinds that are not known may be deletions, or none.
        let deletions_min = self.deletion_count + range_count;
        let deletion_count = properties.deletion_count.clamp(deletions_min, deletions_min + self.unknown_count);
        // RocksDB 11 counts none that it keeps back until there is a dictionary.
        let makes_dictionary = properties
            .compression_options
            .split("; ")
            .any(|option| option.strip_prefix("max_dict_bytes=").is_some_and(|bytes| bytes != "0"));
        let block_count = properties.data_block_count;
        let block_count = if makes_dictionary { block_count.max(self.data_blocks) } else { block_count };
        let pairs = [
            ("entries", properties.entry_count, self.done.entries + range_count),
            ("deletions", properties.deletion_count, deletion_count),
            ("data blocks", block_count, self.data_blocks),
            ("bytes of keys", properties.raw_key_bytes, self.raw_key_bytes + range_key_bytes),
            ("bytes of values", properties.raw_value_bytes, self.raw_value_bytes + range_value_bytes),
        ];
        match pairs.into_iter().find(|(_, said, found)| said != found) {
            Some((what, said, found)) => {
                let reason = format!("the properties say {said} {what}, the blocks have {found}");
                Err(self.table.corrupt(self.table.data_end(), reason))
            }
            None => Ok(()),
        }
    }
}
