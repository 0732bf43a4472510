//! Writes a blob file.
//!
//! - B3: after a failed append the writer writes no more (P2 of [`pieces`](crate::pieces)), so no pointer leads behind bytes that may be
//!   missing.
//!
//! Cost: each value is compressed, checksummed and copied once; large ones are not copied.

use std::path::Path;
use std::sync::Arc;

use esker_env::{AppendFile, FileSystem};
use esker_format::compression::{Compression, compress};
use esker_format::rocksdb::blob::{BlobFileHeader, BlobFooter, BlobIndex, BlobRecordHeader, accounted_bytes};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::BlobFileAddition;

use crate::pieces::Pieces;
use crate::{Error, Result};

/// Memory for a packed value is kept for the next one up to this size, and given back beyond.
const PACKED_BYTES_MAX: usize = 1 << 20;

/// A blob file that is being written. Dropped without [`finish`](Self::finish), it leaves a file without a footer.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    pieces: Pieces,
    number: FileNumber,
    compression: Compression,
    packed: Vec<u8>,
    blob_count: u64,
    blob_bytes: u64,
}

impl BlobWriter {
    /// Begins the file `path`.
    pub(crate) fn create(
        files: &dyn FileSystem,
        path: &Path,
        number: FileNumber,
        column_family_id: u32,
        compression: Compression,
    ) -> Result<Self> {
        let mut pieces = Pieces::new(files.create(path)?);
        pieces.begin(&BlobFileHeader { column_family_id, compression }.encode());
        Ok(Self { pieces, number, compression, packed: Vec::new(), blob_count: 0, blob_bytes: 0 })
    }

    /// Adds a value; returns where it lies. It is packed even if that makes it longer: a file has one compression, and
    /// RocksDB reads no value by another.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that the compression cannot hold; else as the file system's, and the file is then useless.
    pub(crate) fn add(&mut self, user_key: &[u8], value: &[u8]) -> Result<BlobIndex> {
        if self.compression == Compression::None {
            return self.add_stored(user_key, value);
        }
        let mut packed = std::mem::take(&mut self.packed);
        let compressed = compress(self.compression, value, &mut packed)
            .map_err(|error| Error::invalid_argument(error.to_string()).with_path(self.pieces.path()));
        let index = compressed.and_then(|()| self.add_stored(user_key, &packed));
        if packed.capacity() <= PACKED_BYTES_MAX {
            self.packed = packed;
        }
        index
    }

    /// Adds a value that is already packed as the file says.
    pub(crate) fn add_stored(&mut self, user_key: &[u8], stored: &[u8]) -> Result<BlobIndex> {
        self.pieces.begin(&BlobRecordHeader::of(user_key, stored).encode());
        self.pieces.begin(user_key);
        let offset = self.pieces.end();
        self.pieces.add(stored)?;
        let index = BlobIndex { file: self.number, offset, bytes: stored.len() as u64, compression: self.compression };
        self.blob_bytes += accounted_bytes(&index, user_key.len());
        self.blob_count += 1;
        Ok(index)
    }

    /// Bytes so far, without the footer.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.pieces.end()
    }

    /// Bytes that are in the file.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.pieces.appended()
    }

    /// The file: for whoever syncs it while it is written.
    pub(crate) fn file(&self) -> Arc<dyn AppendFile> {
        self.pieces.file().clone()
    }

    /// As [`finish_unsynced`](Self::finish_unsynced), with the sync.
    #[cfg(test)]
    pub(crate) fn finish(self) -> Result<BlobFileAddition> {
        let (addition, file) = self.finish_unsynced()?;
        file.sync()?;
        Ok(addition)
    }

    /// Seals the file; returns what the manifest shall say of it once it is synced.
    pub(crate) fn finish_unsynced(mut self) -> Result<(BlobFileAddition, Arc<dyn AppendFile>)> {
        self.pieces.begin(&BlobFooter { blob_count: self.blob_count }.encode());
        let addition = BlobFileAddition {
            number: self.number,
            total_count: self.blob_count,
            total_bytes: self.blob_bytes,
            ..BlobFileAddition::default()
        };
        Ok((addition, self.pieces.finish()?))
    }
}
