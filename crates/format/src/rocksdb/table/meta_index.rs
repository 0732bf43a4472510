//! The metaindex: which other blocks a table has.

use crate::error::DecodeError;
use crate::rocksdb::block::{BlockBuilder, BlockCursor, BlockLayout};

use super::{BlockHandle, NamesRoom};

/// The filter over whole keys. Every release since 5 looks for this name, whatever kind of filter the block holds.
pub const FILTER: &str = "fullfilter.rocksdb.BuiltinBloomFilter";
/// What the name of a filter in partitions begins with.
pub const PARTITIONED_FILTER_PREFIX: &str = "partitionedfilter.";
/// The index, from format version 6 on.
pub const INDEX: &str = "rocksdb.index";
/// The properties.
pub const PROPERTIES: &str = "rocksdb.properties";
/// Range deletions.
pub const RANGE_DELETIONS: &str = "rocksdb.range_del";
/// What data blocks were compressed with.
pub const COMPRESSION_DICTIONARY: &str = "rocksdb.compression_dict";

/// Names and places of meta blocks, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaIndex {
    entries: Vec<(Vec<u8>, BlockHandle)>,
}

impl MetaIndex {
    /// Adds a block, or moves one.
    pub fn insert(&mut self, name: &str, handle: BlockHandle) {
        match self.place(name) {
            Ok(index) => self.entries.splice(index..=index, [(name.as_bytes().to_vec(), handle)]).for_each(drop),
            Err(index) => self.entries.insert(index, (name.as_bytes().to_vec(), handle)),
        }
    }

    /// Where the block of this name lies, if the table has it.
    pub fn get(&self, name: &str) -> Option<BlockHandle> {
        let index = self.place(name).ok()?;
        self.entries.get(index).map(|(_, handle)| *handle)
    }

    /// All names and places, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], BlockHandle)> {
        self.entries.iter().map(|(name, handle)| (name.as_slice(), *handle))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(entry, _)| entry.as_slice().cmp(name.as_bytes()))
    }

    /// The block's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = BlockBuilder::new(1);
        for (name, handle) in &self.entries {
            let mut value = Vec::new();
            handle.encode(&mut value);
            block.add(name, &value);
        }
        block.finish().to_vec()
    }

    /// Reads the block's bytes. Total.
    ///
    /// # Errors
    /// Corrupt if an entry does not decode, names are out of order, or all of them together over 4 MiB long.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = BlockCursor::new(BlockLayout::parse(block)?);
        let mut entries: Vec<(Vec<u8>, BlockHandle)> = Vec::new();
        let mut room = NamesRoom::new();
        cursor.seek_to_first(block)?;
        while cursor.valid() {
            let at = cursor.value_range().start as u64;
            room.take(cursor.key(), at)?;
            if entries.last().is_some_and(|(last, _)| last.as_slice() >= cursor.key()) {
                return Err(DecodeError::corrupt("name", at, "names are not in order"));
            }
            let (handle, _) = BlockHandle::decode(cursor.value(block)).map_err(|error| error.at_base(at))?;
            entries.push((cursor.key().to_vec(), handle));
            cursor.next(block)?;
        }
        Ok(Self { entries })
    }
}
