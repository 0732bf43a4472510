//! What is left of a damaged table: whatever its index leads to and whose checksum holds, block by block.
//!
//! The footer must be there, whole but for one byte, and the index. Filter and properties need not: without properties, the table is read as Esker and
//! RocksDB write tables by default, and where the index leads to tells whether it has partitions.

use esker_env::ReadFile;
use esker_format::checksum::ChecksumKind;
use esker_format::compression::Dictionary;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout, IndexCursor, IndexFormat, put_together};
use esker_format::rocksdb::internal_key::{InternalKey, SequenceNumber};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::{
    BlockHandle, COMPRESSION_DICTIONARY, FOOTER_BYTES, Footer, INDEX, IndexType, MetaIndex, PROPERTIES,
    RANGE_DELETIONS, TableProperties, unpack,
};
use esker_format::{DecodeError, DecodeErrorKind};

use super::check::Visit;
use super::footer;
use super::open::unpack_properties;
use crate::entry;
use crate::range_deletions::RangeDeletion;
use crate::{Error, ErrorKind, Result};

const DOING: &str = "salvaging a table";

/// What [`Remains::read`] found.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// What the table says of itself, if that is whole.
    pub(crate) properties: Option<TableProperties>,
    /// Its range deletions; their block counts as one that is lost if it is damaged.
    pub(crate) range_deletions: Box<[RangeDeletion]>,
    /// Blocks of data, and of the index, that are lost.
    pub(crate) lost_blocks: u64,
}

/// A damaged table whose index can be found.
#[derive(Debug)]
pub(crate) struct Remains<'a> {
    order: Order,
    file: &'a dyn ReadFile,
    footer: Footer,
    dictionary: Option<Dictionary>,
    blocks_end: u64,
    index: BlockHandle,
    found: Salvaged,
    last_key: Vec<u8>,
}

impl<'a> Remains<'a> {
    /// Reads what leads to the entries.
    ///
    /// # Errors
    /// Corruption if nothing does; what reading the file said.
    pub(crate) fn open(file: &'a dyn ReadFile) -> Result<Self> {
        let (path, file_bytes) = (file.path(), file.len()?);
        let mut raw = [0; FOOTER_BYTES];
        let Some(blocks_end) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corruption(path, 0, format!("{DOING}: {file_bytes} bytes are no table")));
        };
        file.read_exact_at(blocks_end, &mut raw)?;
        let footer = footer::salvage(file, &raw, file_bytes).map_err(|error| Error::decode(path, 0, DOING, error))?;
        let index = BlockHandle::default();
        let (found, last_key) = (Salvaged::default(), Vec::new());
        let mut remains =
            Self { order: Order::BYTEWISE, file, footer, dictionary: None, blocks_end, index, found, last_key };
        let meta = remains.block(remains.footer.meta_index).and_then(|block| {
            MetaIndex::decode(&block).map_err(|error| remains.decode(remains.footer.meta_index, error))
        });
        let meta = only_damage(meta)?;
        remains.found.properties = match meta.as_ref().and_then(|meta| meta.get(PROPERTIES)) {
            Some(handle) => only_damage(remains.properties_at(handle))?,
            None => None,
        };
        if let Some(handle) = meta.as_ref().and_then(|meta| meta.get(RANGE_DELETIONS)) {
            match only_damage(remains.range_deletions_at(handle))? {
                Some(found) => remains.found.range_deletions = found,
                None => remains.found.lost_blocks += 1,
            }
        }
        let Some(index) = remains.footer.index.or_else(|| meta.as_ref()?.get(INDEX)) else {
            return Err(Error::corruption(path, blocks_end, format!("{DOING}: nothing leads to the index")));
        };
        remains.index = index;
        // Without it, whatever was packed in sight of it is lost.
        if let Some(handle) = meta.as_ref().and_then(|meta| meta.get(COMPRESSION_DICTIONARY)) {
            remains.dictionary = only_damage(remains.block(handle))?.map(Dictionary::new);
        }
        Ok(remains)
    }

    /// What the table says of itself, if that is whole.
    pub(crate) const fn properties(&self) -> Option<&TableProperties> {
        self.found.properties.as_ref()
    }

    /// Shows every entry that is whole to `visit`, in `order`.
    ///
    /// # Errors
    /// Corruption if the index is damaged; `UnsupportedFormat` if something in it is whole and not known here, for to leave that out would be to
    /// lose it; what reading the file said, or `visit`.
    pub(crate) fn read(mut self, order: Order, visit: &mut Visit<'_>) -> Result<Salvaged> {
        self.order = order;
        let known = self.found.properties.as_ref();
        let by_default = IndexFormat { delta_encoded: true, user_keys: true, first_keys: false, order: self.order };
        let format = known.map_or(by_default, |known| known.index_format(self.order));
        let mut is_partitioned = known.map(|known| known.index_type() == Ok(IndexType::TwoLevel));
        let (at, block) = (self.index, self.block(self.index)?);
        self.walk(at, &block, format, &mut |remains, child| {
            // A file begins with the first block of data; partitions of the index come behind the last.
            if !*is_partitioned.get_or_insert(child.offset > 0) {
                return remains.data(child, visit);
            }
            let partition = only_damage(remains.block(child))?.filter(|block| BlockLayout::parse(block).is_ok());
            let Some(partition) = partition else {
                remains.found.lost_blocks += 1;
                return Ok(());
            };
            remains.walk(child, &partition, format, &mut |remains, child| remains.data(child, visit))
        })?;
        Ok(self.found)
    }
}

/// `None` for damage; every other failure ends the salvage.
fn only_damage<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
        Err(error) => Err(error),
    }
}

impl Remains<'_> {
    fn decode(&self, at: BlockHandle, error: DecodeError) -> Error {
        Error::decode(self.file.path(), at.offset, DOING, error)
    }

    /// Whether what a block says is what was written.
    fn has_checksums(&self) -> bool {
        self.footer.checksum.kind != ChecksumKind::None
    }

    fn stored(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let count = handle.stored_bytes(self.blocks_end).map_err(|error| self.decode(handle, error))?;
        let mut stored = vec![0; count];
        self.file.read_exact_at(handle.offset, &mut stored)?;
        Ok(stored)
    }

    fn block(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let stored = self.stored(handle)?;
        unpack(self.footer.checksum, self.dictionary.as_ref(), &stored, handle.offset).map_err(|error| {
            // Where no checksum holds, a rotten byte may read as a compression that only others have.
            let is_unchecked = self.footer.checksum.kind == ChecksumKind::None;
            let kind = if is_unchecked { DecodeErrorKind::Corrupt } else { error.kind };
            self.decode(handle, DecodeError { kind, ..error })
        })
    }

    fn range_deletions_at(&self, handle: BlockHandle) -> Result<Box<[RangeDeletion]>> {
        let block = self.block(handle)?;
        RangeDeletion::decode_all(&block, None).map_err(|error| self.decode(handle, error))
    }

    fn properties_at(&self, handle: BlockHandle) -> Result<TableProperties> {
        let stored = self.stored(handle)?;
        unpack_properties(self.footer.checksum, &stored, handle.offset).map_err(|error| self.decode(handle, error))
    }

    /// Calls `each` with what an index block leads to, as far as it decodes.
    fn walk(
        &mut self,
        at: BlockHandle,
        block: &[u8],
        format: IndexFormat,
        each: &mut dyn FnMut(&mut Self, BlockHandle) -> Result<()>,
    ) -> Result<()> {
        let layout = BlockLayout::parse(block).map_err(|error| self.decode(at, error))?;
        let mut cursor = IndexCursor::new(layout, format);
        let mut step = cursor.seek_to_first(block);
        while step.is_ok() && cursor.valid() {
            let Ok(handle) = cursor.handle(block) else { break };
            each(self, handle)?;
            step = cursor.next(block);
        }
        if step.is_err() || cursor.valid() {
            self.found.lost_blocks += 1;
        }
        Ok(())
    }

    fn data(&mut self, handle: BlockHandle, visit: &mut Visit<'_>) -> Result<()> {
        let block =
            self.block(handle).and_then(|block| put_together(block).map_err(|error| self.decode(handle, error)));
        let block = only_damage(block)?;
        let layout =
            block.as_deref().map(|block| BlockLayout::parse(block).map_err(|error| self.decode(handle, error)));
        let layout = only_damage(layout.transpose())?.flatten();
        let (Some(block), Some(layout)) = (block, layout) else {
            self.found.lost_blocks += 1;
            return Ok(());
        };
        let mut cursor = BlockCursor::new(layout);
        let mut step = cursor.seek_to_first(&block);
        while step.is_ok() && cursor.valid() {
            let key = cursor.key();
            let follows = self.last_key.is_empty() || self.order.compare_internal(&self.last_key, key).is_lt();
            // A block whose checksum holds has nothing else; without checksums, it may.
            match InternalKey::decode(key) {
                Ok(_) if follows => {}
                Err(error) if error.kind == DecodeErrorKind::Unsupported && self.has_checksums() => {
                    return Err(entry::located(
                        entry::unreadable_key(key, error),
                        Some((self.file.path(), Some(handle.offset))),
                    ));
                }
                _ => break,
            }
            visit(key, cursor.value(&block))?;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            step = cursor.next(&block);
        }
        if step.is_err() || cursor.valid() {
            self.found.lost_blocks += 1;
        }
        Ok(())
    }
}

/// The number that entries without one count from, of a table with these properties of which the manifest says `newest`.
pub(crate) fn taken_in_with(properties: &TableProperties, newest: Option<SequenceNumber>) -> Option<SequenceNumber> {
    let is_external = properties.has_external_sequence().unwrap_or(false);
    is_external.then(|| match properties.external_sequence() {
        0 => newest.unwrap_or_default(),
        written => SequenceNumber::new(written),
    })
}
