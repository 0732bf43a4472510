//! Tables (`.sst`): sorted internal keys and values in blocks, with an index, a filter and properties. Written once.
//!
//! | part         | meaning                                                                                         |
//! |--------------|-------------------------------------------------------------------------------------------------|
//! | data blocks  | [`block`](super::block)s of internal keys and values, without gaps                              |
//! | meta blocks  | filter, index, properties, range deletions, … in any order                                      |
//! | metaindex    | a block: name of a meta block → [`BlockHandle`]                                                 |
//! | footer       | the last [`FOOTER_BYTES`] bytes                                                                 |
//!
//! Every block is followed by a trailer; a handle's size does not count it:
//!
//! | offset | bytes | field       | meaning                                                                          |
//! |-------:|------:|-------------|----------------------------------------------------------------------------------|
//! |      0 |     1 | compression | [`Compression`] of the block                                                     |
//! |      1 |     4 | checksum    | u32 LE over block and compression; plus the context of its offset (version 6)    |
//!
//! Footer, format version 2 to 5:
//!
//! | offset | bytes | field          | meaning                                                                       |
//! |-------:|------:|----------------|-------------------------------------------------------------------------------|
//! |      0 |     1 | checksum kind  | [`ChecksumKind`] of all blocks                                                |
//! |      1 |  ≤ 20 | metaindex      | handle                                                                        |
//! |        |  ≤ 20 | index          | handle; the rest up to offset 41 is zero                                      |
//! |     41 |     4 | format version | u32 LE                                                                        |
//! |     45 |     8 | magic          | u64 LE `0x88e241b785f4cff7`                                                   |
//!
//! Footer, format version 6:
//!
//! | offset | bytes | field           | meaning                                                                      |
//! |-------:|------:|-----------------|------------------------------------------------------------------------------|
//! |      0 |     1 | checksum kind   | [`ChecksumKind`] of all blocks and this footer                               |
//! |      1 |     4 | extended magic  | `3e 00 7a 00`                                                                |
//! |      5 |     4 | footer checksum | u32 LE over the footer with zeroes here, plus context                        |
//! |      9 |     4 | base context    | u32 LE, not 0: what the checksums of this file have in common                |
//! |     13 |     4 | metaindex size  | u32 LE; it ends where the footer begins. The index is in the metaindex       |
//! |     17 |    16 | reserved        | unchecked                                                                    |
//! |     33 |     8 | reserved        | 0, or a feature not known                                                    |
//! |     41 |    12 |                 | as above                                                                     |
//!
//! The context of a block at `offset` is the base context xor the sum of the halves of `offset`: it tells a block that was
//! written to, or read from, the wrong place. Version 3 brought user keys in the index, 4 delta-encoded handles,
//! 5 the filter of today.
//!
//! Source: RocksDB `table/format.h`, `table/format.cc`, `table/meta_blocks.cc`, `table/table_properties.cc`.

mod footer;
mod meta_index;
mod packing;
mod properties;
#[cfg(test)]
mod tests;

pub use footer::{FOOTER_BYTES, FORMAT_VERSION_MAX, FORMAT_VERSION_MIN, Footer};
pub use meta_index::{
    COMPRESSION_DICTIONARY, FILTER, INDEX, MetaIndex, PARTITIONED_FILTER_PREFIX, PROPERTIES, RANGE_DELETIONS,
};
pub use packing::{compression_name, missing_compression, names_compression_as, unpack, unpack_owned};
pub use properties::{IndexType, TableProperties};

use crate::checksum::{ChecksumKind, block_checksum};
use crate::compression::Compression;
use crate::error::DecodeError;
use crate::varint;

/// Bytes between a block and what follows it.
pub const TRAILER_BYTES: usize = 5;

/// What all names of a metaindex, or of a table's properties, may take in full. Real ones take a few KiB. A block has of each only
/// what the one before does not begin with, so that one made to do harm could say the square of its own length.
const NAMES_BYTES_MAX: usize = 4 << 20;

/// How much is left of [`NAMES_BYTES_MAX`].
struct NamesRoom(usize);

impl NamesRoom {
    const fn new() -> Self {
        Self(NAMES_BYTES_MAX)
    }

    /// Takes room for the name of the entry whose value is at `at`.
    fn take(&mut self, name: &[u8], at: u64) -> Result<(), DecodeError> {
        let too_long =
            || DecodeError::corrupt("name", at, format!("all names together are over {NAMES_BYTES_MAX} bytes"));
        self.0 = self.0.checked_sub(name.len()).ok_or_else(too_long)?;
        Ok(())
    }
}

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Of its first byte, in the file.
    pub offset: u64,
    /// Its length without the trailer.
    pub bytes: u64,
}

impl BlockHandle {
    /// Appends two varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.offset);
        varint::put_u64(out, self.bytes);
    }

    /// The handle at the start of `raw`, and how many bytes it takes.
    ///
    /// # Errors
    /// Corrupt if two varints do not decode.
    #[inline]
    pub fn decode(raw: &[u8]) -> Result<(Self, usize), DecodeError> {
        let bad = |at| DecodeError::corrupt("handle", at as u64, "not two variable-length integers");
        let (offset, first) = varint::get_u64(raw).ok_or_else(|| bad(0))?;
        let (bytes, second) = varint::get_u64(raw.get(first..).unwrap_or_default()).ok_or_else(|| bad(first))?;
        Ok((Self { offset, bytes }, first + second))
    }

    /// Where the trailer ends; `None` if that is beyond 2^64.
    #[inline]
    pub const fn end(self) -> Option<u64> {
        match self.offset.checked_add(self.bytes) {
            Some(end) => end.checked_add(TRAILER_BYTES as u64),
            None => None,
        }
    }

    /// Length with the trailer, if block and trailer lie before `limit`.
    ///
    /// # Errors
    /// Corrupt, at the block's offset, if they do not.
    pub fn stored_bytes(self, limit: u64) -> Result<usize, DecodeError> {
        let stored = self.end().filter(|&end| end <= limit).and_then(|end| usize::try_from(end - self.offset).ok());
        stored.ok_or_else(|| {
            let reason = format!("{} bytes at {} run past {limit}, where blocks end", self.bytes, self.offset);
            DecodeError::corrupt("handle", self.offset, reason)
        })
    }
}

/// How the blocks of one table are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockChecksum {
    /// The function.
    pub kind: ChecksumKind,
    /// What the checksums of this file have in common; 0 before format version 6.
    pub base_context: u32,
}

impl BlockChecksum {
    /// Added to the checksum of what lies at `offset`.
    const fn context(self, offset: u64) -> u32 {
        if self.base_context == 0 {
            return 0;
        }
        self.base_context ^ (offset as u32).wrapping_add((offset >> 32) as u32)
    }

    fn of(self, data: &[u8], type_byte: u8, offset: u64) -> u32 {
        block_checksum(self.kind, data, type_byte).wrapping_add(self.context(offset))
    }

    /// The trailer of the block `data`, already compressed, that goes to `offset`.
    pub fn trailer(self, data: &[u8], compression: Compression, offset: u64) -> [u8; TRAILER_BYTES] {
        let [a, b, c, d] = self.of(data, compression.as_u8(), offset).to_le_bytes();
        [compression.as_u8(), a, b, c, d]
    }

    /// Checks `stored`, a block and its trailer as read from `offset`, and returns the block, still compressed.
    ///
    /// Cost: one pass over the bytes, at several gigabytes a second.
    ///
    /// # Errors
    /// Corrupt if the checksum does not hold; unsupported if the compression is not known. Offsets count from the block's first byte.
    pub fn verify(self, stored: &[u8], offset: u64) -> Result<(&[u8], Compression), DecodeError> {
        let Some((data, &[type_byte, a, b, c, d])) = stored.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(DecodeError::corrupt("trailer", 0, format!("{} bytes cannot hold one", stored.len())));
        };
        let at = data.len() as u64;
        if self.kind != ChecksumKind::None {
            let (found, computed) = (u32::from_le_bytes([a, b, c, d]), self.of(data, type_byte, offset));
            if found != computed {
                let reason = format!("is {found:#010x}, of these bytes it would be {computed:#010x}");
                return Err(DecodeError::corrupt("block checksum", at + 1, reason));
            }
        }
        Ok((data, Compression::from_u8(type_byte).map_err(|error| error.at_base(at))?))
    }
}
