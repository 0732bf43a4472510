//! Write batches: operations that take effect together. What a log holds, and what a batch in memory is.
//!
//! | offset | bytes | field    | type      | meaning                                                        |
//! |-------:|------:|----------|-----------|----------------------------------------------------------------|
//! |      0 |     8 | sequence | u64 LE    | sequence number of the first operation                         |
//! |      8 |     4 | count    | u32 LE    | operations; each but notes and markers takes a sequence number |
//! |     12 |     1 | kind     | u8        | [`ValueKind`]: that of an internal key, or its `ColumnFamily…` twin |
//! |        |   1–5 | family   | varint32  | only in the twins; without, it is column family 0              |
//! |        |       | key      | prefixed  | varint length, then the bytes                                  |
//! |        |       | value    | prefixed  | not in deletions of one key                                    |
//! |        |       | …        |           | kind to value again, until the batch ends                      |
//!
//! In a range deletion the key is where it begins and the value where it ends. A note (`LogData`) has a key alone, the
//! markers of transactions have the transaction's name or nothing for a key. Neither counts.
//!
//! Source: RocksDB `db/write_batch.cc`.

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::limits::{BATCH_BYTES_MAX, BATCH_COUNT_MAX, KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use crate::rocksdb::internal_key::{SequenceNumber, ValueKind};
use crate::varint;

pub use crate::limits::TooLarge;

/// Sequence and count.
pub const HEADER_BYTES: usize = 12;

const COUNT_OFFSET: usize = 8;

/// The first bytes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The sequence number of its first operation.
    pub sequence: SequenceNumber,
    /// How many operations it says it has.
    pub count: u32,
}

/// Reads the first bytes of a batch.
///
/// # Errors
/// Corrupt if they are missing, or the sequence number is wider than its 56 bits.
pub fn header(bytes: &[u8]) -> Result<Header, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let sequence = cursor.u64("sequence")?;
    if sequence > SEQUENCE_MAX {
        return Err(DecodeError::corrupt("sequence", 0, format!("{sequence} is wider than 56 bits")));
    }
    Ok(Header { sequence: SequenceNumber::new(sequence), count: cursor.u32("count")? })
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The column family.
    pub cf: u32,
    /// What it does. Never one of the `ColumnFamily…` kinds: those become the kind that they name.
    pub kind: ValueKind,
    /// Its key, where a range begins, a note, or a transaction's name.
    pub key: &'a [u8],
    /// Its value, a merge operand, where a range ends, or nothing.
    pub value: &'a [u8],
}

impl Record<'_> {
    /// Whether it takes a sequence number: notes and the markers of transactions do not.
    pub const fn is_counted(&self) -> bool {
        self.kind.is_in_tables()
    }
}

/// The operations of a batch, in order. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
}

/// The operations of the batch `bytes`, header included.
pub fn records(bytes: &[u8]) -> Records<'_> {
    let mut cursor = Cursor::new(bytes);
    // If even the header is short, the rest of it is no record either: `next` says so.
    let _ = cursor.bytes("header", HEADER_BYTES);
    Records { cursor }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.offset() < HEADER_BYTES as u64 {
            let left = std::mem::replace(&mut self.cursor, ended()).rest().len();
            return (left > 0).then(|| Err(DecodeError::corrupt("header", 0, format!("{left} bytes, 12 are needed"))));
        }
        if self.cursor.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.cursor = ended();
        }
        Some(record)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

const fn ended() -> Cursor<'static> {
    Cursor::new(&[])
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Result<Record<'a>, DecodeError> {
        let cursor = &mut self.cursor;
        let offset = cursor.offset();
        let byte = cursor.u8("kind")?;
        let known = ValueKind::from_u8(byte).filter(|&kind| kind != ValueKind::DeletionWithTimestamp);
        let Some((kind, shape, named)) = known.map(layout) else {
            return Err(unknown_kind(byte, offset));
        };
        let cf = if named { cursor.varint32("family")? } else { 0 };
        let (key, value): (&[u8], &[u8]) = match shape {
            Shape::Nothing => (&[], &[]),
            Shape::Key => (cursor.prefixed("key")?, &[]),
            Shape::KeyValue => (cursor.prefixed("key")?, cursor.prefixed("value")?),
            Shape::ValueKey => {
                let value = cursor.prefixed("timestamp")?;
                (cursor.prefixed("key")?, value)
            }
        };
        Ok(Record { cf, kind, key, value })
    }
}

#[cold]
fn unknown_kind(byte: u8, offset: u64) -> DecodeError {
    match byte {
        0..0x80 => DecodeError::unsupported("kind", offset, format!("kind {byte:#x} is not known")),
        _ => DecodeError::corrupt("kind", offset, format!("no operation has kind {byte:#x}")),
    }
}

/// What follows the kind and the family.
#[derive(Clone, Copy)]
enum Shape {
    Nothing,
    Key,
    KeyValue,
    ValueKey,
}

/// The kind without its family, what follows, and whether the family is named.
#[inline]
const fn layout(kind: ValueKind) -> (ValueKind, Shape, bool) {
    use ValueKind as K;
    match kind {
        K::Deletion | K::SingleDeletion | K::LogData | K::EndPrepare | K::Commit | K::Rollback => {
            (kind, Shape::Key, false)
        }
        K::Value | K::Merge | K::RangeDeletion | K::BlobIndex | K::WideColumnEntity | K::ValuePreferredSequence => {
            (kind, Shape::KeyValue, false)
        }
        K::ColumnFamilyDeletion => (K::Deletion, Shape::Key, true),
        K::ColumnFamilyValue => (K::Value, Shape::KeyValue, true),
        K::ColumnFamilyMerge => (K::Merge, Shape::KeyValue, true),
        K::ColumnFamilySingleDeletion => (K::SingleDeletion, Shape::Key, true),
        K::ColumnFamilyRangeDeletion => (K::RangeDeletion, Shape::KeyValue, true),
        K::ColumnFamilyBlobIndex => (K::BlobIndex, Shape::KeyValue, true),
        K::ColumnFamilyWideColumnEntity => (K::WideColumnEntity, Shape::KeyValue, true),
        K::ColumnFamilyValuePreferredSequence => (K::ValuePreferredSequence, Shape::KeyValue, true),
        K::BeginPrepare | K::Noop | K::BeginPersistedPrepare | K::BeginUnprepare => (kind, Shape::Nothing, false),
        K::CommitWithTimestamp => (kind, Shape::ValueKey, false),
        // Batches hold these as plain deletions, with the timestamp in the key: see `read`.
        K::DeletionWithTimestamp => (K::Deletion, Shape::Key, false),
    }
}

/// How much a batch had in it at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    len_bytes: usize,
    count: u32,
}

/// A batch, as the bytes that a log will hold. Appending to it is writing those bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBatch {
    bytes: Vec<u8>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// Without operations, at sequence number 0.
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES] }
    }

    /// As [`new`](Self::new), with room for `capacity_bytes` of operations.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES.saturating_add(capacity_bytes));
        bytes.resize(HEADER_BYTES, 0);
        Self { bytes }
    }

    /// Takes over `bytes`, having read every operation.
    ///
    /// # Errors
    /// Corrupt if an operation does not decode or there are not as many as the header says; unsupported if RocksDB may have added its kind.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        let expected = header(&bytes)?.count;
        let mut count = 0u64;
        for record in records(&bytes) {
            count += u64::from(record?.is_counted());
        }
        if count != u64::from(expected) {
            let offset = COUNT_OFFSET as u64;
            return Err(DecodeError::corrupt("count", offset, format!("{expected} operations, {count} are there")));
        }
        Ok(Self { bytes })
    }

    /// The operations, in order.
    pub fn records(&self) -> Records<'_> {
        records(&self.bytes)
    }

    /// The batch as a log holds it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How long [`bytes`](Self::bytes) is.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many operations it has, notes not counted.
    pub fn count(&self) -> u32 {
        self.bytes.get(COUNT_OFFSET..HEADER_BYTES).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    /// Whether it has nothing in it, not even a note.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() <= HEADER_BYTES
    }

    /// Takes everything out, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
    }

    /// How much there is.
    pub fn mark(&self) -> Mark {
        Mark { len_bytes: self.bytes.len(), count: self.count() }
    }

    /// Takes out what came since it was as `mark` says. One that is not of this batch, or of more than there is, changes nothing or leaves
    /// something that does not decode.
    pub fn rewind(&mut self, mark: Mark) {
        if (HEADER_BYTES..self.bytes.len()).contains(&mark.len_bytes) {
            self.bytes.truncate(mark.len_bytes);
            self.set_count(mark.count);
        }
    }

    /// The sequence number of the first operation.
    pub fn sequence(&self) -> SequenceNumber {
        SequenceNumber::new(self.bytes.first_chunk().copied().map_or(0, u64::from_le_bytes))
    }

    /// Sets the sequence number of the first operation; the others follow.
    pub fn set_sequence(&mut self, sequence: SequenceNumber) {
        if let Some(field) = self.bytes.first_chunk_mut() {
            *field = sequence.get().to_le_bytes();
        }
    }

    fn set_count(&mut self, count: u32) {
        if let Some(field) = self.bytes.get_mut(COUNT_OFFSET..HEADER_BYTES) {
            field.copy_from_slice(&count.to_le_bytes());
        }
    }

    /// Sets `key` to `value` in column family `cf`.
    ///
    /// # Errors
    /// The key or value is longer than may be written, or the batch is full; it is as before.
    #[inline]
    pub fn put(&mut self, cf: u32, key: &[u8], value: &[u8]) -> Result<(), TooLarge> {
        self.add(ValueKind::Value, ValueKind::ColumnFamilyValue, cf, key, Some(value))
    }

    /// Sets `key` to a value in a blob file.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_blob_index(&mut self, cf: u32, key: &[u8], index: &[u8]) -> Result<(), TooLarge> {
        self.add(ValueKind::BlobIndex, ValueKind::ColumnFamilyBlobIndex, cf, key, Some(index))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn delete(&mut self, cf: u32, key: &[u8]) -> Result<(), TooLarge> {
        self.add(ValueKind::Deletion, ValueKind::ColumnFamilyDeletion, cf, key, None)
    }

    /// Removes `key`, which was set once since it was last removed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn single_delete(&mut self, cf: u32, key: &[u8]) -> Result<(), TooLarge> {
        self.add(ValueKind::SingleDeletion, ValueKind::ColumnFamilySingleDeletion, cf, key, None)
    }

    /// Removes all keys from `begin` up to and without `end`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range(&mut self, cf: u32, begin: &[u8], end: &[u8]) -> Result<(), TooLarge> {
        TooLarge::check("key", end.len(), KEY_BYTES_MAX)?;
        self.add(ValueKind::RangeDeletion, ValueKind::ColumnFamilyRangeDeletion, cf, begin, Some(end))
    }

    /// Merges `operand` into the value of `key`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn merge(&mut self, cf: u32, key: &[u8], operand: &[u8]) -> Result<(), TooLarge> {
        self.add(ValueKind::Merge, ValueKind::ColumnFamilyMerge, cf, key, Some(operand))
    }

    /// Adds a note, for whoever reads the log. It is no operation.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_log_data(&mut self, note: &[u8]) -> Result<(), TooLarge> {
        TooLarge::check("note", note.len(), VALUE_BYTES_MAX)?;
        self.check_room(1 + varint::VARINT32_BYTES_MAX + note.len())?;
        self.bytes.push(ValueKind::LogData.as_u8());
        varint::put_prefixed(&mut self.bytes, note);
        Ok(())
    }

    /// Adds everything in `other` at the end.
    ///
    /// # Errors
    /// Together they are too many or too long; it is as before.
    pub fn append(&mut self, other: &Self) -> Result<(), TooLarge> {
        let added = other.bytes.get(HEADER_BYTES..).unwrap_or_default();
        self.check_room(added.len())?;
        let count = self.count_after(other.count())?;
        self.bytes.extend_from_slice(added);
        self.set_count(count);
        Ok(())
    }

    /// Replaces `out` by the same operations, with pointers into blob files for some of the values: `pointer` is asked of each
    /// record, notes included, by its place among them, and gives the encoded index if the value lies elsewhere.
    ///
    /// Cost: a copy of what stays; values that lie elsewhere are passed over.
    ///
    /// # Errors
    /// The pointers are so much longer than the values that the batch is full; `out` is then useless.
    pub fn point<'p>(
        &self,
        out: &mut Self,
        mut pointer: impl FnMut(usize) -> Option<&'p [u8]>,
    ) -> Result<(), TooLarge> {
        out.clear();
        let mut records = self.records();
        // What was passed and not copied yet begins here.
        let mut from = HEADER_BYTES;
        let mut place = 0;
        loop {
            let start = records.cursor.offset() as usize;
            // A batch is made of records that decode.
            let Some(Ok(record)) = records.next() else { break };
            if let Some(index) = pointer(place) {
                out.copy(self, from, start)?;
                out.put_blob_index(record.cf, record.key, index)?;
                from = records.cursor.offset() as usize;
            }
            place += 1;
        }
        out.copy(self, from, self.bytes.len())?;
        out.set_sequence(self.sequence());
        out.set_count(self.count());
        Ok(())
    }

    /// Appends the bytes of `other` from `from` to `to`, whatever they are.
    fn copy(&mut self, other: &Self, from: usize, to: usize) -> Result<(), TooLarge> {
        let bytes = other.bytes.get(from..to).unwrap_or_default();
        self.check_room(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn add(
        &mut self,
        short: ValueKind,
        named: ValueKind,
        cf: u32,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), TooLarge> {
        TooLarge::check("key", key.len(), KEY_BYTES_MAX)?;
        let value_bytes = value.map_or(0, <[u8]>::len);
        TooLarge::check("value", value_bytes, VALUE_BYTES_MAX)?;
        let bytes_max = 1 + 3 * varint::VARINT32_BYTES_MAX + key.len() + value_bytes;
        self.check_room(bytes_max)?;
        let count = self.count_after(1)?;
        self.bytes.reserve(bytes_max);
        if cf == 0 {
            self.bytes.push(short.as_u8());
        } else {
            self.bytes.push(named.as_u8());
            varint::put_u32(&mut self.bytes, cf);
        }
        varint::put_prefixed(&mut self.bytes, key);
        if let Some(value) = value {
            varint::put_prefixed(&mut self.bytes, value);
        }
        self.set_count(count);
        Ok(())
    }

    #[inline]
    fn check_room(&self, added_bytes: usize) -> Result<(), TooLarge> {
        TooLarge::check("batch", self.bytes.len().saturating_add(added_bytes), BATCH_BYTES_MAX)
    }

    #[inline]
    fn count_after(&self, added: u32) -> Result<u32, TooLarge> {
        let count = self.count();
        count.checked_add(added).ok_or(TooLarge {
            field: "batch",
            bytes: u64::from(count) + u64::from(added),
            limit_bytes: u64::from(BATCH_COUNT_MAX),
            unit: "operations",
        })
    }
}

#[cfg(test)]
mod tests;
