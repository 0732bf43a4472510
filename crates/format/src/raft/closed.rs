//! The note that Esker leaves beside a Raft log when it is closed in order: which files it needs, and how much of the last of each queue there is.
//!
//! | offset | bytes | field          | type   | meaning                                                         |
//! |-------:|------:|----------------|--------|-----------------------------------------------------------------|
//! |      0 |     8 | magic          | ASCII  | [`MAGIC`]                                                       |
//! |      8 |     4 | version        | u32 LE | 2, or 1 without the last two numbers; else unsupported          |
//! |     12 |     8 | append file    | u64 LE | number of the append queue's last file                          |
//! |     20 |     8 | append bytes   | u64 LE | where its last batch ends                                       |
//! |     28 |     8 | rewrite file   | u64 LE | the same of the rewrite queue                                   |
//! |     36 |     8 | rewrite bytes  | u64 LE | see there                                                       |
//! |     44 |     8 | append first   | u64 LE | number of the first file of the append queue that was needed    |
//! |     52 |     8 | rewrite first  | u64 LE | the same of the rewrite queue                                   |
//! |     60 |     4 | checksum       | u32 LE | [`crc32`] of what comes before                                  |
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
/// The version that is written.
const VERSION: u32 = 2;
/// The one that speaks of last files only.
const VERSION_OF_ENDS: u32 = 1;
/// How long it is; the first version is shorter.
pub const LEN_BYTES: usize = 64;

/// What a queue was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEnd {
    /// The number of the first file that was needed; that of the last if it is not known of any other.
    pub first: u64,
    /// The number of the last file.
    pub sequence: u64,
    /// Where the last file's last batch ends.
    pub bytes: u64,
}

/// What a log was when it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Of the append queue.
    pub append: QueueEnd,
    /// Of the rewrite queue.
    pub rewrite: QueueEnd,
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
        for end in [self.append, self.rewrite] {
            out.extend_from_slice(&end.first.to_le_bytes());
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
        if version != VERSION && version != VERSION_OF_ENDS {
            return Err(DecodeError::unsupported("version", offset, format!("{version}; {VERSION} is known")));
        }
        let end = |sequence, bytes| QueueEnd { first: sequence, sequence, bytes };
        let mut append = end(cursor.u64("append file")?, cursor.u64("append bytes")?);
        let mut rewrite = end(cursor.u64("rewrite file")?, cursor.u64("rewrite bytes")?);
        if version == VERSION {
            append.first = cursor.u64("append first")?;
            rewrite.first = cursor.u64("rewrite first")?;
        }
        let offset = cursor.offset();
        let summed = usize::try_from(offset).ok().and_then(|end| raw.get(..end)).unwrap_or_default();
        let (stored, computed) = (cursor.u32("checksum")?, crc32(summed));
        if stored != computed {
            let reason = format!("is {computed:#010x}, should be {stored:#010x}");
            return Err(DecodeError::corrupt("checksum", offset, reason));
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

    const CLOSED: Closed = Closed {
        append: QueueEnd { first: 3, sequence: 7, bytes: 4096 },
        rewrite: QueueEnd { first: 1, sequence: 2, bytes: 69 },
    };

    #[test]
    fn golden_bytes() {
        let golden = [
            &b"ESKRCLSD\x02\0\0\0"[..],
            b"\x07\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0",
            b"\x02\0\0\0\0\0\0\0\x45\0\0\0\0\0\0\0",
            b"\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
            &[13, 81, 90, 207],
        ]
        .concat();
        assert_eq!(CLOSED.encode(), golden);
        assert_eq!(golden.len(), LEN_BYTES);
        assert_eq!(Closed::decode(&golden).unwrap(), CLOSED);
    }

    /// Files that were closed by what wrote the first version are read as before: of each queue, it speaks of the last.
    const GOLDEN_OF_ENDS: &[u8; 48] = b"ESKRCLSD\x01\0\0\0\
        \x07\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\
        \x02\0\0\0\0\0\0\0\x45\0\0\0\0\0\0\0\
        \x8b\x2f\xb9\x7c";

    #[test]
    fn a_note_of_the_first_version_speaks_of_the_last_files() {
        let closed = Closed::decode(GOLDEN_OF_ENDS).unwrap();
        let of_ends = |end: QueueEnd| QueueEnd { first: end.sequence, ..end };
        assert_eq!(closed, Closed { append: of_ends(CLOSED.append), rewrite: of_ends(CLOSED.rewrite) });
        assert_eq!(Closed::decode(&closed.encode()), Ok(closed));
    }

    #[test]
    fn every_byte_counts() {
        every_byte_of(&CLOSED.encode());
        every_byte_of(GOLDEN_OF_ENDS);
    }

    fn every_byte_of(whole: &[u8]) {
        for at in 0..whole.len() {
            let mut raw = whole.to_vec();
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
        assert!(Closed::decode(&[whole, b"x"].concat()).is_err());
    }

    proptest! {
        #[test]
        fn decoding_is_total(raw in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Closed::decode(&raw);
            for version in [VERSION, VERSION_OF_ENDS] {
                let _ = Closed::decode(&[&MAGIC[..], &version.to_le_bytes(), &raw].concat());
            }
        }
    }
}
