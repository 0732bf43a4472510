//! Writes a table.

use std::path::Path;
use std::sync::Arc;

use esker_env::{AppendFile, FileSystem};
use esker_format::compression::{self, Compression};
use esker_format::limits;
use esker_format::rocksdb::block::{BlockBuilder, IndexBuilder};
use esker_format::rocksdb::filter::FilterBuilder;
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::table::{
    BlockChecksum, BlockHandle, FILTER, FORMAT_VERSION_MAX, Footer, INDEX, IndexType, MetaIndex, PROPERTIES,
    RANGE_DELETIONS, TableProperties, compression_name,
};
use esker_format::xxph3::xxph3_64;

use super::{NO_OPERATOR, TableIdentity, TableOptions, TableSummary};
use crate::pieces::Pieces;
use crate::range_deletions::{Fragments, widen};
use crate::{Error, Result};

/// Oldest format version that is written: the first with the filters and indexes of today in their place.
const FORMAT_VERSION_MIN: u32 = 3;
/// A block ends rather than grow by an entry beyond its size, once it has this much of it.
const FULL_ENOUGH_PERCENT: usize = 90;
/// What a block has beside its entries, at most.
const BLOCK_OVERHEAD_BYTES: usize = 1 << 20;

/// Streams entries, in order, into a new file.
///
/// - W2: after a failed write the file is incomplete and stays so: every later call that writes fails too (P2 of [`Pieces`]). Drop the
///   writer and remove the file.
///
/// Memory: one block, a piece of the file, eight bytes a key for the filter, and the index.
pub(crate) struct TableWriter {
    pieces: Pieces,
    options: TableOptions,
    checksum: BlockChecksum,
    properties: TableProperties,
    block: BlockBuilder,
    filter: Option<FilterBuilder>,
    /// Separators with tags; used only if user keys alone do not tell two blocks apart.
    index: IndexBuilder,
    user_key_index: Option<IndexBuilder>,
    /// The last block, whose separator needs the key after it.
    ended: Option<BlockHandle>,
    packed: Vec<u8>,
    smallest: Vec<u8>,
    last_key: Vec<u8>,
    /// Of its range deletions, too.
    largest: Vec<u8>,
    /// Their block.
    range_deletions: Option<Vec<u8>>,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
}

impl TableWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// As [`FileSystem::create`]; `InvalidArgument` for a format version that is not written.
    pub(crate) fn create(
        files: &dyn FileSystem,
        path: &Path,
        number: FileNumber,
        options: &TableOptions,
        identity: &TableIdentity,
    ) -> Result<Self> {
        let version = options.format_version;
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION_MAX).contains(&version) {
            let reason = format!(
                "tables are written in format version {FORMAT_VERSION_MIN} to {FORMAT_VERSION_MAX}, not {version}"
            );
            return Err(Error::invalid_argument(reason).with_path(path));
        }
        let base_context = if version >= 6 { base_context(identity, number) } else { 0 };
        let delta_encoded = version >= 4;
        let mut properties = properties_of(identity, number, options);
        properties.index_value_is_delta_encoded = u64::from(delta_encoded);
        let filter = FilterBuilder::new(options.bits_per_key);
        if filter.is_some() {
            properties.filter_policy = "bloomfilter".to_owned();
        }
        if let Some(prefixes) = options.prefix {
            properties.prefix_extractor = prefixes.to_string();
        }
        Ok(Self {
            pieces: Pieces::new(files.create(path)?),
            checksum: BlockChecksum { kind: options.checksum, base_context },
            properties,
            block: BlockBuilder::new(options.restart_interval),
            filter,
            index: IndexBuilder::new(1, delta_encoded),
            user_key_index: Some(IndexBuilder::new(1, delta_encoded)),
            ended: None,
            packed: Vec::new(),
            smallest: Vec::new(),
            last_key: Vec::new(),
            largest: Vec::new(),
            range_deletions: None,
            sequences: None,
            options: options.clone(),
        })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Corruption` if `internal_key` does not follow the key before, or is none; `InvalidArgument` if key or value is
    /// too long for a block; otherwise as [`AppendFile::append`]. See W2.
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let parsed = self.admit(internal_key, value)?;
        let (sequence, kind) = (parsed.sequence, parsed.kind);
        if self.block_is_full(internal_key, value) {
            self.end_block()?;
        }
        self.separate(internal_key);
        if let Some(filter) = &mut self.filter {
            filter.add(parsed.user_key);
            if let Some(prefix) = self.options.prefix.and_then(|prefixes| prefixes.of(parsed.user_key)) {
                filter.add_prefix(prefix);
            }
        }
        self.block.add(internal_key, value);
        if self.properties.entry_count == 0 {
            self.smallest.extend_from_slice(internal_key);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);
        self.count(sequence, kind, internal_key.len(), value.len());
        Ok(())
    }

    fn admit<'a>(&self, internal_key: &'a [u8], value: &[u8]) -> Result<InternalKey<'a>> {
        let parsed = InternalKey::decode(internal_key).map_err(|error| {
            Error::decode(self.pieces.path(), self.pieces.end(), "writing a key that came from elsewhere", error)
        })?;
        if self.properties.entry_count > 0 && self.options.order.compare_internal(&self.last_key, internal_key).is_ge()
        {
            let reason = format!("writing a table: key {internal_key:?} does not follow {:?}", self.last_key);
            return Err(Error::corruption(self.pieces.path(), self.pieces.end(), reason));
        }
        if parsed.kind == ValueKind::RangeDeletion {
            return Err(
                Error::invalid_argument("a range deletion does not go among the keys").with_path(self.pieces.path())
            );
        }
        let entry_bytes = internal_key.len().saturating_add(value.len());
        let room = room_for(entry_bytes, self.block.estimated_bytes(), self.options.block_bytes);
        let limited = limits::TooLarge::check("key", internal_key.len(), limits::STORED_KEY_BYTES_MAX)
            .and_then(|()| limits::TooLarge::check("entry", entry_bytes, room));
        limited.map_err(|error| Error::invalid_argument(error.to_string()).with_path(self.pieces.path()))?;
        Ok(parsed)
    }

    /// Whether the open block ends before this entry.
    fn block_is_full(&self, key: &[u8], value: &[u8]) -> bool {
        let entry_bytes = key.len().saturating_add(value.len());
        !self.block.is_empty() && ends_before(entry_bytes, self.block.estimated_bytes(), self.options.block_bytes)
    }

    /// Writes the index entry of the block before, now that the key after it is known.
    fn separate(&mut self, next: &[u8]) {
        let Some(handle) = self.ended.take() else { return };
        if internal_key::user_key(&self.last_key) == internal_key::user_key(next) {
            self.user_key_index = None;
        }
        let separator = self.options.order.shortest_separator(&self.last_key, next);
        self.add_separator(&separator, handle);
    }

    fn add_separator(&mut self, separator: &[u8], handle: BlockHandle) {
        self.index.add(separator, handle);
        if let Some(index) = &mut self.user_key_index {
            index.add(internal_key::user_key(separator), handle);
        }
    }

    fn count(&mut self, sequence: SequenceNumber, kind: ValueKind, key_bytes: usize, value_bytes: usize) {
        let properties = &mut self.properties;
        properties.entry_count += 1;
        properties.raw_key_bytes += key_bytes as u64;
        properties.raw_value_bytes += value_bytes as u64;
        match kind {
            ValueKind::Deletion | ValueKind::SingleDeletion | ValueKind::DeletionWithTimestamp => {
                properties.deletion_count += 1;
            }
            ValueKind::RangeDeletion => {
                properties.deletion_count += 1;
                properties.range_deletion_count += 1;
            }
            ValueKind::Merge => properties.merge_operand_count += 1,
            _ => {}
        }
        let (low, high) = self.sequences.unwrap_or((sequence, sequence));
        self.sequences = Some((low.min(sequence), high.max(sequence)));
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut block = std::mem::replace(&mut self.block, BlockBuilder::new(1));
        let written = self.write_block(block.finish(), self.options.compression);
        block.reset();
        self.block = block;
        self.ended = Some(written?);
        self.properties.data_block_count += 1;
        Ok(())
    }

    /// Compresses a block if that is worth it, and puts it behind what was written.
    fn write_block(&mut self, raw: &[u8], compression: Compression) -> Result<BlockHandle> {
        limits::TooLarge::check("block", raw.len(), limits::BLOCK_BYTES_MAX)
            .map_err(|error| Error::invalid_argument(error.to_string()).with_path(self.pieces.path()))?;
        let mut packed = std::mem::take(&mut self.packed);
        let is_packed = compression != Compression::None
            && compression::compress(compression, raw, &mut packed).is_ok()
            && packed.len() < raw.len() - raw.len() / 8;
        let (data, stored_as) = if is_packed { (packed.as_slice(), compression) } else { (raw, Compression::None) };
        let handle = BlockHandle { offset: self.pieces.end(), bytes: data.len() as u64 };
        let trailer = self.checksum.trailer(data, stored_as, self.pieces.end());
        self.pieces.begin(data);
        self.packed = packed;
        self.pieces.add(&trailer)?;
        Ok(handle)
    }

    /// Adds range deletions, once, after the last entry. The table reaches as far as they do (RD2 of [`range_deletions`](crate::range_deletions)).
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn add_range_deletions(&mut self, fragments: &Fragments) -> Result<()> {
        let mut block = BlockBuilder::new(1);
        let mut key = Vec::new();
        self.largest.clone_from(&self.last_key);
        for range in fragments.ranges() {
            let too_long =
                limits::TooLarge::check("key", range.begin.len().max(range.end.len()), limits::STORED_KEY_BYTES_MAX);
            too_long.map_err(|error| Error::invalid_argument(error.to_string()).with_path(self.pieces.path()))?;
            key.clear();
            internal_key::append(&mut key, &range.begin, range.sequence, ValueKind::RangeDeletion);
            widen(self.options.order, &mut self.smallest, &mut self.largest, [&range]);
            block.add(&key, &range.end);
            self.count(range.sequence, ValueKind::RangeDeletion, key.len(), range.end.len());
        }
        if !fragments.is_empty() {
            self.range_deletions = Some(block.finish().to_vec());
        }
        Ok(())
    }

    /// Sets a property of Esker's own, named `esker.*`. RocksDB ignores it.
    pub(crate) fn set_user_property(&mut self, name: &str, value: Vec<u8>) {
        self.properties.other.insert(name.to_owned(), value);
    }

    /// The table is written outside of a store: its entries, one a key and all of sequence number 0, count from when a store
    /// takes it in.
    pub(crate) fn set_external(&mut self) {
        self.properties.set_external();
    }

    /// Of the last entry.
    #[inline]
    pub(crate) fn last_user_key(&self) -> Option<&[u8]> {
        (self.properties.entry_count > 0).then(|| internal_key::user_key(&self.last_key))
    }

    /// Length of the file so far, counting the open block as if it did not compress.
    pub(crate) fn file_bytes(&self) -> u64 {
        if self.block.is_empty() { self.pieces.end() } else { self.pieces.end() + self.block.estimated_bytes() as u64 }
    }

    /// Length of the index so far: with tags, the longer of two.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index.estimated_bytes()
    }

    /// Completes the file and syncs it. Its name still needs a sync of the directory.
    ///
    /// # Errors
    /// As [`AppendFile::append`] and [`AppendFile::sync`]. See W2.
    pub(crate) fn finish(self) -> Result<TableSummary> {
        let (summary, file) = self.finish_unsynced()?;
        file.sync()?;
        Ok(summary)
    }

    /// The file: for whoever syncs it while it is written.
    pub(crate) fn file(&self) -> Arc<dyn AppendFile> {
        self.pieces.file().clone()
    }

    /// As [`finish`](Self::finish), but for the sync.
    ///
    /// # Errors
    /// As [`AppendFile::append`]. See W2.
    pub(crate) fn finish_unsynced(mut self) -> Result<(TableSummary, Arc<dyn AppendFile>)> {
        self.end_block()?;
        if let Some(handle) = self.ended.take() {
            // No key follows: the last key itself is the tightest separator.
            let last_key = std::mem::take(&mut self.last_key);
            self.add_separator(&last_key, handle);
            self.last_key = last_key;
        }
        let tail_start = self.pieces.end();
        self.properties.data_bytes = tail_start;
        self.properties.tail_start_offset = tail_start;
        let mut meta = MetaIndex::default();
        self.write_filter(&mut meta)?;
        let index = self.write_index()?;
        if let Some(block) = self.range_deletions.take() {
            meta.insert(RANGE_DELETIONS, self.write_block(&block, Compression::None)?);
        }
        let properties = self.properties.encode();
        meta.insert(PROPERTIES, self.write_block(&properties, Compression::None)?);
        self.write_end(meta, index)?;
        let (smallest_sequence, largest_sequence) = self.sequences.unwrap_or_default();
        if self.properties.range_deletion_count == 0 {
            self.largest = self.last_key;
        }
        let summary = TableSummary {
            file_bytes: self.pieces.end(),
            smallest: self.smallest,
            largest: self.largest,
            smallest_sequence,
            largest_sequence,
            tail_bytes: self.pieces.end() - tail_start,
        };
        Ok((summary, self.pieces.finish()?))
    }

    fn write_filter(&mut self, meta: &mut MetaIndex) -> Result<()> {
        let Some(mut filter) = self.filter.take().filter(|filter| filter.key_count() > 0) else {
            return Ok(());
        };
        self.properties.filter_entry_count = filter.key_count() as u64;
        let bytes = filter.finish();
        self.properties.filter_bytes = bytes.len() as u64;
        meta.insert(FILTER, self.write_block(&bytes, Compression::None)?);
        Ok(())
    }

    /// Uncompressed, so that opening a table does not unpack it.
    fn write_index(&mut self) -> Result<BlockHandle> {
        let mut index = std::mem::replace(&mut self.index, IndexBuilder::new(1, false));
        let mut user_key_index = self.user_key_index.take();
        self.properties.index_key_is_user_key = u64::from(user_key_index.is_some());
        let block = user_key_index.as_mut().unwrap_or(&mut index).finish();
        let handle = self.write_block(block, Compression::None)?;
        self.properties.index_bytes = self.pieces.end() - handle.offset;
        self.properties.set_index_type(IndexType::BinarySearch);
        Ok(handle)
    }

    fn write_end(&mut self, mut meta: MetaIndex, index: BlockHandle) -> Result<()> {
        let names_index = self.options.format_version >= 6;
        if names_index {
            meta.insert(INDEX, index);
        }
        let meta_index = self.write_block(&meta.encode(), Compression::None)?;
        let footer = Footer {
            format_version: self.options.format_version,
            checksum: self.checksum,
            meta_index,
            index: (!names_index).then_some(index),
        };
        let raw = footer.encode(self.pieces.end());
        self.pieces.add(&raw)
    }
}

/// Whether a block of `open_bytes` ends before an entry, where blocks have about `block_bytes`.
fn ends_before(entry_bytes: usize, open_bytes: usize, block_bytes: usize) -> bool {
    let then = open_bytes.saturating_add(entry_bytes);
    let is_full_enough = open_bytes.saturating_mul(100) >= block_bytes.saturating_mul(FULL_ENOUGH_PERCENT);
    open_bytes >= block_bytes || (then > block_bytes && is_full_enough)
}

/// How long the entry may be, in the block that it comes to: this one or the next.
fn room_for(entry_bytes: usize, open_bytes: usize, block_bytes: usize) -> usize {
    let before = if ends_before(entry_bytes, open_bytes, block_bytes) { 0 } else { open_bytes };
    limits::BLOCK_BYTES_MAX.saturating_sub(before.saturating_add(BLOCK_OVERHEAD_BYTES))
}

fn properties_of(identity: &TableIdentity, number: FileNumber, options: &TableOptions) -> TableProperties {
    TableProperties {
        column_family_id: u64::from(identity.column_family_id),
        column_family_name: identity.column_family_name.clone(),
        comparator: options.order.name().to_owned(),
        compression: compression_name(options.compression, options.format_version),
        merge_operator: options.merge_operator.clone().unwrap_or_else(|| NO_OPERATOR.to_owned()),
        prefix_extractor: "nullptr".to_owned(),
        property_collectors: "[]".to_owned(),
        creation_time: identity.creation_time,
        file_creation_time: identity.creation_time,
        oldest_key_time: identity.oldest_key_time,
        original_file_number: number.get(),
        db_id: identity.db_id.clone(),
        session_id: identity.session_id.clone(),
        ..TableProperties::default()
    }
}

/// What the checksums of this file have in common and those of hardly any other: never 0.
fn base_context(identity: &TableIdentity, number: FileNumber) -> u32 {
    let name = format!("{}/{}/{number}", identity.db_id, identity.session_id);
    (xxph3_64(name.as_bytes()) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever lies in the open block, the longest entry that a store takes has room behind it: in the next one, if not in that.
    #[test]
    fn the_longest_entry_finds_room_behind_one_as_long() {
        const LONGEST: usize = limits::KEY_BYTES_MAX + limits::VALUE_BYTES_MAX;
        for block_bytes in [256, 4 << 10, 16 << 20] {
            for open_bytes in [0, block_bytes / 2, block_bytes - 1, block_bytes, LONGEST, block_bytes + LONGEST] {
                for entry_bytes in [1, block_bytes, LONGEST] {
                    let room = room_for(entry_bytes, open_bytes, block_bytes);
                    assert!(room >= entry_bytes, "{entry_bytes} behind {open_bytes} of about {block_bytes}");
                }
            }
        }
        assert!(room_for(limits::BLOCK_BYTES_MAX, 0, 4 << 10) < limits::BLOCK_BYTES_MAX);
    }
}
