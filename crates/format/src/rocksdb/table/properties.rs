//! The properties block: what a table says of itself. Names in order, each with a varint64 or a byte string.

use std::collections::BTreeMap;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::NamesRoom;
use crate::error::DecodeError;
use crate::rocksdb::block::{BlockBuilder, BlockCursor, BlockLayout, IndexFormat};
use crate::rocksdb::order::Order;
use crate::rocksdb::prefix::PrefixExtractor;
use crate::varint;

const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";
const EXTERNAL_SEQUENCE: &str = "rocksdb.external_sst_file.global_seqno";
/// The version of external files whose entries all have the sequence number that they were taken in with.
const EXTERNAL_VERSION_WITH_SEQUENCE: u32 = 2;
const TIMESTAMPS_PERSISTED: &str = "rocksdb.user.defined.timestamps.persisted";

macro_rules! properties {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident = $number_name:literal,)* }
        texts { $($(#[$text_doc:meta])* $text:ident = $text_name:literal,)* }
    ) => {
        /// What a table says of itself. What RocksDB does not know, and what is not a field here, is in [`other`](Self::other).
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct TableProperties {
            $($(#[$number_doc])* pub $number: u64,)*
            $($(#[$text_doc])* pub $text: String,)*
            /// Everything else, by name: users' own properties (`esker.*` are Esker's) and those of other releases.
            pub other: BTreeMap<String, Vec<u8>>,
        }

        impl TableProperties {
            fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($number_name, self.$number),)*].into_iter()
            }

            fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
                [$(($text_name, self.$text.as_str()),)*].into_iter()
            }

            /// Takes one property; `None` if a number does not decode.
            fn set(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
                $(if name == $number_name.as_bytes() {
                    self.$number = varint::get_u64(value)?.0;
                    return Some(());
                })*
                $(if name == $text_name.as_bytes() {
                    self.$text = String::from_utf8_lossy(value).into_owned();
                    return Some(());
                })*
                self.other.insert(String::from_utf8_lossy(name).into_owned(), value.to_vec());
                Some(())
            }
        }
    };
}

properties! {
    numbers {
        /// Bytes of data blocks with their trailers.
        data_bytes = "rocksdb.data.size",
        /// Bytes of the index, of all its partitions, with trailers.
        index_bytes = "rocksdb.index.size",
        /// Partitions of the index; 0 if it is one block.
        index_partition_count = "rocksdb.index.partitions",
        /// Bytes of the index over partitions.
        top_level_index_bytes = "rocksdb.top-level.index.size",
        /// 1 if separators in the index have no tag.
        index_key_is_user_key = "rocksdb.index.key.is.user.key",
        /// 1 if handles in the index are differences.
        index_value_is_delta_encoded = "rocksdb.index.value.is.delta.encoded",
        /// Bytes of the filter.
        filter_bytes = "rocksdb.filter.size",
        /// Bytes of all internal keys.
        raw_key_bytes = "rocksdb.raw.key.size",
        /// Bytes of all values.
        raw_value_bytes = "rocksdb.raw.value.size",
        /// Data blocks.
        data_block_count = "rocksdb.num.data.blocks",
        /// Entries, range deletions too.
        entry_count = "rocksdb.num.entries",
        /// Different keys in the filter.
        filter_entry_count = "rocksdb.num.filter_entries",
        /// Deletions of all kinds, counted among the entries.
        deletion_count = "rocksdb.deleted.keys",
        /// Merge operands, counted among the entries.
        merge_operand_count = "rocksdb.merge.operands",
        /// Range deletions.
        range_deletion_count = "rocksdb.num.range-deletions",
        /// 0; the footer has the format version.
        format_version = "rocksdb.format.version",
        /// 0; for plain tables.
        fixed_key_bytes = "rocksdb.fixed.key.length",
        /// The column family that it was written for.
        column_family_id = "rocksdb.column.family.id",
        /// When its oldest data was flushed, in seconds since 1970.
        creation_time = "rocksdb.creation.time",
        /// When its oldest key was written, in seconds since 1970; 0 if not known.
        oldest_key_time = "rocksdb.oldest.key.time",
        /// When the file was written, in seconds since 1970.
        file_creation_time = "rocksdb.file.creation.time",
        /// The number it had in the store that wrote it.
        original_file_number = "rocksdb.original.file.number",
        /// Where the data blocks end; 0 if not known.
        tail_start_offset = "rocksdb.tail.start.offset",
    }
    texts {
        /// Empty if there is no filter.
        filter_policy = "rocksdb.filter.policy",
        /// The order of keys.
        comparator = "rocksdb.comparator",
        /// `nullptr` if there is none.
        merge_operator = "rocksdb.merge.operator",
        /// `nullptr` if there is none.
        prefix_extractor = "rocksdb.prefix.extractor.name",
        /// `[]` if there are none.
        property_collectors = "rocksdb.property.collectors",
        /// The column family that it was written for.
        column_family_name = "rocksdb.column.family.name",
        /// See [`compression_name`](super::compression_name).
        compression = "rocksdb.compression",
        /// Settings of the compression, for people.
        compression_options = "rocksdb.compression_options",
        /// Identity of the store that wrote it.
        db_id = "rocksdb.creating.db.identity",
        /// Identity of that store's run.
        session_id = "rocksdb.creating.session.identity",
        /// The machine that wrote it.
        host_id = "rocksdb.creating.host.identity",
    }
}

/// How a table's index is organised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexType {
    /// One block, searched.
    BinarySearch = 0,
    /// The same, with a hash of prefixes beside it; read as [`BinarySearch`](Self::BinarySearch).
    HashSearch = 1,
    /// An index over the blocks of the index.
    TwoLevel = 2,
    /// One block that also has the first key of each block, so that a seek may put off reading the block.
    BinarySearchWithFirstKey = 3,
}

impl TableProperties {
    /// How the index is organised. Absent in the oldest files, which have one block.
    ///
    /// # Errors
    /// Unsupported for a type that is not known.
    pub fn index_type(&self) -> Result<IndexType, DecodeError> {
        let word =
            self.other.get(INDEX_TYPE).and_then(|raw| raw.first_chunk()).map_or(0, |raw| u32::from_le_bytes(*raw));
        match word {
            0 => Ok(IndexType::BinarySearch),
            1 => Ok(IndexType::HashSearch),
            2 => Ok(IndexType::TwoLevel),
            3 => Ok(IndexType::BinarySearchWithFirstKey),
            _ => Err(DecodeError::unsupported("index type", 0, format!("type {word} is not known"))),
        }
    }

    /// Sets what RocksDB wants to find of a table with an index of this type, whose filter has whole keys and, if it names a
    /// prefix extractor, prefixes.
    pub fn set_index_type(&mut self, index_type: IndexType) {
        self.other.insert(INDEX_TYPE.to_owned(), (index_type as u32).to_le_bytes().to_vec());
        let has_prefixes = PrefixExtractor::parse(&self.prefix_extractor).is_some();
        self.other.insert(WHOLE_KEY_FILTERING.to_owned(), b"1".to_vec());
        self.other.insert(PREFIX_FILTERING.to_owned(), if has_prefixes { b"1".to_vec() } else { b"0".to_vec() });
    }

    /// How to read the index over keys in `order`.
    pub fn index_format(&self, order: Order) -> IndexFormat {
        IndexFormat {
            order,
            delta_encoded: self.index_value_is_delta_encoded != 0,
            user_keys: self.index_key_is_user_key != 0,
            first_keys: self.index_type() == Ok(IndexType::BinarySearchWithFirstKey),
        }
    }

    /// Whether the filter has whole keys, and not only prefixes of them.
    pub fn has_whole_key_filter(&self) -> bool {
        self.other.get(WHOLE_KEY_FILTERING).is_none_or(|value| value != b"0")
    }

    /// What prefixes of keys the filter has, if it has any.
    pub fn filtered_prefixes(&self) -> Option<PrefixExtractor> {
        let has_prefixes = self.other.get(PREFIX_FILTERING).is_some_and(|value| value == b"1");
        PrefixExtractor::parse(&self.prefix_extractor).filter(|_| has_prefixes)
    }

    /// The version of a file that was written outside a store, to be taken in: from 2 on, the manifest and not the keys
    /// say when its entries count. `None` for any other file.
    pub fn external_version(&self) -> Option<u32> {
        self.other.get(EXTERNAL_VERSION).map(|raw| raw.first_chunk().map_or(u32::MAX, |raw| u32::from_le_bytes(*raw)))
    }

    /// Whether the entries say nothing of when they were written: they all have sequence number 0, and count from the one
    /// that the file was taken in with.
    ///
    /// # Errors
    /// Unsupported for a version that is not known; corrupt if only one of version and sequence number is there.
    pub fn has_external_sequence(&self) -> Result<bool, DecodeError> {
        let corrupt = |reason: &'static str| Err(DecodeError::corrupt("external file", 0, reason));
        match (self.external_version(), self.other.get(EXTERNAL_SEQUENCE).map(|raw| raw.len() == size_of::<u64>())) {
            (None | Some(1), None) => Ok(false),
            (None | Some(1), Some(_)) => corrupt("it has a sequence number, and its version has none"),
            (Some(EXTERNAL_VERSION_WITH_SEQUENCE), None | Some(true)) => Ok(true),
            (Some(EXTERNAL_VERSION_WITH_SEQUENCE), Some(false)) => corrupt("its sequence number is none"),
            (Some(version), _) => {
                let reason = format!("version {version} of files that are taken in is not known");
                Err(DecodeError::unsupported("external file", 0, reason))
            }
        }
    }

    /// The sequence number that RocksDB wrote over that of an external file; 0 where it did not.
    pub fn external_sequence(&self) -> u64 {
        self.other.get(EXTERNAL_SEQUENCE).and_then(|raw| raw.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw))
    }

    /// Sets the sequence number of an external file.
    pub fn set_external_sequence(&mut self, sequence: u64) {
        self.other.insert(EXTERNAL_SEQUENCE.to_owned(), sequence.to_le_bytes().to_vec());
    }

    /// Says that the file is written outside of a store, for any to take in.
    pub fn set_external(&mut self) {
        self.other.insert(EXTERNAL_VERSION.to_owned(), EXTERNAL_VERSION_WITH_SEQUENCE.to_le_bytes().to_vec());
        self.set_external_sequence(0);
    }

    /// Where in the block RocksDB writes the sequence number of a file that it takes in: over zeroes, and after the
    /// checksum of the block was taken, which holds for the zeroes. `None` if there is no such place.
    pub fn external_sequence_range(block: &[u8]) -> Option<Range<usize>> {
        let mut cursor = BlockCursor::new(BlockLayout::parse(block).ok()?);
        cursor.seek_to_first(block).ok()?;
        while cursor.valid() && cursor.key() != EXTERNAL_SEQUENCE.as_bytes() {
            cursor.next(block).ok()?;
        }
        cursor.valid().then(|| cursor.value_range())
    }

    /// Whether timestamps were cut off the keys.
    pub fn timestamps_were_cut(&self) -> bool {
        self.number(TIMESTAMPS_PERSISTED) == Some(0)
    }

    /// RocksDB's id of the table, in its internal form, as manifests have it since RocksDB 7.3: the lower 64 bits of the session in which
    /// it was written; a hash of the store's id and of the rest of the session, xor the number that the file had there. Neither another
    /// name nor another store changes it. `None` if the table does not say enough of itself, as those written before 6.24.
    ///
    /// Source: RocksDB `table/unique_id.cc`.
    pub fn unique_id(&self) -> Option<(u64, u64)> {
        if self.db_id.is_empty() || self.original_file_number == 0 {
            return None;
        }
        let (upper, lower) = session_bits(&self.session_id)?;
        let of_store = (xxh3_128_with_seed(self.db_id.as_bytes(), upper) >> 64) as u64;
        Some((lower, of_store ^ self.original_file_number)).filter(|&id| id != (0, 0))
    }

    /// A number among the [`other`](Self::other) properties.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.other.get(name).and_then(|raw| varint::get_u64(raw)).map(|(value, _)| value)
    }

    /// All properties as they are written, by name.
    pub fn entries(&self) -> BTreeMap<&str, Vec<u8>> {
        let mut entries: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (name, value) in self.numbers() {
            let mut raw = Vec::new();
            varint::put_u64(&mut raw, value);
            entries.insert(name, raw);
        }
        if self.index_partition_count == 0 {
            entries.remove("rocksdb.index.partitions");
            entries.remove("rocksdb.top-level.index.size");
        }
        for (name, value) in self.texts().filter(|(_, value)| !value.is_empty()) {
            entries.insert(name, value.as_bytes().to_vec());
        }
        for (name, value) in &self.other {
            entries.entry(name).or_insert_with(|| value.clone());
        }
        entries
    }

    /// The block's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = BlockBuilder::new(usize::MAX);
        for (name, value) in self.entries() {
            block.add(name.as_bytes(), &value);
        }
        block.finish().to_vec()
    }

    /// Reads the block's bytes. Total.
    ///
    /// # Errors
    /// Corrupt if an entry does not decode, or all names together are over 4 MiB long.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let mut properties = Self::default();
        let mut cursor = BlockCursor::new(BlockLayout::parse(block)?);
        let mut room = NamesRoom::new();
        cursor.seek_to_first(block)?;
        while cursor.valid() {
            room.take(cursor.key(), cursor.value_range().start as u64)?;
            if properties.set(cursor.key(), cursor.value(block)).is_none() {
                let reason = format!("{} is not a number", String::from_utf8_lossy(cursor.key()));
                return Err(DecodeError::corrupt("property", cursor.value_range().start as u64, reason));
            }
            cursor.next(block)?;
        }
        Ok(properties)
    }
}

/// The 103 bits of a session's name, the upper and the lower 64: 62 in its last 12 digits of base 36, the others in those before.
fn session_bits(name: &str) -> Option<(u64, u64)> {
    let digits = |text: &str| {
        text.chars()
            .try_fold(0u64, |sum, digit| Some(sum.wrapping_mul(36).wrapping_add(u64::from(digit.to_digit(36)?))))
    };
    let (first, last) = name.split_at_checked(name.len().checked_sub(12)?)?;
    if first.is_empty() || first.len() > 12 {
        return None;
    }
    let (first, last) = (digits(first)?, digits(last)?);
    Some((first >> 2, last & (u64::MAX >> 2) | first << 62))
}
