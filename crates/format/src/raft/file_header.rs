//! File header: the first bytes of every file of either queue. Written once.
//!
//! | offset | bytes | field     | type   | meaning                                                        |
//! |-------:|------:|-----------|--------|----------------------------------------------------------------|
//! |      0 |    53 | magic     | ASCII  | [`MAGIC`]                                                      |
//! |     53 |     8 | version   | u64 BE | 1 or 2; 0 is corrupt, anything else unsupported                |
//! |     61 |     8 | alignment | u64 BE | version 2 only: a batch may begin at the next multiple of it, after zeroes; 0 is none |
//!
//! From version 2 on the checksum of every batch is salted with the file's number, so that what a recycled file held
//! before never passes for valid.
//!
//! Source: raft-engine `src/file_pipe_log/format.rs`, `src/pipe_log.rs`.

use crate::cursor::Cursor;
use crate::error::DecodeError;

/// What a file begins with.
pub const MAGIC: &[u8; 53] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
/// Longest header.
pub const LEN_BYTES_MAX: usize = MAGIC.len() + 8 + 8;

/// Version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// Checksums say nothing of the file: such files are not recycled.
    V1 = 1,
    /// Checksums are salted with the file's number.
    #[default]
    V2 = 2,
}

impl Version {
    /// The number on disk.
    pub const fn as_u64(self) -> u64 {
        self as u64
    }

    /// The version with that number.
    pub const fn from_u64(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// What the checksums of the file with this number are xored with.
    pub const fn salt(self, sequence: u64) -> u32 {
        match self {
            Self::V1 => 0,
            Self::V2 => sequence as u32,
        }
    }
}

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileHeader {
    /// How its batches are to be read.
    pub version: Version,
    /// Where batches may begin; 0 for anywhere.
    pub alignment: u64,
}

impl FileHeader {
    /// A file of `version`, without alignment.
    pub const fn new(version: Version) -> Self {
        Self { version, alignment: 0 }
    }

    /// How long the header is.
    pub const fn len_bytes(&self) -> usize {
        match self.version {
            Version::V1 => MAGIC.len() + 8,
            Version::V2 => LEN_BYTES_MAX,
        }
    }

    /// Appends the header. The alignment of version 1 is not written: it has none.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.as_u64().to_be_bytes());
        if self.version == Version::V2 {
            out.extend_from_slice(&self.alignment.to_be_bytes());
        }
    }

    /// The header at the start of `raw`, which may go on. Total; allocates nothing.
    ///
    /// # Errors
    /// Corrupt if `raw` is too short or begins otherwise; unsupported for another version.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        if cursor.bytes("magic", MAGIC.len())? != MAGIC {
            return Err(DecodeError::corrupt("magic", 0, "not a file of a Raft log"));
        }
        let offset = cursor.offset();
        let number = u64::from_be_bytes(cursor.u64("version")?.to_le_bytes());
        if number == 0 {
            // A header of which a crash left only the beginning.
            return Err(DecodeError::corrupt("version", offset, "0 was never a version"));
        }
        let Some(version) = Version::from_u64(number) else {
            return Err(DecodeError::unsupported("version", offset, format!("{number}; 1 and 2 are known")));
        };
        let alignment = match version {
            Version::V1 => 0,
            Version::V2 => u64::from_be_bytes(cursor.u64("alignment")?.to_le_bytes()),
        };
        Ok(Self { version, alignment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by raft-engine 0.4.2.
    const GOLDEN_V1: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5\0\0\0\0\0\0\0\x01";
    const GOLDEN_V2: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0";

    #[test]
    fn golden_bytes() {
        for (version, golden) in [(Version::V1, GOLDEN_V1), (Version::V2, GOLDEN_V2)] {
            let header = FileHeader::new(version);
            let mut out = Vec::new();
            header.encode(&mut out);
            assert_eq!(out, golden);
            assert_eq!(out.len(), header.len_bytes());
            assert_eq!(FileHeader::decode(golden).unwrap(), header);
        }
    }

    #[test]
    fn every_byte_counts() {
        for at in 0..61 {
            let mut raw = GOLDEN_V2.to_vec();
            raw[at] ^= 0x40;
            let error = FileHeader::decode(&raw).unwrap_err();
            assert_eq!(error.field, if at < 53 { "magic" } else { "version" });
        }
        for len in 0..GOLDEN_V2.len() {
            assert!(FileHeader::decode(&GOLDEN_V2[..len]).is_err());
        }
        let aligned = FileHeader { version: Version::V2, alignment: 4096 };
        let mut out = Vec::new();
        aligned.encode(&mut out);
        assert_eq!(FileHeader::decode(&out).unwrap(), aligned);
    }

    #[test]
    fn only_version_2_is_salted() {
        assert_eq!(Version::V1.salt(7), 0);
        assert_eq!(Version::V2.salt((1 << 32) + 7), 7);
    }

    proptest! {
        #[test]
        fn decoding_is_total(raw in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = FileHeader::decode(&raw);
            let _ = FileHeader::decode(&[&MAGIC[..], &raw].concat());
        }
    }
}
