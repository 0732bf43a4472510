//! Opens a table.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use esker_env::{Access, ReadFile};
use esker_format::DecodeError;
use esker_format::checksum::ChecksumKind;
use esker_format::compression::Dictionary;
use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::table::{
    BlockChecksum, BlockHandle, COMPRESSION_DICTIONARY, FILTER, FOOTER_BYTES, INDEX, MetaIndex, PROPERTIES,
    RANGE_DELETIONS, TRAILER_BYTES, TableProperties, missing_compression, names_compression_as, unpack,
};
use parking_lot::Mutex;

use super::Table;
use super::filter::Filter;
use super::footer;
use super::resident::{Keeping, Resident, ResidentAt, index_of};
use crate::cache::{BlockCache, new_file_id};
use crate::options::Orders;
use crate::range_deletions::RangeDeletion;
use crate::{Error, ErrorKind, Result};

/// A property of tables that RocksDB's `SstFileWriter::OpenWithEmbeddedBlobs` made.
const EMBEDDED_BLOBS: &str = "rocksdb.embedded.blob.stats";
/// A property of tables that point into blob files of Titan's: how much of each.
const TITAN_POINTERS: &str = "TitanDB.blob_discardable_size";

/// Read at once from the end of the file: usually footer, metaindex and properties, and all of a small table.
const TAIL_BYTES: u64 = 8 << 10;

impl Table {
    /// Opens the table in `file`, which the manifest says is `file_bytes` long. Reads and checks footer, properties, index
    /// and filter; data blocks are checked as they are read.
    ///
    /// # Errors
    /// - `Corruption`: its length or a checksum is wrong, or a field does not decode.
    /// - `UnsupportedFormat`: it needs something that Esker lacks; the reason names it.
    pub(crate) fn open(
        file: Arc<dyn ReadFile>,
        file_bytes: u64,
        orders: &Orders,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Self>> {
        Self::open_as(file, file_bytes, orders, None, cache)
    }

    /// As [`open`](Self::open), for a table of which the manifest says that `newest` is the highest sequence number in it:
    /// if its keys do not say when they were written, that is when.
    pub(crate) fn open_as(
        file: Arc<dyn ReadFile>,
        file_bytes: u64,
        orders: &Orders,
        newest: Option<SequenceNumber>,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Self>> {
        let path = &*file.path().to_owned();
        let found = file.len()?;
        if found != file_bytes {
            let reason = format!("the file has {found} bytes, the manifest says {file_bytes}");
            return Err(Error::corruption(path, found.min(file_bytes), reason));
        }
        let tail = Tail::read(&*file, path, file_bytes)?;
        let footer = footer::read(&*file, path, &tail.bytes, file_bytes)?;
        let blocks = Blocks {
            file: &*file,
            path,
            tail: &tail,
            checksum: footer.checksum,
            end: file_bytes - FOOTER_BYTES as u64,
        };
        let meta = blocks.decode(footer.meta_index, "reading the metaindex", MetaIndex::decode)?;
        let Some(at) = meta.get(PROPERTIES) else {
            return Err(Error::corruption(path, footer.meta_index.offset, "a table without properties"));
        };
        let damaged = |error| Error::decode(path, at.offset, "reading the properties", error);
        let properties = unpack_properties(blocks.checksum, &blocks.stored(at, "reading the properties")?, at.offset)
            .map_err(damaged)?;
        let index_type = properties.index_type().map_err(damaged)?;
        let taken_in = taken_in(&properties, newest).map_err(damaged)?;
        let (order, is_order_known) =
            orders.find(&properties.comparator).map_err(|error| error.with_path(path).with_offset(at.offset))?;
        if let Some(feature) = missing_feature(&properties) {
            let reason = format!("Esker does not read tables with {feature}");
            return Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(path).with_offset(at.offset));
        }
        if !names_compression_as(footer.format_version, &properties.compression) {
            let (version, name) = (footer.format_version, &properties.compression);
            let reason = format!("the footer says format version {version}, whose compression is not called {name:?}");
            return Err(Error::corruption(path, file_bytes - FOOTER_BYTES as u64, reason));
        }
        let Some(index_at) = footer.index.or_else(|| meta.get(INDEX)) else {
            return Err(Error::corruption(path, footer.meta_index.offset, "a table without an index"));
        };
        let index =
            index_of(blocks.read(index_at, "reading the index")?, &properties, (index_type, order), index_at.offset)
                .map_err(|error| Error::decode(path, index_at.offset, "reading the index", error))?;
        let dictionary = match meta.get(COMPRESSION_DICTIONARY) {
            Some(handle) => {
                let dictionary = Dictionary::new(blocks.read(handle, "reading the compression dictionary")?);
                let reserved = cache.reserve(dictionary.memory_bytes());
                Some((dictionary, reserved))
            }
            None => None,
        };
        // Partitioned filters have another name: no filter then.
        let filter_at = meta.get(FILTER).filter(|_| Filter::is_usable(&properties));
        let filter = match filter_at {
            Some(handle) => Filter::new(blocks.read(handle, "reading the filter")?, &properties),
            None => Filter::default(),
        };
        let range_deletions = match meta.get(RANGE_DELETIONS) {
            Some(handle) => {
                let decode = |block: &[u8]| RangeDeletion::decode_all(block, taken_in);
                blocks.decode(handle, "reading the range deletions", decode)?
            }
            None => Box::default(),
        };
        let (said, found) = (properties.range_deletion_count, range_deletions.len());
        // Old tables do not say how many.
        if said > 0 && said != found as u64 {
            let reason = format!("the properties say {said} range deletions, there are {found}");
            return Err(Error::corruption(path, at.offset, reason));
        }
        drop(tail);
        file.advise(Access::Random);
        let path = path.to_owned();
        let resident = Resident::new(index, filter);
        let keeping = Mutex::new(Keeping::of(&resident, &cache));
        Ok(Arc::new(Self {
            path,
            id: new_file_id(),
            file,
            file_bytes,
            footer,
            dictionary,
            meta,
            properties,
            order,
            is_order_known,
            taken_in,
            range_deletions,
            resident: ArcSwap::from_pointee(resident),
            keeping,
            resident_at: ResidentAt { index: index_at, filter: filter_at },
            touched: AtomicBool::new(false),
            cache,
        }))
    }

    /// Its entries count from `sequence` on: for a table that was just taken in, before anybody else holds it.
    pub(crate) fn take_in(&mut self, sequence: SequenceNumber) {
        self.taken_in = Some(sequence);
        self.range_deletions.iter_mut().for_each(|range| range.sequence = sequence);
    }
}

/// The first thing that the table needs and Esker lacks, in the words of an error.
fn missing_feature(properties: &TableProperties) -> Option<String> {
    if properties.timestamps_were_cut() {
        return Some("user-defined timestamps".to_owned());
    }
    if properties.number("rocksdb.udi.is.primary.index").is_some_and(|value| value > 0) {
        return Some("a user-defined index".to_owned());
    }
    if properties.other.contains_key(EMBEDDED_BLOBS) {
        return Some("values in blobs within the table".to_owned());
    }
    if properties.other.contains_key(TITAN_POINTERS) {
        return Some("values in Titan's blob files".to_owned());
    }
    missing_compression(&properties.compression)
}

/// The last bytes of the file.
struct Tail {
    offset: u64,
    bytes: Vec<u8>,
}

impl Tail {
    fn read(file: &dyn ReadFile, path: &Path, file_bytes: u64) -> Result<Self> {
        let offset = file_bytes.saturating_sub(TAIL_BYTES);
        let mut bytes = vec![0; usize::try_from(file_bytes - offset).unwrap_or(0)];
        file.read_exact_at(offset, &mut bytes)
            .map_err(|error| Error::from(error).with_path(path).while_doing("reading the end of a table"))?;
        Ok(Self { offset, bytes })
    }

    fn get(&self, offset: u64, count: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(count)?)
    }
}

/// Reads blocks while there is no table yet.
struct Blocks<'a> {
    file: &'a dyn ReadFile,
    path: &'a Path,
    tail: &'a Tail,
    checksum: BlockChecksum,
    end: u64,
}

impl Blocks<'_> {
    /// A block as it is stored, trailer included.
    fn stored(&self, handle: BlockHandle, doing: &str) -> Result<Cow<'_, [u8]>> {
        let count = handle.stored_bytes(self.end).map_err(|error| Error::decode(self.path, 0, doing, error))?;
        if let Some(stored) = self.tail.get(handle.offset, count) {
            return Ok(Cow::Borrowed(stored));
        }
        let mut stored = vec![0; count];
        self.file.read_exact_at(handle.offset, &mut stored)?;
        Ok(Cow::Owned(stored))
    }

    /// A block, checked and unpacked.
    fn read(&self, handle: BlockHandle, doing: &str) -> Result<Vec<u8>> {
        let stored = self.stored(handle, doing)?;
        if footer::has_unsaid_checksum(self.checksum, &stored, handle.offset) {
            let reason = format!(
                "{doing}: it has a checksum, or is no block, and the footer says that blocks have none: that is damaged; repair the store, or \
                 restore it from a backup"
            );
            return Err(Error::corruption(self.path, handle.offset, reason));
        }
        unpack(self.checksum, None, &stored, handle.offset).map_err(|error| {
            let error = Error::decode(self.path, handle.offset, doing, error);
            // What all blocks are packed with stands in the properties. Without checksums this may be any place of the file.
            if self.checksum.kind == ChecksumKind::None { error.with_kind(ErrorKind::Corruption) } else { error }
        })
    }

    fn decode<T>(
        &self,
        handle: BlockHandle,
        doing: &str,
        decode: impl FnOnce(&[u8]) -> std::result::Result<T, DecodeError>,
    ) -> Result<T> {
        decode(&self.read(handle, doing)?).map_err(|error| Error::decode(self.path, handle.offset, doing, error))
    }
}

/// The sequence number of all entries, if they have none of their own (T4). RocksDB once wrote it into the file and now only
/// into the manifest, so either may have it.
fn taken_in(
    properties: &TableProperties,
    newest: Option<SequenceNumber>,
) -> std::result::Result<Option<SequenceNumber>, DecodeError> {
    if !properties.has_external_sequence()? {
        return Ok(None);
    }
    let corrupt = |reason| Err(DecodeError::corrupt("external file", 0, reason));
    match (properties.external_sequence(), newest) {
        (written, _) if written > SequenceNumber::MAX.get() => {
            corrupt(format!("sequence number {written} is more than there are"))
        }
        (0, newest) => Ok(Some(newest.unwrap_or_default())),
        (written, Some(newest)) if written != newest.get() => {
            corrupt(format!("it was taken in with sequence number {written}, the manifest says {newest}"))
        }
        (written, _) => Ok(Some(SequenceNumber::new(written))),
    }
}

/// The properties from their block as stored at `offset`, trailer included. The checksum of a file that RocksDB took in
/// holds for a sequence number of zero.
pub(super) fn unpack_properties(
    checksum: BlockChecksum,
    stored: &[u8],
    offset: u64,
) -> std::result::Result<TableProperties, DecodeError> {
    let decoded = unpack(checksum, None, stored, offset).and_then(|block| TableProperties::decode(&block));
    decoded.or_else(|error| unpack_written_over(checksum, stored, offset).ok_or(error))
}

/// `None` if a sequence number that was written over is not why the checksum does not hold.
fn unpack_written_over(checksum: BlockChecksum, stored: &[u8], offset: u64) -> Option<TableProperties> {
    let mut stored = stored.to_vec();
    let block_bytes = stored.len().checked_sub(TRAILER_BYTES)?;
    let range = TableProperties::external_sequence_range(stored.get(..block_bytes)?)?;
    let place = stored.get_mut(range)?;
    let sequence = u64::from_le_bytes(place.try_into().ok()?);
    place.fill(0);
    let mut properties = TableProperties::decode(&unpack(checksum, None, &stored, offset).ok()?).ok()?;
    properties.set_external_sequence(sequence);
    Some(properties)
}
