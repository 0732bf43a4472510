//! Reads a blob file: one that is sealed, or what was appended to one that still grows.
//!
//! - B1: nothing is returned whose checksums, key and compression were not checked; only [`BlobFile::read_range`] and
//!   [`BlobFile::value_len`], which leave most of a value unread, cannot check the value's own checksum.
//! - B2: nothing is allocated before its length is known to lie within the file.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use esker_env::{Access, FileSystem, ReadFile, ReadRequest, open_sealed, read_many};
use esker_format::compression::{Compression, RAW_LEN_BYTES_MAX, decompress, raw_len};
use esker_format::kept::with_kept;
use esker_format::rocksdb::blob::{
    BlobFooter, BlobIndex, BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES,
};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::BlobFileAddition;

use super::header;
use crate::cache::{Block, new_file_id};
use crate::pinned::PinnedSlice;
use crate::version::Life;
use crate::{Error, Result};

/// Longest value that is unpacked: its length before it has 32 bits. What others wrote may be longer than what Esker writes.
const RAW_BYTES_MAX: usize = u32::MAX as usize;

/// Packed records up to this size are read into a buffer that the thread keeps.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Values up to this size are read whole where a part would do: it costs the device no more, and the checksum holds.
const WHOLE_BYTES_MAX: u64 = 32 << 10;

thread_local! {
    static PACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An open blob file.
#[derive(Debug)]
pub(crate) struct BlobFile {
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) path: PathBuf,
    number: FileNumber,
    /// In the cache.
    id: u64,
    pub(super) compression: Compression,
    blob_count: AtomicU64,
    /// Records end here, and the footer begins. While the file grows, whoever has a pointer into it has got it after this
    /// was set.
    records_end: AtomicU64,
}

/// What came of reading a part of a value.
#[derive(Debug)]
pub(crate) struct Part {
    /// The part.
    pub(crate) bytes: PinnedSlice,
    /// What was read of the value for it.
    pub(crate) read_bytes: u64,
    /// In so many reads.
    pub(crate) reads: u64,
}

fn is_memory(file: &dyn ReadFile) -> bool {
    file.memory(0..0).is_some()
}

impl BlobFile {
    /// Opens the blob file of a column family that `file` holds. Cost: two small reads.
    ///
    /// # Errors
    /// Corruption or `UnsupportedFormat` for a header or footer that is not what the writer of a sealed file left.
    pub(crate) fn open(file: Arc<dyn ReadFile>, number: FileNumber, column_family_id: u32) -> Result<Arc<Self>> {
        Self::open_pointed_to(file, number, column_family_id, || false)
    }

    /// The same; `is_packing_known` says whether a pointer tells how values are packed ([`header::read`]).
    pub(crate) fn open_pointed_to(
        file: Arc<dyn ReadFile>,
        number: FileNumber,
        column_family_id: u32,
        is_packing_known: impl FnOnce() -> bool,
    ) -> Result<Arc<Self>> {
        let path = &*file.path().to_owned();
        let file_bytes = file.len()?;
        let Some(records_end) = file_bytes.checked_sub(FOOTER_BYTES as u64).filter(|&end| end >= HEADER_BYTES as u64)
        else {
            let reason =
                format!("a blob file has at least {} bytes, this has {file_bytes}", HEADER_BYTES + FOOTER_BYTES);
            return Err(Error::corruption(path, 0, reason));
        };
        let header = header::read(&*file, path, is_packing_known)?;
        if header.column_family_id != column_family_id {
            let reason = format!(
                "the blob file is of column family {}, the manifest says {column_family_id}",
                header.column_family_id
            );
            return Err(Error::corruption(path, 8, reason));
        }
        let mut raw = [0; FOOTER_BYTES];
        file.read_exact_at(records_end, &mut raw)?;
        let footer =
            BlobFooter::decode(&raw).map_err(|error| Error::decode(path, records_end, "opening a blob file", error))?;
        // One value is no sign that its neighbours are wanted: who knows that they are, says so.
        file.advise(Access::Random);
        Ok(Arc::new(Self {
            file,
            path: path.to_owned(),
            number,
            id: new_file_id(),
            compression: header.compression,
            blob_count: AtomicU64::new(footer.blob_count),
            records_end: AtomicU64::new(records_end),
        }))
    }

    /// The same, of one of which the manifest says `said`: all that follows reckons with that.
    ///
    /// # Errors
    /// Corruption, too, if the file is cut.
    pub(crate) fn open_as(
        file: Arc<dyn ReadFile>,
        said: &BlobFileAddition,
        column_family_id: u32,
        is_packing_known: impl FnOnce() -> bool,
    ) -> Result<Arc<Self>> {
        // Before its end is taken for a footer.
        let (found, ends) = (file.len()?, (HEADER_BYTES + FOOTER_BYTES) as u64);
        let expected = said.total_bytes.saturating_add(ends);
        if found < expected {
            let reason = format!(
                "the file is cut: it has {found} bytes, by the manifest it has {expected}; restore it from a backup, or repair the store"
            );
            return Err(Error::corruption(file.path(), found, reason));
        }
        Self::open_pointed_to(file, said.number, column_family_id, is_packing_known)
    }

    /// A file without a footer, of which somebody else knows header and end.
    pub(crate) fn growing(
        file: Arc<dyn ReadFile>,
        path: &Path,
        number: FileNumber,
        compression: Compression,
        records_end: u64,
    ) -> Arc<Self> {
        // As one that is sealed.
        file.advise(Access::Random);
        let (path, blob_count, records_end) = (path.to_owned(), AtomicU64::new(0), AtomicU64::new(records_end));
        Arc::new(Self { file, path, number, id: new_file_id(), compression, blob_count, records_end })
    }

    /// The same file, which was ended, as memory. `None` where the system gives none: then it is read on as it is.
    pub(crate) fn as_memory(&self, files: &dyn FileSystem) -> Option<Arc<Self>> {
        let file = open_sealed(files, &self.path, true).ok().filter(|file| is_memory(&**file))?;
        file.advise(Access::Random);
        let (path, number, id, compression) = (self.path.clone(), self.number, self.id, self.compression);
        let (blob_count, records_end) = (AtomicU64::new(self.blob_count()), AtomicU64::new(self.records_end()));
        Some(Arc::new(Self { file, path, number, id, compression, blob_count, records_end }))
    }

    /// What stands for it in the cache.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Which file it is; see [`ReadFile::identity`].
    pub(crate) fn identity(&self) -> Result<(u64, u64)> {
        Ok(self.file.identity()?)
    }

    /// Whether it is read as memory.
    pub(crate) fn is_memory(&self) -> bool {
        is_memory(&*self.file)
    }

    /// Its records, `blob_count` of them, end at `records_end` now.
    pub(crate) fn set_records(&self, records_end: u64, blob_count: u64) {
        self.blob_count.store(blob_count, Ordering::Relaxed);
        self.records_end.store(records_end, Ordering::Release);
    }

    /// How many values it holds.
    pub(super) fn blob_count(&self) -> u64 {
        self.blob_count.load(Ordering::Relaxed)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its records end.
    pub(crate) fn records_end(&self) -> u64 {
        self.records_end.load(Ordering::Acquire)
    }

    /// How long it is, once it is ended.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.records_end() + FOOTER_BYTES as u64
    }

    /// What a manifest says of it, once it is ended, if nobody else does.
    pub(crate) fn addition(&self) -> BlobFileAddition {
        BlobFileAddition {
            number: self.number,
            total_count: self.blob_count(),
            total_bytes: self.records_end().saturating_sub(HEADER_BYTES as u64),
            ..BlobFileAddition::default()
        }
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    /// What lies at `offset`, as far as there is something, unchecked: for whoever finds out what a crash left.
    pub(crate) fn read_raw(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.file.read_at(offset, buffer)?)
    }

    /// Whoever holds a value that is a part of the mapped file holds `what`, too.
    pub(crate) fn keep(&self, what: Arc<Life>) {
        self.file.keep(what);
    }

    /// Whether somebody holds a value that is a part of the mapped file. Of one that nothing points to any more, nobody can come to hold it,
    /// but those who hold a version that did.
    pub(crate) fn is_lent(&self) -> bool {
        let is_lent = Arc::strong_count(&self.file) > 1;
        // With the release of whoever let go last: what is done to the file now comes after what was read there.
        fence(Ordering::Acquire);
        is_lent
    }

    /// Whether values lie here as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.compression == Compression::None
    }

    /// Where the record of `user_key` lies that `index` points into.
    ///
    /// # Errors
    /// Corruption if that is not within the records of this file.
    pub(crate) fn extent(&self, user_key: &[u8], index: &BlobIndex) -> Result<Range<u64>> {
        if index.file != self.number || index.compression != self.compression {
            return Err(self.wrong(
                index,
                format!(
                    "a table points here for a {:?} value of blob file {}, but this is {} and holds {:?} values",
                    index.compression, index.file, self.number, self.compression
                ),
            ));
        }
        let end = index.offset.checked_add(index.bytes).filter(|&end| end <= self.records_end());
        match (index.record_offset(user_key.len()), end) {
            (Some(start), Some(end)) => Ok(start..end),
            _ => Err(self.wrong(
                index,
                format!("a table points to {} bytes here, outside of the records of the file", index.bytes),
            )),
        }
    }

    /// The value of `user_key` that lies at `index`. Cost: one read of record header, key and value, one pass of CRC-32C,
    /// and decompression if it is packed; else no copy.
    pub(crate) fn read(&self, user_key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
        if self.is_plain()
            && let Some(value) = self.lend(user_key, index)?
        {
            return Ok(value);
        }
        self.value_in(index, self.read_record(user_key, index, None)?)
    }

    /// The value at `index` where it lies, if the file is memory.
    fn lend(&self, user_key: &[u8], index: &BlobIndex) -> Result<Option<PinnedSlice>> {
        let extent = self.extent(user_key, index)?;
        let Some(record) = self.file.memory(extent.clone()) else {
            return Ok(None);
        };
        self.checked(user_key, index, record)?;
        Ok(PinnedSlice::from_file(self.file.clone(), index.offset..extent.end))
    }

    /// The value in what [`read_record`](Self::read_record) gave for the same `index`.
    pub(crate) fn value_in(&self, index: &BlobIndex, record: Arc<Block>) -> Result<PinnedSlice> {
        let end = record.bytes().len();
        let start = if self.is_plain() {
            // At the end of the record. Where it is longer than that, no range is right.
            usize::try_from(index.bytes).ok().and_then(|count| end.checked_sub(count)).unwrap_or(usize::MAX)
        } else {
            0
        };
        PinnedSlice::from_block(record, start..end)
            .ok_or_else(|| self.wrong(index, "the record has no value".to_owned()))
    }

    /// The record of `user_key` at `index`, checked; of a packed one the value, unpacked. Marked with `tag` if it is for the cache.
    pub(crate) fn read_record(&self, user_key: &[u8], index: &BlobIndex, tag: Option<u64>) -> Result<Arc<Block>> {
        let extent = self.extent(user_key, index)?;
        let Ok(count) = usize::try_from(extent.end - extent.start) else {
            return Err(self.wrong(index, format!("a value of {} bytes does not fit into memory", index.bytes)));
        };
        if let Some(record) = self.file.memory(extent.clone()) {
            let stored = self.checked(user_key, index, record)?;
            if !self.is_plain() {
                return self.unpack(index, stored, tag);
            }
            return Ok(Arc::new(Block::tagged(record.to_vec(), tag.unwrap_or_default())));
        }
        if self.is_plain() || count > KEPT_BYTES_MAX {
            let mut record = vec![0; count];
            self.file.read_exact_at(extent.start, &mut record)?;
            let stored = self.checked(user_key, index, &record)?;
            if !self.is_plain() {
                return self.unpack(index, stored, tag);
            }
            return Ok(Arc::new(Block::tagged(record, tag.unwrap_or_default())));
        }
        with_kept(&PACKED, |packed| {
            if packed.len() < count {
                packed.resize(count, 0);
            }
            let record = packed.get_mut(..count).unwrap_or_default();
            self.file.read_exact_at(extent.start, record)?;
            self.unpack(index, self.checked(user_key, index, record)?, tag)
        })
    }

    /// The value of the record at `start` of `buffer`, which was read from the [`extent`](Self::extent) of `index`. Shares
    /// the buffer unless the value is packed.
    pub(crate) fn take(
        &self,
        user_key: &[u8],
        index: &BlobIndex,
        buffer: &Arc<Block>,
        start: usize,
    ) -> Result<PinnedSlice> {
        let value_at = start.saturating_add(RECORD_HEADER_BYTES + user_key.len());
        // `extent` has seen that the record fits into memory: its buffer is there.
        let value_end = value_at.saturating_add(usize::try_from(index.bytes).unwrap_or(usize::MAX));
        let record = buffer.bytes().get(start..value_end);
        let stored = self.checked(user_key, index, record.unwrap_or_default())?;
        if !self.is_plain() {
            let value = self.unpack(index, stored, None)?;
            let whole = 0..value.bytes().len();
            return PinnedSlice::from_block(value, whole)
                .ok_or_else(|| self.wrong(index, "the value has no bytes".to_owned()));
        }
        PinnedSlice::from_block(buffer.clone(), value_at..value_end)
            .ok_or_else(|| self.wrong(index, "the record has no value".to_owned()))
    }

    /// Checks a whole record; returns the value as it is stored.
    pub(super) fn checked<'a>(&self, user_key: &[u8], index: &BlobIndex, record: &'a [u8]) -> Result<&'a [u8]> {
        let (header, body) = self.header(user_key, index, record)?;
        let Some((key, stored)) = body.split_at_checked(user_key.len()) else {
            return Err(self.wrong(index, "the record has no key".to_owned()));
        };
        header.check(key, stored).map_err(|error| self.damaged(user_key, index, error))?;
        self.same_key(user_key, index, key)?;
        Ok(stored)
    }

    /// Checks a record's header against what points to it; returns it, and what follows.
    fn header<'a>(&self, user_key: &[u8], index: &BlobIndex, record: &'a [u8]) -> Result<(BlobRecordHeader, &'a [u8])> {
        let Some((raw_header, body)) = record.split_at_checked(RECORD_HEADER_BYTES) else {
            return Err(self.wrong(index, "the record has no header".to_owned()));
        };
        let header = BlobRecordHeader::decode(raw_header).map_err(|error| self.damaged(user_key, index, error))?;
        if header.key_bytes != user_key.len() as u64 || header.value_bytes != index.bytes {
            return Err(self.wrong(
                index,
                format!(
                    "a table points to a key of {} and a value of {} bytes, the record has {} and {}",
                    user_key.len(),
                    index.bytes,
                    header.key_bytes,
                    header.value_bytes
                ),
            ));
        }
        Ok((header, body))
    }

    fn same_key(&self, user_key: &[u8], index: &BlobIndex, key: &[u8]) -> Result<()> {
        if key == user_key {
            return Ok(());
        }
        Err(self.wrong(index, "the record is of another key than the table's".to_owned()))
    }

    /// Marked with `tag` if it is for the cache.
    fn unpack(&self, index: &BlobIndex, stored: &[u8], tag: Option<u64>) -> Result<Arc<Block>> {
        let into = |value: &mut Vec<u8>| {
            decompress(self.compression, stored, value, RAW_BYTES_MAX)
                .map_err(|error| Error::decode(&self.path, index.offset, "unpacking a value", error))
        };
        let Some(tag) = tag else { return Block::passing(into).map(Arc::new) };
        let mut value = Vec::new();
        into(&mut value)?;
        Ok(Arc::new(Block::tagged(value, tag)))
    }

    /// Whether [`read_range`](Self::read_range) is for the value at `index`: it is large, and lies here as it is.
    pub(crate) fn has_parts(&self, index: &BlobIndex) -> bool {
        self.is_plain() && index.bytes > WHOLE_BYTES_MAX
    }

    /// The bytes at `range` of a value that [`has_parts`](Self::has_parts). Reads only them, and the record's header and key: what was not
    /// read cannot be checked. Lends them if the file is memory.
    pub(crate) fn read_range(&self, user_key: &[u8], index: &BlobIndex, range: Range<u64>) -> Result<Part> {
        let extent = self.extent(user_key, index)?;
        let within = index.offset.saturating_add(range.start)..index.offset.saturating_add(range.end);
        let front_end = extent.start.saturating_add((RECORD_HEADER_BYTES + user_key.len()) as u64);
        if let Some(front) = self.file.memory(extent.start..front_end) {
            self.check_front(user_key, index, front)?;
            let bytes = PinnedSlice::from_file(self.file.clone(), within).unwrap_or_default();
            return Ok(Part { read_bytes: bytes.len() as u64, bytes, reads: 1 });
        }
        let Ok(count) = usize::try_from(range.end.saturating_sub(range.start)) else {
            return Err(self.wrong(index, format!("a value of {} bytes does not fit into memory", index.bytes)));
        };
        let mut front = vec![0; RECORD_HEADER_BYTES + user_key.len()];
        let mut part = vec![0; count];
        let mut requests = [
            ReadRequest::new(&*self.file, extent.start, &mut front),
            ReadRequest::new(&*self.file, within.start, &mut part),
        ];
        read_many(&mut requests);
        let [of_front, of_part] = requests.map(|request| request.result);
        of_front.and(of_part)?;
        self.check_front(user_key, index, &front)?;
        Ok(Part { bytes: PinnedSlice::from_vec(part), read_bytes: count as u64, reads: 2 })
    }

    /// Checks a record's header and key.
    fn check_front(&self, user_key: &[u8], index: &BlobIndex, front: &[u8]) -> Result<()> {
        let (_, key) = self.header(user_key, index, front)?;
        self.same_key(user_key, index, key)
    }

    /// The length of the value at `index`, and how much was read for it: nothing if the file is plain; of a value that is packed the record's
    /// header, key and first bytes.
    pub(crate) fn value_len(&self, user_key: &[u8], index: &BlobIndex) -> Result<(u64, u64)> {
        if self.is_plain() {
            return Ok((index.bytes, 0));
        }
        let extent = self.extent(user_key, index)?;
        let packed_bytes = usize::try_from(index.bytes).unwrap_or(usize::MAX);
        let mut front = vec![0; RECORD_HEADER_BYTES + user_key.len() + packed_bytes.min(RAW_LEN_BYTES_MAX)];
        self.file.read_exact_at(extent.start, &mut front)?;
        let (_, body) = self.header(user_key, index, &front)?;
        let (key, value) = body.split_at_checked(user_key.len()).unwrap_or((body, &[]));
        self.same_key(user_key, index, key)?;
        let len = raw_len(self.compression, value, packed_bytes, RAW_BYTES_MAX)
            .map_err(|error| self.damaged(user_key, index, error))?;
        Ok((len as u64, front.len() as u64))
    }

    #[cold]
    fn wrong(&self, index: &BlobIndex, reason: String) -> Error {
        Error::corruption(&self.path, index.offset, reason)
    }

    #[cold]
    fn damaged(&self, user_key: &[u8], index: &BlobIndex, error: esker_format::DecodeError) -> Error {
        let start = index.record_offset(user_key.len()).unwrap_or(index.offset);
        Error::decode(&self.path, start, "reading a value", error)
    }
}
