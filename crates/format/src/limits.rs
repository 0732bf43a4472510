//! The longest of everything, and which field on disk says so.
//!
//! | limit                            | value        | because                                                     |
//! |----------------------------------|-------------:|-------------------------------------------------------------|
//! | [`KEY_BYTES_MAX`]                | 8 MiB        | the most that RocksDB's FAQ recommends; its fields are wider |
//! | [`STORED_KEY_BYTES_MAX`]         | 2^32 - 9     | varint32 length of key and tag in a block, u32 in a batch   |
//! | [`VALUE_BYTES_MAX`]              | 3 GiB        | the same; a batch with one still has a 32-bit length        |
//! | [`LZ4_RAW_BYTES_MAX`]            | `0x7e000000` | LZ4's own for one block: RocksDB unpacks no longer one      |
//! | [`BATCH_COUNT_MAX`]              | 2^32 - 1     | u32 count in a batch's header                               |
//! | [`BATCH_BYTES_MAX`]              | 4 GiB - 1    | what RocksDB's own batches and memtables count on           |
//! | [`COLUMN_FAMILY_NAME_BYTES_MAX`] | 64 KiB - 1   | Esker's own: the name travels in the manifest and in every table |
//! | [`SEQUENCE_MAX`]                 | 2^56 - 1     | the low byte of the tag is the kind                         |
//! | [`FILE_NUMBER_MAX`]              | 2^62 - 1     | the manifest keeps the path in the two bits above           |
//! | [`BLOCK_BYTES_MAX`]              | 4 GiB - 1    | u32 restart offsets                                         |
//!
//! What is read may reach the width of its field; what is written keeps to the narrower limit.

use std::fmt;

/// Longest key that is written.
pub const KEY_BYTES_MAX: usize = 8 << 20;
/// Longest key that may be found: eight bytes of tag follow it, and both together have a 32-bit length.
pub const STORED_KEY_BYTES_MAX: usize = u32::MAX as usize - 8;
/// Longest value that is written.
pub const VALUE_BYTES_MAX: usize = 3 << 30;
/// Longest input of one LZ4 block.
pub const LZ4_RAW_BYTES_MAX: usize = 0x7e00_0000;
/// Most records in a batch.
pub const BATCH_COUNT_MAX: u32 = u32::MAX;
/// Longest batch.
pub const BATCH_BYTES_MAX: usize = u32::MAX as usize;
/// Longest name of a column family.
pub const COLUMN_FAMILY_NAME_BYTES_MAX: usize = u16::MAX as usize;
/// Highest sequence number.
pub const SEQUENCE_MAX: u64 = (1 << 56) - 1;
/// Highest file number.
pub const FILE_NUMBER_MAX: u64 = 0x3fff_ffff_ffff_ffff;
/// Longest block of a table.
pub const BLOCK_BYTES_MAX: usize = u32::MAX as usize;

/// Something does not fit the field that it is for. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// What is too long: `key`, `value`, `batch`.
    pub field: &'static str,
    /// How long it is.
    pub bytes: u64,
    /// How long it may be.
    pub limit_bytes: u64,
    /// What both are counted in: `bytes`, but for what is counted in `operations`.
    pub unit: &'static str,
}

impl TooLarge {
    /// `Ok` if `bytes` does not exceed `limit_bytes`.
    ///
    /// # Errors
    /// Itself.
    #[inline]
    pub const fn check(field: &'static str, bytes: usize, limit_bytes: usize) -> Result<(), Self> {
        if bytes > limit_bytes {
            return Err(Self { field, bytes: bytes as u64, limit_bytes: limit_bytes as u64, unit: "bytes" });
        }
        Ok(())
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} has {} {}, at most {} fit", self.field, self.bytes, self.unit, self.limit_bytes)
    }
}

impl std::error::Error for TooLarge {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_with_its_unit() {
        let refused = TooLarge::check("key", 9, 8).unwrap_err();
        assert_eq!(refused.to_string(), "the key has 9 bytes, at most 8 fit");
    }
}
