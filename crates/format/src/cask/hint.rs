//! A hint file: the keys of a data file that changes no more, so that a store opens without reading values.
//!
//! Blocks, one after the other, and a footer. A block:
//!
//! | offset | bytes | field         | type   | meaning                                                      |
//! |-------:|------:|---------------|--------|--------------------------------------------------------------|
//! |      0 |     4 | crc           | u32 LE | CRC-32C, begun from the data file's salt, of the rest        |
//! |      4 |     4 | payload bytes | u32 LE | length of the payload                                        |
//! |      8 |     8 | first offset  | u64 LE | where the first record that it names begins in the data file |
//! |     16 |     8 | first version | u64 LE | what the first entry's version is counted from               |
//! |     24 |       | payload       |        | entries                                                      |
//!
//! An entry stands for each record of the data file, in order, live or dead (who lives is for the open to say: what
//! superseded a record may itself be lost in a crash):
//!
//! | field        | type   | meaning                                                                                  |
//! |--------------|--------|------------------------------------------------------------------------------------------|
//! | flags        | u8     | 1: tombstone; 2: there is a gap; 4: it expires                                           |
//! | gap          | varint | only with flag 2: bytes of the data file between the record before and this one (damage) |
//! | record bytes | varint | how many bytes of the data file the record takes                                         |
//! | version      | varint | difference to the entry before, zigzag                                                   |
//! | expires at   | varint | only with flag 4                                                                         |
//! | key          | varint length, bytes |                                                                            |
//!
//! The footer:
//!
//! | offset | bytes | field          | type   | meaning                                               |
//! |-------:|------:|----------------|--------|-------------------------------------------------------|
//! |      0 |     8 | magic          | bytes  | `eskrhint`                                            |
//! |      8 |     2 | format version | u16 LE | 1                                                     |
//! |     10 |     2 | reserved       | u16 LE | 0                                                     |
//! |     12 |     4 | number         | u32 LE | the data file's                                       |
//! |     16 |     4 | salt           | u32 LE | the data file's                                       |
//! |     20 |     8 | data bytes     | u64 LE | length of the data file                               |
//! |     28 |     8 | record count   | u64 LE | entries in all blocks                                 |
//! |     36 |     8 | block bytes    | u64 LE | length of all blocks                                  |
//! |     44 |     4 | crc            | u32 LE | CRC-32C of the 44 bytes before                        |

use super::{FileNumber, check_magic, check_version, record};
use crate::checksum::{crc32c, crc32c_extend};
use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::varint;

/// Bytes after the last block.
pub const FOOTER_BYTES: usize = 48;
/// Bytes of a block before its payload.
pub const BLOCK_HEAD_BYTES: usize = 24;
/// A block is closed once its payload is this long. Small enough to be searched from its start.
pub const BLOCK_PAYLOAD_BYTES: usize = 4 << 10;
/// The longest payload: an entry with the longest key begins just before a block would be closed.
pub const BLOCK_PAYLOAD_BYTES_MAX: usize = BLOCK_PAYLOAD_BYTES + record::KEY_BYTES_MAX + 64;

const MAGIC: [u8; 8] = *b"eskrhint";
const VERSION: u16 = 1;
const CRC_OFFSET: usize = 44;
const TOMBSTONE: u8 = 1;
const GAP: u8 = 2;
const EXPIRES: u8 = 4;

/// What a hint says of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where the record begins in the data file.
    pub offset: u64,
    /// How many bytes it takes there.
    pub record_bytes: u64,
    /// Its version.
    pub version: u64,
    /// Whether it deletes the key.
    pub is_tombstone: bool,
    /// Seconds since 1970 from which on its value is gone.
    pub expires_at: Option<u64>,
    /// Its key.
    pub key: &'a [u8],
}

/// The end of a hint file, and what it says of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The data file's number.
    pub number: FileNumber,
    /// The data file's salt.
    pub salt: u32,
    /// The data file's length.
    pub data_bytes: u64,
    /// How many records it has.
    pub record_count: u64,
    /// Length of all blocks.
    pub block_bytes: u64,
}

impl Footer {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&self.number.get().to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.record_count.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads back what [`encode`](Self::encode) wrote, from the last [`FOOTER_BYTES`] of the file `raw`.
    ///
    /// # Errors
    /// Corrupt if it does not check out or the file has another length than it says; unsupported for another version.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let Some((blocks, footer)) = raw.split_last_chunk::<FOOTER_BYTES>() else {
            return Err(DecodeError::corrupt("footer", 0, "the file is shorter"));
        };
        Self::decode_alone(footer, blocks.len() as u64).map_err(|error| error.at_base(blocks.len() as u64))
    }

    fn decode_alone(raw: &[u8], blocks: u64) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        check_magic(&mut cursor, MAGIC)?;
        check_version(&mut cursor, VERSION)?;
        cursor.u16("reserved")?;
        let number = cursor.u32("number")?;
        let salt = cursor.u32("salt")?;
        let data_bytes = cursor.u64("data bytes")?;
        let record_count = cursor.u64("record count")?;
        let at = cursor.clone();
        let block_bytes = cursor.u64("block bytes")?;
        if raw.get(..CRC_OFFSET).map(crc32c) != Some(cursor.clone().u32("crc")?) {
            return Err(cursor.corrupt("crc", "the footer does not check out"));
        }
        let Some(number) = FileNumber::new(number) else {
            return Err(DecodeError::corrupt("number", 12, "is too high"));
        };
        if block_bytes != blocks {
            return Err(at.corrupt("block bytes", format!("{block_bytes}, but {blocks} bytes come before the footer")));
        }
        Ok(Self { number, salt, data_bytes, record_count, block_bytes })
    }
}

/// Frames entries into blocks.
#[derive(Debug)]
pub struct Builder {
    salt: u32,
    /// Where the record after the last one would begin.
    next_offset: u64,
    last_version: u64,
    record_count: u64,
    block_bytes: u64,
    /// The block that is being filled: its head, still zeroes, and what there is of its payload.
    open: Vec<u8>,
    first_offset: u64,
    first_version: u64,
}

impl Builder {
    /// For the data file with this salt.
    pub fn new(salt: u32) -> Self {
        Self {
            salt,
            next_offset: record::FIRST_OFFSET,
            last_version: 0,
            record_count: 0,
            block_bytes: 0,
            open: Vec::new(),
            first_offset: 0,
            first_version: 0,
        }
    }

    /// Adds the next record of the data file; whole blocks go to `out`. Offsets ascend.
    pub fn add(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        if self.open.is_empty() {
            self.open.resize(BLOCK_HEAD_BYTES, 0);
            self.first_offset = entry.offset;
            self.first_version = entry.version;
            self.next_offset = entry.offset;
            self.last_version = entry.version;
        }
        let gap = entry.offset.saturating_sub(self.next_offset);
        let tombstone = if entry.is_tombstone { TOMBSTONE } else { 0 };
        let expires = if entry.expires_at.is_some() { EXPIRES } else { 0 };
        self.open.push(tombstone | expires | if gap > 0 { GAP } else { 0 });
        if gap > 0 {
            varint::put_u64(&mut self.open, gap);
        }
        varint::put_u64(&mut self.open, entry.record_bytes);
        varint::put_u64(&mut self.open, zigzag(entry.version.wrapping_sub(self.last_version)));
        if let Some(expires_at) = entry.expires_at {
            varint::put_u64(&mut self.open, expires_at);
        }
        varint::put_prefixed(&mut self.open, entry.key);
        self.next_offset = entry.offset.saturating_add(entry.record_bytes);
        self.last_version = entry.version;
        self.record_count += 1;
        if self.open.len() >= BLOCK_HEAD_BYTES + BLOCK_PAYLOAD_BYTES {
            self.close_block(out);
        }
    }

    fn close_block(&mut self, out: &mut Vec<u8>) {
        if self.open.is_empty() {
            return;
        }
        let payload_bytes = (self.open.len() - BLOCK_HEAD_BYTES) as u32;
        let mut head = Vec::with_capacity(BLOCK_HEAD_BYTES);
        head.extend_from_slice(&payload_bytes.to_le_bytes());
        head.extend_from_slice(&self.first_offset.to_le_bytes());
        head.extend_from_slice(&self.first_version.to_le_bytes());
        let payload = self.open.get(BLOCK_HEAD_BYTES..).unwrap_or_default();
        let crc = crc32c_extend(crc32c_extend(self.salt, &head), payload);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        self.block_bytes += self.open.len() as u64;
        self.open.clear();
    }

    /// The last block and the footer go to `out`, for a data file of that number and length.
    pub fn finish(mut self, number: FileNumber, data_bytes: u64, out: &mut Vec<u8>) -> Footer {
        self.close_block(out);
        let (record_count, block_bytes) = (self.record_count, self.block_bytes);
        let footer = Footer { number, salt: self.salt, data_bytes, record_count, block_bytes };
        out.extend_from_slice(&footer.encode());
        footer
    }
}

const fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

const fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// A block whose CRC holds.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Where the first record that it names begins in the data file.
    pub first_offset: u64,
    first_version: u64,
    payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// The block at the start of `raw`, the blocks of a hint file from there on, and how many bytes it takes.
    ///
    /// # Errors
    /// Corrupt if `raw` ends within it or it does not check out.
    pub fn decode(raw: &'a [u8], salt: u32) -> Result<(Self, usize), DecodeError> {
        let mut cursor = Cursor::new(raw);
        let crc = cursor.u32("crc")?;
        let checked = cursor.rest();
        let at = cursor.clone();
        let payload_bytes = cursor.u32("payload bytes")? as usize;
        if payload_bytes > BLOCK_PAYLOAD_BYTES_MAX {
            return Err(at.corrupt("payload bytes", "more than any writer puts into a block"));
        }
        let first_offset = cursor.u64("first offset")?;
        let first_version = cursor.u64("first version")?;
        let payload = cursor.bytes("payload", payload_bytes)?;
        let whole = checked.get(..BLOCK_HEAD_BYTES - 4 + payload_bytes).unwrap_or(checked);
        if crc32c_extend(salt, whole) != crc {
            return Err(DecodeError::corrupt("crc", 0, "the block does not check out"));
        }
        Ok((Self { first_offset, first_version, payload }, BLOCK_HEAD_BYTES + payload_bytes))
    }

    /// Its entries, in order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { cursor: Cursor::new(self.payload), next_offset: self.first_offset, version: self.first_version }
    }
}

/// The entries of a block. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    cursor: Cursor<'a>,
    next_offset: u64,
    version: u64,
}

/// Where an iteration over the entries of a hint stands: for whoever comes back to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Where the record of the entry before ends in the data file.
    pub offset: u64,
    /// What the next entry's version is counted from.
    pub version: u64,
    /// Bytes of the block that are left.
    pub bytes_left: usize,
}

impl<'a> Entries<'a> {
    /// Where it stands: in front of the next entry.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { offset: self.next_offset, version: self.version, bytes_left: self.cursor.rest().len() }
    }

    /// The entries from `mark` on; `rest` is what was left of the block. Total, like every decoding: other bytes give other
    /// entries or an error.
    #[inline]
    pub fn from_mark(mark: Mark, rest: &'a [u8]) -> Self {
        Self { cursor: Cursor::new(rest), next_offset: mark.offset, version: mark.version }
    }

    #[inline]
    fn read(&mut self) -> Result<Entry<'a>, DecodeError> {
        let cursor = &mut self.cursor;
        let flags = cursor.u8("flags")?;
        if flags & !(TOMBSTONE | GAP | EXPIRES) != 0 {
            return Err(cursor.corrupt("flags", "not known"));
        }
        let gap = if flags & GAP == 0 { 0 } else { cursor.varint64("gap")? };
        let record_bytes = cursor.varint64("record bytes")?;
        self.version = self.version.wrapping_add(unzigzag(cursor.varint64("version")?));
        if !record::is_version(self.version) {
            return Err(cursor.corrupt("version", "no record has such a version"));
        }
        let expires_at = if flags & EXPIRES == 0 { None } else { Some(cursor.varint64("expires at")?) };
        let key = cursor.prefixed("key")?;
        let end =
            self.next_offset.checked_add(gap).and_then(|offset| Some((offset, offset.checked_add(record_bytes)?)));
        let Some((offset, next)) = end else {
            return Err(cursor.corrupt("record bytes", "beyond 64 bits"));
        };
        self.next_offset = next;
        Ok(Entry { offset, record_bytes, version: self.version, is_tombstone: flags & TOMBSTONE != 0, expires_at, key })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.cursor = Cursor::new(&[]);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
