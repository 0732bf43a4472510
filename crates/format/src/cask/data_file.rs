//! The head of a data file, written once, before the first record.
//!
//! | offset | bytes | field          | type   | meaning                                                        |
//! |-------:|------:|----------------|--------|----------------------------------------------------------------|
//! |      0 |     8 | magic          | bytes  | `eskrcask`                                                     |
//! |      8 |     2 | format version | u16 LE | 1                                                              |
//! |     10 |     2 | reserved       | u16 LE | 0                                                              |
//! |     12 |     4 | number         | u32 LE | the file's own, as in its name                                 |
//! |     16 |     4 | salt           | u32 LE | random; the CRC of every record of the file begins from it     |
//! |     20 |     8 | clean as of    | u64 LE | version: see below                                             |
//! |     28 |     4 | crc            | u32 LE | CRC-32C of the 28 bytes before; here in every version          |
//!
//! *Clean as of* `c`: a tombstone of version up to `c` hides no record of the file, and none ever will. That is the proof by which
//! tombstones go. A file that writers fill has the version from which on its records are; one that a merge fills has the version at
//! which the merge began to ask who lives, or 0 where that is no proof: of a value that expires a merge makes a tombstone of the same
//! version, which hides the older versions that were kept.
//!
//! The salt makes a record of one file no record of another: neither what a user stores as a value, nor blocks that
//! belonged to another file, pass for records here.

use super::record::VERSION_MAX;
use super::{FileNumber, check_magic, check_version};
use crate::checksum::crc32c;
use crate::cursor::Cursor;
use crate::error::DecodeError;

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"eskrcask";
const VERSION: u16 = 1;
const CRC_OFFSET: usize = 28;

/// The first bytes of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFileHeader {
    /// The file's own number.
    pub number: FileNumber,
    /// Where the CRC of its records begins.
    pub salt: u32,
    /// No tombstone of a version up to this hides a record in it.
    pub clean_as_of: u64,
}

impl DataFileHeader {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&self.number.get().to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.clean_as_of.to_le_bytes());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads back what [`encode`](Self::encode) wrote, from the first [`HEADER_BYTES`] of `raw`.
    ///
    /// # Errors
    /// Corrupt if `raw` is shorter or does not check out; unsupported for another format version.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        check_magic(&mut cursor, MAGIC)?;
        let crc = Cursor::new(raw.get(CRC_OFFSET..).unwrap_or_default()).u32("crc")?;
        if raw.get(..CRC_OFFSET).map(crc32c) != Some(crc) {
            return Err(DecodeError::corrupt("crc", CRC_OFFSET as u64, "the head of the data file does not check out"));
        }
        check_version(&mut cursor, VERSION)?;
        cursor.u16("reserved")?;
        let number_at = cursor.offset();
        let number = cursor.u32("number")?;
        let salt = cursor.u32("salt")?;
        let clean_at = cursor.offset();
        let clean_as_of = cursor.u64("clean as of")?;
        if clean_as_of > VERSION_MAX {
            return Err(DecodeError::corrupt("clean as of", clean_at, "no record has such a version"));
        }
        let number = FileNumber::new(number)
            .ok_or_else(|| DecodeError::corrupt("number", number_at, format!("{number} is too high")))?;
        Ok(Self { number, salt, clean_as_of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8; HEADER_BYTES] =
        b"eskrcask\x01\0\0\0\x0c\0\0\0\xef\xbe\xad\xde\x2a\0\0\0\0\0\0\0\xa9\xd0\x62\x0b";

    fn header() -> DataFileHeader {
        DataFileHeader { number: FileNumber::new(12).unwrap(), salt: 0xdead_beef, clean_as_of: 42 }
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(header().encode(), GOLDEN, "{:02x?}", header().encode());
        assert_eq!(DataFileHeader::decode(GOLDEN).unwrap(), header());
    }

    #[test]
    fn no_file_is_clean_as_of_a_version_that_none_has() {
        let head = |clean_as_of| DataFileHeader { clean_as_of, ..header() }.encode();
        assert!(DataFileHeader::decode(&head(VERSION_MAX)).is_ok());
        assert_eq!(DataFileHeader::decode(&head(VERSION_MAX + 1)).unwrap_err().field, "clean as of");
    }

    #[test]
    fn every_flipped_bit_and_missing_byte_is_noticed() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut raw = GOLDEN.to_vec();
            raw[bit / 8] ^= 1 << (bit % 8);
            assert!(DataFileHeader::decode(&raw).is_err(), "bit {bit}");
        }
        for len in 0..HEADER_BYTES {
            assert!(DataFileHeader::decode(&GOLDEN[..len]).is_err(), "{len} bytes");
        }
    }
}
