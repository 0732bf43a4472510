//! Bytes that blocks repeat without having them: RocksDB's `max_dict_bytes`.

use std::sync::OnceLock;

use zstd::zstd_safe::DDict;

use super::{Compression, DecodeError, decompress_with};

/// What blocks were packed in sight of: samples of what is in them, or what Zstandard's trainer made of those.
///
/// Source: RocksDB `util/compression.h` (`UncompressionDict`), `table/block_based/block_based_table_builder.cc`.
pub struct Dictionary {
    raw: Box<[u8]>,
    /// For the first block that is packed by Zstandard; `None` if this is none of its dictionaries, though it begins like one.
    zstd: OnceLock<Option<DDict<'static>>>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.raw.len()).finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Of these bytes.
    pub fn new(raw: Vec<u8>) -> Self {
        Self { raw: raw.into(), zstd: OnceLock::new() }
    }

    /// Memory that it takes, once Zstandard has its own copy of it.
    pub fn memory_bytes(&self) -> usize {
        // What it looks symbols up in: 27 KiB.
        self.raw.len().saturating_mul(2).saturating_add(27 << 10)
    }

    /// As [`decompress`](super::decompress), of what was packed in sight of this.
    ///
    /// Cost: as that; the first block that is packed by Zstandard one more pass over the dictionary.
    ///
    /// # Errors
    /// As those of [`decompress`](super::decompress); corrupt if this is no dictionary.
    pub fn decompress(
        &self,
        kind: Compression,
        compressed: &[u8],
        out: &mut Vec<u8>,
        limit_bytes: usize,
    ) -> Result<(), DecodeError> {
        decompress_with(Some(self), kind, compressed, out, limit_bytes)
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn for_zstd(&self) -> Result<&DDict<'static>, DecodeError> {
        self.zstd
            .get_or_init(|| DDict::try_create(&self.raw))
            .as_ref()
            .ok_or_else(|| DecodeError::corrupt("compression dictionary", 0, "Zstandard does not take it for one"))
    }
}
