//! The note that Esker leaves beside a Raft log when it is closed in order: how much of the last file of each queue there is.
//!
//! | offset | bytes | field          | type   | meaning                                                         |
//! |-------:|------:|----------------|--------|-----------------------------------------------------------------|
//! |      0 |     8 | magic          | ASCII  | [`MAGIC`]                                                       |
//! |      8 |     4 | version        | u32 LE | 1; anything else is unsupported                                 |
//! |     12 |     8 | append file    | u64 LE | number of the append queue's last file                          |
//! |     20 |     8 | append bytes   | u64 LE | where its last batch ends                                       |
//! |     28 |     8 | rewrite file   | u64 LE | the same of the rewrite queue                                   |
//! |     36 |     8 | rewrite bytes  | u64 LE | see there                                                       |
//! |     44 |     4 | checksum       | u32 LE | [`crc32`] of what comes before                                  |
//!
//! raft-engine takes names of more than 16 bytes for its own, and passes over all others.

use super::crc32;
use crate::cursor::Cursor;
use crate::error::DecodeError;

/// The note's name.
pub const NAME: &str = "CLOSED";
/// Its name while it is written.
pub const NEW_NAME: &str = "CLOSED.new";
/// What it begins with.
pub const MAGIC: &[u8; 8] = b"ESKRCLSD";
/// The only version.
const VERSION: u32 = 1;
/// How long it is.
pub const LEN_BYTES: usize = 48;
const CHECKSUM_OFFSET: usize = LEN_BYTES - 4;

/// The last file of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    /// Its number.
    pub sequence: u64,
    /// Where its last batch ends.
    pub bytes: u64,
}

/// What a log was when it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Of the append queue.
    pub append: FileEnd,
    /// Of the rewrite queue.
    pub rewrite: FileEnd,
}

impl Closed {
    /// The note.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for end in [self.append, self.rewrite] {
            out.extend_from_slice(&end.sequence.to_le_bytes());
            out.extend_from_slice(&end.bytes.to_le_bytes());
        }
        let checksum = crc32(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads back what [`encode`](Self::encode) wrote. Total; allocates nothing.
    ///
    /// # Errors
    /// Corrupt, naming the field, or unsupported for another version.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        if cursor.bytes("magic", MAGIC.len())? != MAGIC {
            return Err(DecodeError::corrupt("magic", 0, "no note of a Raft log that was closed"));
        }
        let offset = cursor.offset();
        let version = cursor.u32("version")?;
        if version != VERSION {
            return Err(DecodeError::unsupported("version", offset, format!("{version}; {VERSION} is known")));
        }
        let append = FileEnd { sequence: cursor.u64("append file")?, bytes: cursor.u64("append bytes")? };
        let rewrite = FileEnd { sequence: cursor.u64("rewrite file")?, bytes: cursor.u64("rewrite bytes")? };
        let (stored, computed) = (cursor.u32("checksum")?, crc32(raw.get(..CHECKSUM_OFFSET).unwrap_or_default()));
        if stored != computed {
            let reason = format!("is {computed:#010x}, should be {stored:#010x}");
            return Err(DecodeError::corrupt("checksum", CHECKSUM_OFFSET as u64, reason));
        }
        if !cursor.is_empty() {
            return Err(cursor.corrupt("length", "something follows the checksum"));
        }
        Ok(Self { append, rewrite })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOSED: Closed =
        Closed { append: FileEnd { sequence: 7, bytes: 4096 }, rewrite: FileEnd { sequence: 2, bytes: 69 } };

    #[test]
    fn golden_bytes() {
        let golden = [
            &b"ESKRCLSD\x01\0\0\0"[..],
            b"\x07\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0",
            b"\x02\0\0\0\0\0\0\0\x45\0\0\0\0\0\0\0",
            &[139, 47, 185, 124],
        ]
        .concat();
        assert_eq!(CLOSED.encode(), golden);
        assert_eq!(golden.len(), LEN_BYTES);
        assert_eq!(Closed::decode(&golden).unwrap(), CLOSED);
    }

    #[test]
    fn every_byte_counts() {
        let whole = CLOSED.encode();
        for at in 0..whole.len() {
            let mut raw = whole.clone();
            raw[at] ^= 4;
            let error = Closed::decode(&raw).unwrap_err();
            let field = match at {
                0..8 => "magic",
                8..12 => "version",
                _ => "checksum",
            };
            assert_eq!(error.field, field, "byte {at}");
            assert!(Closed::decode(&whole[..at]).is_err());
        }
        assert!(Closed::decode(&[&whole[..], b"x"].concat()).is_err());
    }

    proptest! {
        #[test]
        fn decoding_is_total(raw in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Closed::decode(&raw);
            let _ = Closed::decode(&[&MAGIC[..], &VERSION.to_le_bytes(), &raw].concat());
        }
    }
}
