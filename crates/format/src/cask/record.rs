//! A record: one key and its value, or its deletion. Records follow the head of a data file without a gap.
//!
//! | offset | bytes | field       | type   | meaning                                                                   |
//! |-------:|------:|-------------|--------|---------------------------------------------------------------------------|
//! |      0 |     4 | crc         | u32 LE | CRC-32C, begun from the file's salt, of all of the record that follows     |
//! |      4 |     2 | key bytes   | u16 LE | length of the key                                                         |
//! |      6 |     1 | flags       | u8     | see below; never zero                                                     |
//! |      7 |     1 | compression | u8     | how the value is packed: [`Compression`]                                  |
//! |      8 |     4 | value bytes | u32 LE | length of the value as it is stored                                       |
//! |     12 |     8 | version     | u64 LE | orders the records of a key, whatever files they are in; 1 to 2^63 - 1    |
//! |     20 |     8 | expires at  | u64 LE | seconds since 1970 from which on the value is gone; only with `EXPIRES`   |
//! |        |       | key         | bytes  |                                                                           |
//! |        |       | value       | bytes  |                                                                           |
//!
//! | bit | flag        | meaning                                                                                |
//! |----:|-------------|----------------------------------------------------------------------------------------|
//! |   0 | `TOMBSTONE` | the key is deleted; no value, no expiry                                                |
//! |   1 | `EXPIRES`   | there is a field `expires at`                                                          |
//! |   2 | `CONTINUED` | the next record of the file belongs to the same batch: all of it counts, or nothing    |
//! |   7 | `RECORD`    | always set: the first eight bytes of a record are never all zeroes, which is what lies behind the last |
//!
//! A batch is so many records in a row, all but the last `CONTINUED`. A merge copies records one by one, without that flag:
//! by then the batch is known to be whole.

use super::data_file;
use crate::checksum::crc32c_extend;
use crate::compression::Compression;
use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::limits::TooLarge;

/// Bytes before the key, without an expiry.
pub const HEAD_BYTES: usize = 20;
/// Bytes before the key, at most.
pub const HEAD_BYTES_MAX: usize = HEAD_BYTES + 8;
/// Longest key: the width of its length.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Longest value as it is stored: the width of its length.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;
/// Highest version: what follows has so many more before they begin anew, and older records would win.
pub const VERSION_MAX: u64 = u64::MAX / 2;
/// Where the last record of a file may begin: the width of an offset in the key directory.
pub const OFFSET_MAX: u64 = u32::MAX as u64;
/// Where the first record begins.
pub const FIRST_OFFSET: u64 = data_file::HEADER_BYTES as u64;

const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const CONTINUED: u8 = 1 << 2;
const RECORD: u8 = 1 << 7;

/// One key and its value, or its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Orders the records of a key. From 1 to [`VERSION_MAX`].
    pub version: u64,
    /// Whether the key is deleted; then there is no value and no expiry.
    pub is_tombstone: bool,
    /// Whether the next record belongs to the same batch.
    pub is_continued: bool,
    /// Seconds since 1970 from which on the value is gone.
    pub expires_at: Option<u64>,
    /// How the value is packed.
    pub compression: Compression,
    /// At most [`KEY_BYTES_MAX`].
    pub key: &'a [u8],
    /// As it is stored. At most [`VALUE_BYTES_MAX`].
    pub value: &'a [u8],
}

/// Everything before the key, ready for the file: the first `len` bytes of an array.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Head {
    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// How many bytes of a file a record takes.
#[inline]
pub const fn record_bytes(key_bytes: usize, value_bytes: usize, has_expiry: bool) -> u64 {
    let head = if has_expiry { HEAD_BYTES_MAX } else { HEAD_BYTES };
    (head as u64).saturating_add(key_bytes as u64).saturating_add(value_bytes as u64)
}

/// The lengths that a record's head says, from its first [`HEAD_BYTES`] bytes alone: for whoever has yet to read the rest.
/// `None` if no record begins like this.
#[inline]
pub fn peek_bytes(raw: &[u8]) -> Option<u64> {
    let (head, _) = raw.split_first_chunk::<HEAD_BYTES>()?;
    let [_, _, _, _, k0, k1, flags, _, v0, v1, v2, v3, ..] = *head;
    if !flags_are_known(flags) {
        return None;
    }
    let key_bytes = u16::from_le_bytes([k0, k1]);
    let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]);
    Some(record_bytes(usize::from(key_bytes), value_bytes as usize, flags & EXPIRES != 0))
}

#[inline]
const fn flags_are_known(flags: u8) -> bool {
    let known = TOMBSTONE | EXPIRES | CONTINUED | RECORD;
    flags & RECORD != 0 && flags & !known == 0 && flags & (TOMBSTONE | EXPIRES) != (TOMBSTONE | EXPIRES)
}

impl<'a> Record<'a> {
    /// How many bytes of a file it takes.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        record_bytes(self.key.len(), self.value.len(), self.expires_at.is_some())
    }

    /// What goes before key and value, with the CRC of all three. Cost: one pass over key and value.
    ///
    /// # Errors
    /// Key or value are longer than their fields can say.
    #[inline]
    pub fn head(&self, salt: u32) -> Result<Head, TooLarge> {
        TooLarge::check("key", self.key.len(), KEY_BYTES_MAX)?;
        TooLarge::check("value", self.value.len(), VALUE_BYTES_MAX)?;
        let mut flags = RECORD;
        flags |= if self.is_tombstone { TOMBSTONE } else { 0 };
        flags |= if self.is_continued { CONTINUED } else { 0 };
        flags |= if self.expires_at.is_some() { EXPIRES } else { 0 };
        let [k0, k1] = (self.key.len() as u16).to_le_bytes();
        let [v0, v1, v2, v3] = (self.value.len() as u32).to_le_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.version.to_le_bytes();
        let [e0, e1, e2, e3, e4, e5, e6, e7] = self.expires_at.unwrap_or(0).to_le_bytes();
        let mut bytes = [
            0,
            0,
            0,
            0,
            k0,
            k1,
            flags,
            self.compression.as_u8(),
            v0,
            v1,
            v2,
            v3,
            n0,
            n1,
            n2,
            n3,
            n4,
            n5,
            n6,
            n7, //
            e0,
            e1,
            e2,
            e3,
            e4,
            e5,
            e6,
            e7,
        ];
        let len = if self.expires_at.is_some() { HEAD_BYTES_MAX } else { HEAD_BYTES };
        let (_, checked) = bytes.split_at(4);
        let parts = [checked.get(..len - 4).unwrap_or(checked), self.key, self.value];
        let crc = parts.iter().fold(salt, |crc, part| crc32c_extend(crc, part));
        if let Some(place) = bytes.first_chunk_mut::<4>() {
            *place = crc.to_le_bytes();
        }
        Ok(Head { bytes, len })
    }

    /// Appends the whole record. For tests and small tools; the engine appends head, key and value without joining them.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn encode(&self, salt: u32, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        let head = self.head(salt)?;
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Ok(())
    }

    /// The record at the start of `raw`. Says nothing of its CRC: that is [`checksum_holds`]. Total, allocates nothing.
    ///
    /// # Errors
    /// Corrupt if `raw` ends within it, or no writer sets such fields; unsupported for a compression that is not known.
    #[inline]
    pub fn decode(raw: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((head, rest)) = raw.split_first_chunk::<HEAD_BYTES>() else {
            return Err(DecodeError::corrupt("head", 0, "the file ends within it"));
        };
        let [_, _, _, _, k0, k1, flags, packing, v0, v1, v2, v3, n0, n1, n2, n3, n4, n5, n6, n7] = *head;
        if !flags_are_known(flags) {
            return Err(DecodeError::corrupt("flags", 6, "no record has such flags"));
        }
        let version = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        if !is_version(version) {
            return Err(DecodeError::corrupt("version", 12, "no record has such a version"));
        }
        let compression = if packing == 0 { Compression::None } else { unpacked_by(packing)? };
        let (expires_at, rest) = if flags & EXPIRES == 0 { (None, rest) } else { expiry(rest)? };
        let key_bytes = usize::from(u16::from_le_bytes([k0, k1]));
        let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let Some((key, rest)) = rest.split_at_checked(key_bytes) else {
            return Err(DecodeError::corrupt("key bytes", 4, "the file ends within the key"));
        };
        let Some(value) = rest.get(..value_bytes) else {
            return Err(DecodeError::corrupt("value bytes", 8, "the file ends within the value"));
        };
        let is_tombstone = flags & TOMBSTONE != 0;
        if is_tombstone && value_bytes != 0 {
            return Err(DecodeError::corrupt("value bytes", 8, "a deletion has a value"));
        }
        let is_continued = flags & CONTINUED != 0;
        Ok(Self { version, is_tombstone, is_continued, expires_at, compression, key, value })
    }

    /// What [`decode`](Self::decode) makes of `raw`, if that is one whole record of `key` with a value that is not packed and does not expire.
    /// `None` says nothing.
    ///
    /// Cost: two comparisons, where `decode` goes through the fields. What is compared with, and where key and value lie, the lengths of
    /// `raw` and `key` say, so a processor that still waits for the record's memory can go on with what comes behind.
    #[inline(always)]
    pub fn plain_of(raw: &'a [u8], key: &[u8]) -> Option<Self> {
        let (head, rest) = raw.split_first_chunk::<HEAD_BYTES>()?;
        let (own_key, value) = rest.split_at_checked(key.len())?;
        let (_crc, fields) = head.split_first_chunk::<4>()?;
        let (lengths, version) = fields.split_first_chunk::<8>()?;
        let [k0, k1] = u16::try_from(key.len()).ok()?.to_le_bytes();
        let [v0, v1, v2, v3] = u32::try_from(value.len()).ok()?.to_le_bytes();
        let wanted = u64::from_le_bytes([k0, k1, RECORD, 0, v0, v1, v2, v3]);
        let continued = u64::from_le_bytes([0, 0, CONTINUED, 0, 0, 0, 0, 0]);
        let found = u64::from_le_bytes(*lengths);
        let version = u64::from_le_bytes(*version.first_chunk()?);
        if found & !continued != wanted || !is_version(version) || !is_same(own_key, key) {
            return None;
        }
        let is_continued = found & continued != 0;
        let (is_tombstone, expires_at, compression) = (false, None, Compression::None);
        Some(Self { version, is_tombstone, is_continued, expires_at, compression, key: own_key, value })
    }

    /// Whether the value is gone at `now` (seconds since 1970).
    #[inline]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Whether two keys of one length are the same. Those of 16 to 32 bytes are compared here: a call would take longer.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    const PIECE: usize = size_of::<u128>();
    match (one.first_chunk::<PIECE>(), other.first_chunk::<PIECE>(), one.last_chunk(), other.last_chunk()) {
        (Some(first), Some(other_first), Some::<&[u8; PIECE]>(last), Some(other_last)) if one.len() <= 2 * PIECE => {
            (first == other_first) & (last == other_last) & (one.len() == other.len())
        }
        _ => one == other,
    }
}

#[cold]
fn unpacked_by(byte: u8) -> Result<Compression, DecodeError> {
    Compression::from_u8(byte).map_err(|error| error.at_base(7))
}

fn expiry(rest: &[u8]) -> Result<(Option<u64>, &[u8]), DecodeError> {
    let mut cursor = Cursor::new(rest);
    let at = cursor.u64("expires at").map_err(|error| error.at_base(HEAD_BYTES as u64))?;
    Ok((Some(at), cursor.rest()))
}

/// Whether `raw`, which is one record and nothing else, is what was written to the file with this salt. Cost: one pass.
#[inline]
pub fn checksum_holds(raw: &[u8], salt: u32) -> bool {
    raw.split_first_chunk::<4>().is_some_and(|(crc, rest)| crc32c_extend(salt, rest) == u32::from_le_bytes(*crc))
}

/// The same of a record in two parts, the first of which has its CRC.
pub fn checksum_of_parts_holds(front: &[u8], behind: &[u8], salt: u32) -> bool {
    front
        .split_first_chunk::<4>()
        .is_some_and(|(crc, rest)| crc32c_extend(crc32c_extend(salt, rest), behind) == u32::from_le_bytes(*crc))
}

/// Whether a record may have this version.
#[inline]
pub(super) const fn is_version(version: u64) -> bool {
    version.wrapping_sub(1) < VERSION_MAX
}

#[cfg(test)]
mod tests;
