//! Tables: sorted runs of internal keys in files that never change. What is in them byte by byte:
//! [`esker_format::rocksdb::table`].
//!
//! | door        | what it does                                                                              |
//! |-------------|-------------------------------------------------------------------------------------------|
//! | [`write`]   | streams entries in order into a new file                                                  |
//! | [`open`]    | reads footer, properties, index and filter, and refuses what is not understood            |
//! | [`footer`]  | the footer, and whether one that cannot be read is rotten                                 |
//! | [`range_deletions`] | what was deleted by the range                                                    |
//! | [`read`]    | one key: filter, index, one block                                                         |
//! | [`filter`]  | which keys and prefixes cannot be in it                                                   |
//! | [`resident`]| index and filter in memory, and when they go                                              |
//! | [`fences`]  | where in an index to look, from memory that lies together                                 |
//! | [`iterate`] | all keys, forwards and backwards, reading ahead                                           |
//! | [`check`]   | every byte                                                                                |
//! | [`salvage`]              | what is left of a damaged one                                                |
//!
//! - T1: no byte of a block is used before its checksum holds. Where a table was written without checksums there is
//!   none to hold, and decoding is total all the same.
//! - T2: an open table never changes, so readers need no lock; where index and filter are kept: [`resident`].
//! - T3: a table that is refused is not touched.
//! - T4: a table that was written outside of the store has one entry a key, all of sequence number 0 in the file; they
//!   count from the number that it was taken in with, which is what everybody outside this room gets to see.
//!
//! Cost: an open table holds one descriptor, its filter (`bits_per_key` bits a key) and its index (about 40 bytes a block).

mod check;
mod fences;
mod filter;
mod footer;
mod index;
mod iterate;
mod open;
mod range_deletions;
mod read;
mod resident;
mod salvage;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use esker_env::ReadFile;
use esker_format::DecodeError;
use esker_format::checksum::ChecksumKind;
use esker_format::compression::{Compression, Dictionary};
use esker_format::rocksdb::block::{BlockLayout, IndexFormat};
use esker_format::rocksdb::internal_key::{SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::prefix::PrefixExtractor;
use esker_format::rocksdb::table::{BlockChecksum, BlockHandle, Footer, MetaIndex, TableProperties};
use esker_format::rocksdb::version_edit::TableMeta;
use parking_lot::Mutex;

use crate::Error;
use crate::cache::{Block, BlockCache, Reserved};
use crate::entry;
use crate::options::FamilyOptions;
use crate::pinned::PinnedSlice;
use crate::range_deletions::RangeDeletion;

use fences::Fences;
pub(crate) use iterate::TableIterator;
pub(crate) use read::Many;
use resident::{Keeping, Resident, ResidentAt};
pub(crate) use salvage::{Remains, Salvaged, taken_in_with};
pub(crate) use write::TableWriter;

/// In the place of a merge operator's name.
pub(crate) const NO_OPERATOR: &str = "nullptr";

/// How tables are written.
#[derive(Debug, Clone)]
pub(crate) struct TableOptions {
    /// Size at which a data block ends, before compression. Smaller means less read for one key; larger a smaller index.
    pub(crate) block_bytes: usize,
    /// Entries from one full key to the next.
    pub(crate) restart_interval: usize,
    /// Of data blocks, where it saves an eighth or more.
    pub(crate) compression: Compression,
    /// Of the filter; below 0.5 there is none.
    pub(crate) bits_per_key: f64,
    /// Prefixes that the filter has beside the keys.
    pub(crate) prefix: Option<PrefixExtractor>,
    /// The name of who can merge the operands.
    pub(crate) merge_operator: Option<String>,
    /// Of the keys.
    pub(crate) order: Order,
    /// Of all blocks.
    pub(crate) checksum: ChecksumKind,
    /// 5 is read by every RocksDB since 6.6; 6 since 8.6.
    pub(crate) format_version: u32,
}

impl TableOptions {
    /// As the options of a family have it.
    pub(crate) fn of(options: &FamilyOptions) -> Self {
        Self {
            block_bytes: usize::try_from(options.block_bytes).unwrap_or(usize::MAX),
            restart_interval: options.restart_interval,
            compression: options.compression,
            bits_per_key: options.bloom_bits_per_key,
            prefix: options.prefix,
            merge_operator: options.merge_operator.as_ref().map(|operator| operator.name().to_owned()),
            order: Order::new(options.comparator),
            checksum: options.checksum,
            ..Self::default()
        }
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::Lz4,
            bits_per_key: 10.0,
            prefix: None,
            merge_operator: None,
            order: Order::BYTEWISE,
            checksum: ChecksumKind::Xxh3,
            format_version: 5,
        }
    }
}

/// Where a table comes from; goes into its properties.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableIdentity {
    /// The column family's number.
    pub(crate) column_family_id: u32,
    /// The column family's name.
    pub(crate) column_family_name: String,
    /// Now, in seconds since 1970.
    pub(crate) creation_time: u64,
    /// When the oldest entry was written, in seconds since 1970; 0 if not known.
    pub(crate) oldest_key_time: u64,
    /// What the store's IDENTITY says.
    pub(crate) db_id: String,
    /// Which run of the store.
    pub(crate) session_id: String,
}

/// What was written, for the manifest.
#[derive(Debug, Clone)]
pub(crate) struct TableSummary {
    /// The file's length.
    pub(crate) file_bytes: u64,
    /// Its first internal key.
    pub(crate) smallest: Vec<u8>,
    /// Its last internal key.
    pub(crate) largest: Vec<u8>,
    /// The lowest sequence number of any entry.
    pub(crate) smallest_sequence: SequenceNumber,
    /// The highest sequence number of any entry.
    pub(crate) largest_sequence: SequenceNumber,
    /// Bytes after the data blocks.
    pub(crate) tail_bytes: u64,
}

/// The entry that [`Table::get`] found.
#[derive(Debug, Clone)]
pub(crate) struct TableHit {
    /// When it was written.
    pub(crate) sequence: SequenceNumber,
    /// How.
    pub(crate) kind: ValueKind,
    /// Its value; empty for a deletion.
    pub(crate) value: PinnedSlice,
}

/// What [`Table::check`] read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TableCheck {
    /// Blocks of all kinds.
    pub(crate) blocks: u64,
    /// Bytes of these blocks in the file, with trailers, and the footer.
    pub(crate) bytes: u64,
    /// Entries.
    pub(crate) entries: u64,
}

/// An open table. See the module's head.
pub(crate) struct Table {
    path: PathBuf,
    /// In the cache.
    id: u64,
    file: Arc<dyn ReadFile>,
    file_bytes: u64,
    footer: Footer,
    /// What its blocks are packed in sight of, and the memory that takes.
    dictionary: Option<(Dictionary, Reserved)>,
    meta: MetaIndex,
    properties: TableProperties,
    /// Of its keys.
    order: Order,
    /// Or whether that only takes its place.
    is_order_known: bool,
    /// See T4; `None` for a table whose keys say themselves when they were written.
    taken_in: Option<SequenceNumber>,
    range_deletions: Box<[RangeDeletion]>,
    resident: ArcSwap<Resident>,
    keeping: Mutex<Keeping>,
    resident_at: ResidentAt,
    /// Whether somebody asked for index or filter since an eviction was last considered.
    touched: AtomicBool,
    cache: Arc<BlockCache>,
}

/// The index, or the index over its partitions.
#[derive(Default)]
struct Index {
    block: Block,
    layout: BlockLayout,
    format: IndexFormat,
    has_partitions: bool,
    /// Where the block lies in the file: for errors.
    offset: u64,
    fences: Fences,
}

impl Table {
    /// Of its keys.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// What it says of itself.
    pub(crate) fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Refuses it if the manifest has the id of another table where it says `said`.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn expect_to_be(&self, said: &TableMeta) -> crate::Result<()> {
        let found = self.properties.unique_id();
        if said.unique_id.is_none() || said.unique_id == found {
            return Ok(());
        }
        let reason = "another table than the manifest names, by their ids: was a file renamed, or copied here from another store?";
        Err(Error::corruption(&self.path, 0, reason))
    }

    /// Which file it is; see [`ReadFile::identity`].
    pub(crate) fn identity(&self) -> crate::Result<(u64, u64)> {
        Ok(self.file.identity()?)
    }

    /// The sequence number that it was taken in with, if it was written outside of the store.
    pub(crate) fn taken_in(&self) -> Option<SequenceNumber> {
        self.taken_in
    }

    /// May be evicted from now on, if the memory of the store is limited.
    pub(crate) fn watch(self: &Arc<Self>) {
        let table: Weak<Self> = Arc::downgrade(self);
        self.cache.watch(table);
    }

    /// Where it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    fn checksum(&self) -> BlockChecksum {
        self.footer.checksum
    }

    /// Blocks lie before here.
    fn blocks_end(&self) -> u64 {
        self.file_bytes.saturating_sub(esker_format::rocksdb::table::FOOTER_BYTES as u64)
    }

    /// Where the data blocks end, as far as known.
    fn data_end(&self) -> u64 {
        let properties = &self.properties;
        let end = if properties.tail_start_offset > 0 { properties.tail_start_offset } else { properties.data_bytes };
        if end == 0 { self.blocks_end() } else { end.min(self.blocks_end()) }
    }

    /// An error in what lies at `offset` of the file, once unpacked.
    #[cold]
    fn damaged(&self, offset: u64, doing: &str, error: DecodeError) -> Error {
        // Offsets inside an unpacked block say nothing about the file: the error names where the block begins.
        Error::decode(&self.path, offset, doing, DecodeError { offset: 0, ..error })
    }

    /// That the key of an entry in the block at `handle` cannot be taken apart.
    #[cold]
    fn unreadable_key(&self, handle: BlockHandle, internal: &[u8], error: DecodeError) -> Error {
        entry::located(entry::unreadable_key(internal, error), Some((&self.path, Some(handle.offset))))
    }

    #[cold]
    fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, reason)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("path", &self.path).field("file_bytes", &self.file_bytes).finish_non_exhaustive()
    }
}
