//! Values as they are stored: what is copied from file to file is not unpacked on the way.

use esker_format::compression::Compression;
use esker_format::rocksdb::blob::BlobIndex;

use super::BlobFile;
use crate::{Error, Result};

impl BlobFile {
    /// How every value here is packed.
    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Reads the record of `user_key` that `index` points into and checks all of it (B1); returns the value as it is
    /// stored, within `record`, whose memory is used again.
    pub(crate) fn read_stored<'a>(
        &self,
        user_key: &[u8],
        index: &BlobIndex,
        record: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let extent = self.extent(user_key, index)?;
        let Ok(count) = usize::try_from(extent.end - extent.start) else {
            let reason = format!("a value of {} bytes does not fit into memory", index.bytes);
            return Err(Error::corruption(&self.path, index.offset, reason));
        };
        record.resize(count, 0);
        self.file.read_exact_at(extent.start, record)?;
        self.checked(user_key, index, record)
    }
}
