//! Blob files (`.blob`): large values, each under its user key, in the order in which they were written. Written once.
//!
//! | part    | bytes                                   | meaning                                                            |
//! |---------|----------------------------------------:|--------------------------------------------------------------------|
//! | header  | [`HEADER_BYTES`]                        | whose values, and how they are packed                              |
//! | records | [`RECORD_HEADER_BYTES`] + key + value   | any number, without gaps                                           |
//! | footer  | [`FOOTER_BYTES`]                        | how many; a file that was not finished has none                    |
//!
//! Header:
//!
//! | offset | bytes | field            | type   | meaning                                                            |
//! |-------:|------:|------------------|--------|--------------------------------------------------------------------|
//! |      0 |     4 | magic            | u32 LE | `0x00248f37`                                                       |
//! |      4 |     4 | version          | u32 LE | 1                                                                  |
//! |      8 |     4 | column family    | u32 LE | the one that owns the values                                       |
//! |     12 |     1 | flags            | u8     | bit 0: values expire (of an older engine, unsupported); others 0   |
//! |     13 |     1 | compression      | u8     | [`Compression`] of every value; its bytes are framed as a block's  |
//! |     14 |    16 | expiration range | 2 × u64 LE | 0, 0                                                           |
//!
//! Record:
//!
//! | offset | bytes | field            | type   | meaning                                                            |
//! |-------:|------:|------------------|--------|--------------------------------------------------------------------|
//! |      0 |     8 | key length       | u64 LE | of the user key                                                    |
//! |      8 |     8 | value length     | u64 LE | as stored: packed, if the file is                                  |
//! |     16 |     8 | expiration       | u64 LE | 0                                                                  |
//! |     24 |     4 | header CRC       | u32 LE | masked CRC-32C of the 24 bytes before                              |
//! |     28 |     4 | blob CRC         | u32 LE | masked CRC-32C of key and value                                    |
//! |     32 |       | key, value       |        |                                                                    |
//!
//! Footer:
//!
//! | offset | bytes | field            | type   | meaning                                                            |
//! |-------:|------:|------------------|--------|--------------------------------------------------------------------|
//! |      0 |     4 | magic            | u32 LE | `0x00248f37`                                                       |
//! |      4 |     8 | blob count       | u64 LE | records in the file                                                |
//! |     12 |    16 | expiration range | 2 × u64 LE | 0, 0                                                           |
//! |     28 |     4 | CRC              | u32 LE | masked CRC-32C of the 28 bytes before                              |
//!
//! [`BlobIndex`], the value of an entry of kind `0x11` in a table:
//!
//! | field       | type    | meaning                                                                                      |
//! |-------------|---------|----------------------------------------------------------------------------------------------|
//! | kind        | u8      | 1; 0 (a short value that expires) and 2 (a blob that expires) are unsupported                |
//! | file        | varint64 | number of the blob file; 0 would be the table itself, unsupported                           |
//! | offset      | varint64 | of the value, not of its record                                                             |
//! | bytes       | varint64 | of the value as stored                                                                      |
//! | compression | u8      | that of the file; without, it is a pointer of Titan's (`src/blob_format.h`), unsupported     |
//!
//! No checksum covers the header: whoever opens a file knows the column family, and every index knows the compression. That version and flags
//! are not as they were written, what follows tells, whose checksum holds ([`BlobFileHeader::decode_with_next`]).
//!
//! Source: RocksDB `db/blob/blob_log_format.h`, `db/blob/blob_index.h`, read by every release since 6.18.

pub mod holes;

use crate::checksum::{crc32c, crc32c_extend, mask};
use crate::compression::Compression;
use crate::cursor::Cursor;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::limits::FILE_NUMBER_MAX;
use crate::rocksdb::internal_key::FileNumber;
use crate::varint;

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 30;
/// Bytes of a record before its key.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Bytes after the last record.
pub const FOOTER_BYTES: usize = 32;
/// Bytes that tell what a file is: its header, and that of the first record or the footer.
pub const HEAD_BYTES: usize = HEADER_BYTES + RECORD_HEADER_BYTES;

const MAGIC: u32 = 0x0024_8f37;
const VERSION: u32 = 1;
const COMPRESSION_AT: usize = 13;
const FLAG_EXPIRES: u8 = 1;
/// The kind of index that is written.
const INDEX_KIND_BLOB: u8 = 1;

/// How many bytes of a file a record takes.
#[inline]
pub const fn record_bytes(key_bytes: u64, value_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64).saturating_add(key_bytes).saturating_add(value_bytes)
}

/// What the manifest counts for the record that `index` points to, both in the total of its file and as garbage: all
/// of it, header and key included.
#[inline]
pub const fn accounted_bytes(index: &BlobIndex, user_key_bytes: usize) -> u64 {
    record_bytes(user_key_bytes as u64, index.bytes)
}

/// The first bytes of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFileHeader {
    /// The column family that owns the values.
    pub column_family_id: u32,
    /// How every value of the file is packed.
    pub compression: Compression,
}

impl BlobFileHeader {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        tiled(&[
            &MAGIC.to_le_bytes(),
            &VERSION.to_le_bytes(),
            &self.column_family_id.to_le_bytes(),
            &[0, self.compression.as_u8()],
            &[0; 16],
        ])
    }

    /// Reads back what [`encode`](Self::encode) wrote, from the first [`HEADER_BYTES`] of `raw`.
    ///
    /// # Errors
    /// Corrupt if `raw` is shorter, the magic is another, or a file without expiring values has a range of expiration;
    /// unsupported for another version, flag or compression.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        check_magic(&mut cursor)?;
        let version = cursor.u32("version")?;
        if version != VERSION {
            return Err(DecodeError::unsupported("version", 4, format!("version {version} is not known")));
        }
        let column_family_id = cursor.u32("column family")?;
        let flags = cursor.u8("flags")?;
        if flags & FLAG_EXPIRES != 0 {
            return Err(DecodeError::unsupported("flags", 12, "blob files whose values expire are not supported"));
        }
        if flags != 0 {
            return Err(DecodeError::unsupported("flags", 12, format!("flags {flags:#04x} are not known")));
        }
        let compression =
            Compression::from_u8(cursor.u8("compression")?).map_err(|error| error.at_base(COMPRESSION_AT as u64))?;
        check_no_expiration_range(&mut cursor)?;
        Ok(Self { column_family_id, compression })
    }

    /// The same of what a file begins with, [`HEAD_BYTES`] or fewer: what follows the header tells a rotten byte from what a later version has. A
    /// rotten compression it does not tell: every [`BlobIndex`] has the right one.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); but corrupt where one byte makes it another version, or gives it flags, and a record or the footer follows as
    /// it does in this version.
    pub fn decode_with_next(raw: &[u8]) -> Result<Self, DecodeError> {
        let (header, next) = raw.split_at_checked(HEADER_BYTES).unwrap_or((raw, &[]));
        Self::decode(header).map_err(|error| {
            let is_rotten = is_followed_as_in_this_version(next) && Self::is_one_byte_off(header);
            if is_rotten { DecodeError { kind: DecodeErrorKind::Corrupt, ..error } } else { error }
        })
    }

    /// How values are packed by a header, `raw`, that is not as it should be elsewhere; `None` if that cannot be told.
    pub fn compression_in(raw: &[u8]) -> Option<Compression> {
        raw.get(COMPRESSION_AT).and_then(|kind| Compression::from_u8(*kind).ok())
    }

    /// Whether it is what is read here but for one byte of version and flags.
    fn is_one_byte_off(raw: &[u8]) -> bool {
        let written: Vec<u8> = raw.iter().enumerate().map(|(at, byte)| written_at(at).unwrap_or(*byte)).collect();
        let differing = raw.iter().zip(&written).filter(|(found, written)| found != written).count();
        differing == 1 && Self::decode(&written).is_ok()
    }
}

/// The byte of a header at `at`, if that is of its version or its flags.
fn written_at(at: usize) -> Option<u8> {
    match at {
        4..8 => VERSION.to_le_bytes().get(at - 4).copied(),
        12 => Some(0),
        _ => None,
    }
}

/// Whether what stands behind a header is a record that does not expire, or the footer of a file without any.
fn is_followed_as_in_this_version(next: &[u8]) -> bool {
    BlobRecordHeader::decode(next).is_ok() || BlobFooter::decode(next).is_ok_and(|footer| footer.blob_count == 0)
}

/// What stands before the key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRecordHeader {
    /// Length of the user key.
    pub key_bytes: u64,
    /// Length of the value as stored.
    pub value_bytes: u64,
    blob_crc: u32,
}

impl BlobRecordHeader {
    /// The header of a record of `key` and `value`, packed as the file says. Cost: one pass over both.
    pub fn of(key: &[u8], value: &[u8]) -> Self {
        Self { key_bytes: key.len() as u64, value_bytes: value.len() as u64, blob_crc: blob_crc(key, value) }
    }

    /// The bytes as they stand in the file.
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let lengths: [u8; 24] = tiled(&[&self.key_bytes.to_le_bytes(), &self.value_bytes.to_le_bytes(), &[0; 8]]);
        tiled(&[&lengths, &mask(crc32c(&lengths)).to_le_bytes(), &self.blob_crc.to_le_bytes()])
    }

    /// Reads back what [`encode`](Self::encode) wrote, from the first [`RECORD_HEADER_BYTES`] of `raw`.
    ///
    /// # Errors
    /// Corrupt if `raw` is shorter or its CRC is wrong; unsupported if the value expires.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        let checked = raw.get(..24).unwrap_or_default();
        let key_bytes = cursor.u64("key length")?;
        let value_bytes = cursor.u64("value length")?;
        let expiration = cursor.u64("expiration")?;
        check_crc("header CRC", 24, cursor.u32("header CRC")?, mask(crc32c(checked)))?;
        let blob_crc = cursor.u32("blob CRC")?;
        if expiration != 0 {
            return Err(DecodeError::unsupported("expiration", 16, "values that expire are not supported"));
        }
        Ok(Self { key_bytes, value_bytes, blob_crc })
    }

    /// Bytes of the whole record; `None` if they have no 64-bit number.
    pub fn record_bytes(&self) -> Option<u64> {
        (RECORD_HEADER_BYTES as u64).checked_add(self.key_bytes)?.checked_add(self.value_bytes)
    }

    /// Whether `key` and `value` are those that the record was written with.
    ///
    /// # Errors
    /// Corrupt if they are not as long as the header says or their CRC is another.
    pub fn check(&self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        if key.len() as u64 != self.key_bytes {
            return Err(DecodeError::corrupt("key length", 0, format!("{}, not {}", self.key_bytes, key.len())));
        }
        if value.len() as u64 != self.value_bytes {
            return Err(DecodeError::corrupt("value length", 8, format!("{}, not {}", self.value_bytes, value.len())));
        }
        check_crc("blob CRC", 28, self.blob_crc, blob_crc(key, value))
    }

    /// As [`check`](Self::check), of an unmasked CRC-32C over key and value: for values too large to hold.
    ///
    /// # Errors
    /// Corrupt if the CRC is another.
    pub fn check_crc(&self, crc: u32) -> Result<(), DecodeError> {
        check_crc("blob CRC", 28, self.blob_crc, mask(crc))
    }
}

/// The last bytes of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFooter {
    /// Records in the file.
    pub blob_count: u64,
}

impl BlobFooter {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let fields: [u8; 28] = tiled(&[&MAGIC.to_le_bytes(), &self.blob_count.to_le_bytes(), &[0; 16]]);
        tiled(&[&fields, &mask(crc32c(&fields)).to_le_bytes()])
    }

    /// Reads back what [`encode`](Self::encode) wrote, from the first [`FOOTER_BYTES`] of `raw`.
    ///
    /// # Errors
    /// Corrupt if `raw` is shorter, its magic or CRC is wrong, or it has a range of expiration.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        let checked = raw.get(..28).unwrap_or_default();
        check_magic(&mut cursor)?;
        let blob_count = cursor.u64("blob count")?;
        check_no_expiration_range(&mut cursor)?;
        check_crc("footer CRC", 28, cursor.u32("footer CRC")?, mask(crc32c(checked)))?;
        Ok(Self { blob_count })
    }
}

/// Where a value lies that is not in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlobIndex {
    /// The blob file.
    pub file: FileNumber,
    /// Of the value in that file, behind the header and the key of its record.
    pub offset: u64,
    /// Of the value as stored.
    pub bytes: u64,
    /// How it is packed: as all values of the file.
    pub compression: Compression,
}

impl BlobIndex {
    /// Longest encoding.
    pub const ENCODED_BYTES_MAX: usize = 2 + 3 * varint::VARINT64_BYTES_MAX;

    /// Appends the encoded index to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(INDEX_KIND_BLOB);
        varint::put_u64(out, self.file.get());
        varint::put_u64(out, self.offset);
        varint::put_u64(out, self.bytes);
        out.push(self.compression.as_u8());
    }

    /// Reads back what [`encode`](Self::encode) wrote: all of `raw`.
    ///
    /// # Errors
    /// Corrupt if a field is missing, something follows, or the kind is none; unsupported if the value expires, lies
    /// within the table or in a file of Titan's, or is packed in an unknown way.
    // Returned by way of memory, it would be copied in pieces that are not those it was written in, for which a processor waits.
    #[inline(always)]
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        Self::sound(raw).map_or_else(|| Self::decode_fields(raw), Ok)
    }

    /// The index, where nothing is wrong with it.
    #[inline(always)]
    fn sound(raw: &[u8]) -> Option<Self> {
        let (&kind, rest) = raw.split_first()?;
        let (file, len) = varint::get_u64(rest)?;
        let rest = rest.get(len..)?;
        let (offset, len) = varint::get_u64(rest)?;
        let rest = rest.get(len..)?;
        let (bytes, len) = varint::get_u64(rest)?;
        let &[compression] = rest.get(len..)? else { return None };
        let compression = Compression::supported(compression)?;
        let is_sound = kind == INDEX_KIND_BLOB && (1..=FILE_NUMBER_MAX).contains(&file);
        is_sound.then(|| Self { file: FileNumber::new(file), offset, bytes, compression })
    }

    /// The same, telling what is wrong.
    #[cold]
    fn decode_fields(raw: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        match cursor.u8("blob index kind")? {
            INDEX_KIND_BLOB => {}
            0 | 2 => {
                return Err(DecodeError::unsupported("blob index kind", 0, "values that expire are not supported"));
            }
            kind => return Err(DecodeError::corrupt("blob index kind", 0, format!("kind {kind} does not exist"))),
        }
        let file = match cursor.varint64("blob file number")? {
            0 => return Err(DecodeError::unsupported("blob file number", 1, "blobs within tables are not supported")),
            number if number > FILE_NUMBER_MAX => {
                return Err(DecodeError::corrupt("blob file number", 1, format!("{number} is too high")));
            }
            number => FileNumber::new(number),
        };
        let offset = cursor.varint64("blob offset")?;
        let bytes = cursor.varint64("blob length")?;
        let at = cursor.offset();
        if cursor.is_empty() {
            return Err(DecodeError::unsupported(
                "blob compression",
                at,
                "values in Titan's blob files are not supported",
            ));
        }
        let compression = Compression::from_u8(cursor.u8("blob compression")?).map_err(|error| error.at_base(at))?;
        if !cursor.is_empty() {
            return Err(cursor.corrupt("blob index", format!("{} bytes too many", cursor.rest().len())));
        }
        Ok(Self { file, offset, bytes, compression })
    }

    /// Where the record begins whose key has `user_key_bytes`; `None` if that is not behind a file's header.
    pub fn record_offset(&self, user_key_bytes: usize) -> Option<u64> {
        let before = (RECORD_HEADER_BYTES as u64).checked_add(user_key_bytes as u64)?;
        self.offset.checked_sub(before).filter(|&offset| offset >= HEADER_BYTES as u64)
    }
}

fn blob_crc(key: &[u8], value: &[u8]) -> u32 {
    mask(crc32c_extend(crc32c(key), value))
}

fn check_crc(field: &'static str, offset: u64, stored: u32, computed: u32) -> Result<(), DecodeError> {
    if stored != computed {
        return Err(DecodeError::corrupt(field, offset, format!("is {stored:#010x}, should be {computed:#010x}")));
    }
    Ok(())
}

fn check_magic(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    let offset = cursor.offset();
    let magic = cursor.u32("magic")?;
    if magic != MAGIC {
        return Err(DecodeError::corrupt("magic", offset, format!("{magic:#010x} is not that of a blob file")));
    }
    Ok(())
}

fn check_no_expiration_range(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    let offset = cursor.offset();
    let range = (cursor.u64("expiration range")?, cursor.u64("expiration range")?);
    if range != (0, 0) {
        return Err(DecodeError::corrupt("expiration range", offset, "not empty, though no value expires"));
    }
    Ok(())
}

/// The parts one after the other. They fill the array: the tests of the layouts say so.
fn tiled<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests;
