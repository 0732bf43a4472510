//! Reads a sealed blob file.
//!
//! - B1: nothing is returned whose checksums, key and compression were not checked.
//! - B2: nothing is allocated before its length is known to lie within the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{FileSystem, ReadFile};
use esker_format::compression::{Compression, decompress};
use esker_format::rocksdb::blob::{
    BlobFileHeader, BlobFooter, BlobIndex, BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES,
};
use esker_format::rocksdb::internal_key::FileNumber;

use crate::cache::Block;
use crate::pinned::PinnedSlice;
use crate::{Error, Result};

/// Longest value that is unpacked: its length before it has 32 bits. What others wrote may be longer than what Esker writes.
const RAW_BYTES_MAX: usize = u32::MAX as usize;

/// An open, sealed blob file.
#[derive(Debug)]
pub(crate) struct BlobFile {
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) path: PathBuf,
    number: FileNumber,
    compression: Compression,
    pub(super) blob_count: u64,
    /// Where the footer begins: records end here.
    pub(super) records_end: u64,
}

impl BlobFile {
    /// Opens the file `path` of a column family. Cost: two small reads.
    ///
    /// # Errors
    /// Corruption or `UnsupportedFormat` for a header or footer that is not what the writer of a sealed file left.
    pub(crate) fn open(
        files: &dyn FileSystem,
        path: &Path,
        number: FileNumber,
        column_family_id: u32,
    ) -> Result<Arc<Self>> {
        let file = files.open(path)?;
        let file_bytes = file.len()?;
        let Some(records_end) = file_bytes.checked_sub(FOOTER_BYTES as u64).filter(|&end| end >= HEADER_BYTES as u64)
        else {
            let reason =
                format!("a blob file has at least {} bytes, this has {file_bytes}", HEADER_BYTES + FOOTER_BYTES);
            return Err(Error::corruption(path, 0, reason));
        };
        let mut raw = [0; HEADER_BYTES];
        file.read_exact_at(0, &mut raw)?;
        let header =
            BlobFileHeader::decode(&raw).map_err(|error| Error::decode(path, 0, "opening a blob file", error))?;
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
        Ok(Arc::new(Self {
            file,
            path: path.to_owned(),
            number,
            compression: header.compression,
            blob_count: footer.blob_count,
            records_end,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The value of `user_key` that lies at `index`. Cost: one read of record header, key and value, one pass of CRC-32C,
    /// and decompression if it is packed; else no copy.
    pub(crate) fn read(&self, user_key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
        let wrong = |reason: String| Error::corruption(&self.path, index.offset, reason);
        if index.file != self.number || index.compression != self.compression {
            return Err(wrong(format!(
                "a table points here for a {:?} value of blob file {}, but this is {} and holds {:?} values",
                index.compression, index.file, self.number, self.compression
            )));
        }
        let before = (RECORD_HEADER_BYTES + user_key.len()) as u64;
        let start = index.offset.checked_sub(before).filter(|&start| start >= HEADER_BYTES as u64);
        let end = index.offset.checked_add(index.bytes).filter(|&end| end <= self.records_end);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(wrong(format!(
                "a table points to {} bytes here, outside of the records of the file",
                index.bytes
            )));
        };
        let Ok(record_bytes) = usize::try_from(end - start) else {
            return Err(wrong(format!("a value of {} bytes does not fit into memory", index.bytes)));
        };
        let mut record = vec![0; record_bytes];
        self.file.read_exact_at(start, &mut record)?;
        let decode = |error| Error::decode(&self.path, start, "reading a value", error);
        let Some((raw_header, body)) = record.split_at_checked(RECORD_HEADER_BYTES) else {
            return Err(wrong("the record has no header".to_owned()));
        };
        let header = BlobRecordHeader::decode(raw_header).map_err(decode)?;
        if header.key_bytes != user_key.len() as u64 || header.value_bytes != index.bytes {
            return Err(wrong(format!(
                "a table points to a key of {} and a value of {} bytes, the record has {} and {}",
                user_key.len(),
                index.bytes,
                header.key_bytes,
                header.value_bytes
            )));
        }
        let Some((key, stored)) = body.split_at_checked(user_key.len()) else {
            return Err(wrong("the record has no key".to_owned()));
        };
        header.check(key, stored).map_err(decode)?;
        if key != user_key {
            return Err(wrong("the record is of another key than the table's".to_owned()));
        }
        if self.compression == Compression::None {
            let range = RECORD_HEADER_BYTES + user_key.len()..record_bytes;
            return PinnedSlice::from_block(Arc::new(Block::new(record)), range)
                .ok_or_else(|| wrong("the record has no value".to_owned()));
        }
        let mut value = Vec::new();
        decompress(self.compression, stored, &mut value, RAW_BYTES_MAX)
            .map_err(|error| Error::decode(&self.path, index.offset, "unpacking a value", error))?;
        Ok(PinnedSlice::from_vec(value))
    }
}
