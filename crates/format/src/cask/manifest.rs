//! The manifest of a Cask: which data files make up the store. Replaced as a whole, by rename: one edit, whole or not at all.
//!
//! | offset | bytes | field          | type   | meaning                                                           |
//! |-------:|------:|----------------|--------|-------------------------------------------------------------------|
//! |      0 |     8 | magic          | bytes  | `eskrmani`                                                        |
//! |      8 |     2 | format version | u16 LE | 1                                                                 |
//! |     10 |     2 | keep versions  | u16 LE | versions of each key that are kept; 0: not said                   |
//! |     12 |    16 | store id       | bytes  | random                                                            |
//! |     28 |     4 | next file      | u32 LE | higher than the number of every file there ever was               |
//! |     32 |     8 | next version   | u64 LE | not lower than any version was when this was written              |
//! |     40 |     4 | file count     | u32 LE | entries that follow                                               |
//! |     44 |    40 each | files     |        | by ascending number                                               |
//! |        |     4 | crc            | u32 LE | CRC-32C of all bytes before; at the end in every version          |
//!
//! A file:
//!
//! | offset | bytes | field        | type   | meaning                                                              |
//! |-------:|------:|--------------|--------|----------------------------------------------------------------------|
//! |      0 |     4 | number       | u32 LE | from 1                                                               |
//! |      4 |     4 | state        | u32 LE | 0: open, may end anywhere; 1: sealed, changes no more                |
//! |      8 |     4 | salt         | u32 LE | as in the file's head, which may be damaged                          |
//! |     12 |     8 | clean as of  | u64 LE | as in the file's head                                                |
//! |     20 |     8 | data bytes   | u64 LE | its length; while open, so much is known to be durable: 0 by older releases |
//! |     28 |     8 | record count | u64 LE | 0 while open                                                         |
//! |     36 |     4 | reserved     | u32 LE | 0                                                                    |

use super::record::VERSION_MAX;
use super::{FileNumber, check_magic, check_version};
use crate::checksum::crc32c;
use crate::cursor::Cursor;
use crate::error::DecodeError;

/// Bytes before the first file.
pub const HEAD_BYTES: usize = 44;
/// Bytes of a file.
pub const FILE_BYTES: usize = 40;
/// What every manifest of a Cask begins with: tells its directory from others.
pub const MAGIC: [u8; 8] = *b"eskrmani";

const VERSION: u16 = 1;
const CRC_BYTES: usize = 4;

/// Whether a file may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// May end anywhere behind what is durable: recovery reads it.
    Open {
        /// So many bytes, from its beginning, are durable, and whole records. 0: not said, as by releases before this was written.
        durable_bytes: u64,
    },
    /// Changes no more, is durable, and has this length and so many records.
    Sealed {
        /// Its length.
        data_bytes: u64,
        /// Its records.
        record_count: u64,
    },
}

impl FileState {
    /// Whether it may still grow.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// A data file of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its number.
    pub number: FileNumber,
    /// Whether it may still grow.
    pub state: FileState,
    /// As in its head.
    pub salt: u32,
    /// As in its head.
    pub clean_as_of: u64,
}

/// Everything that a manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Random, given at the store's creation.
    pub store_id: [u8; 16],
    /// Versions of each key that are kept. 0: not said, as by releases before there was this field.
    pub keep_versions: u16,
    /// Higher than the number of every file there ever was.
    pub next_file: u32,
    /// Not lower than any version was when this was written.
    pub next_version: u64,
    /// By ascending number.
    pub files: Vec<File>,
}

impl Manifest {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.files.len() * FILE_BYTES + CRC_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.keep_versions.to_le_bytes());
        out.extend_from_slice(&self.store_id);
        out.extend_from_slice(&self.next_file.to_le_bytes());
        out.extend_from_slice(&self.next_version.to_le_bytes());
        // File numbers have 30 bits, so their count has no more.
        out.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        for file in &self.files {
            let (state, data_bytes, record_count) = match file.state {
                FileState::Open { durable_bytes } => (0u32, durable_bytes, 0),
                FileState::Sealed { data_bytes, record_count } => (1, data_bytes, record_count),
            };
            out.extend_from_slice(&file.number.get().to_le_bytes());
            out.extend_from_slice(&state.to_le_bytes());
            out.extend_from_slice(&file.salt.to_le_bytes());
            out.extend_from_slice(&file.clean_as_of.to_le_bytes());
            out.extend_from_slice(&data_bytes.to_le_bytes());
            out.extend_from_slice(&record_count.to_le_bytes());
            out.extend_from_slice(&0u32.to_le_bytes());
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads back what [`encode`](Self::encode) wrote; `raw` is the whole file.
    ///
    /// # Errors
    /// Corrupt if it does not check out; unsupported for another format version.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        check_magic(&mut cursor, MAGIC)?;
        let Some((checked, crc)) = raw.split_last_chunk::<CRC_BYTES>() else {
            return Err(cursor.corrupt("crc", "the file ends before it"));
        };
        if crc32c(checked) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::corrupt("crc", checked.len() as u64, "the manifest does not check out"));
        }
        check_version(&mut cursor, VERSION)?;
        let keep_versions = cursor.u16("keep versions")?;
        let mut store_id = [0; 16];
        store_id.copy_from_slice(cursor.bytes("store id", 16)?);
        let file_at = cursor.clone();
        let next_file = cursor.u32("next file")?;
        if next_file == 0 {
            return Err(file_at.corrupt("next file", "files are counted from 1"));
        }
        let version_at = cursor.clone();
        let next_version = cursor.u64("next version")?;
        if next_version > VERSION_MAX {
            return Err(version_at.corrupt("next version", "no store gets so far"));
        }
        let count_at = cursor.clone();
        let count = cursor.u32("file count")? as usize;
        if cursor.rest().len() != count.saturating_mul(FILE_BYTES).saturating_add(CRC_BYTES) {
            return Err(count_at.corrupt("file count", format!("{count} files are not what follows")));
        }
        let mut files: Vec<File> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = cursor.clone();
            let file = read_file(&mut cursor)?;
            if files.last().is_some_and(|last| last.number >= file.number) || file.number.get() >= next_file {
                return Err(at.corrupt("number", "numbers do not ascend, or reach the next file's"));
            }
            files.push(file);
        }
        Ok(Self { store_id, keep_versions, next_file, next_version, files })
    }
}

fn read_file(cursor: &mut Cursor<'_>) -> Result<File, DecodeError> {
    let at = cursor.clone();
    // The key directory takes 0 for none.
    let number = FileNumber::new(cursor.u32("number")?).filter(|number| number.get() > 0);
    let number = number.ok_or_else(|| at.corrupt("number", "not a number that files have"))?;
    let state_at = cursor.offset();
    let state = cursor.u32("state")?;
    let salt = cursor.u32("salt")?;
    let clean_at = cursor.clone();
    let clean_as_of = cursor.u64("clean as of")?;
    if clean_as_of > VERSION_MAX {
        return Err(clean_at.corrupt("clean as of", "no record has such a version"));
    }
    let data_bytes = cursor.u64("data bytes")?;
    let record_count = cursor.u64("record count")?;
    cursor.u32("reserved")?;
    let state = match state {
        0 => FileState::Open { durable_bytes: data_bytes },
        1 => FileState::Sealed { data_bytes, record_count },
        _ => return Err(DecodeError::unsupported("state", state_at, format!("state {state} is not known"))),
    };
    Ok(File { number, state, salt, clean_as_of })
}

#[cfg(test)]
mod tests;
