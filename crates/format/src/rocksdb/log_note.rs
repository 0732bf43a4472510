//! What one log says of the one before it: a batch without operations, whose only record is a note (`LogData`), which RocksDB
//! reads past.
//!
//! | offset | bytes | field | type   | meaning                                                                       |
//! |-------:|------:|-------|--------|-------------------------------------------------------------------------------|
//! |      0 |     9 | name  | bytes  | `esker.log`                                                                   |
//! |      9 |     1 | kind  | u8     | 1: the log was not durable when this one began; 2: it is durable since        |
//! |     10 |     8 | log   | u64 LE | its number                                                                    |
//! |     18 |     8 | end   | u64 LE | where its next record would have gone                                         |
//!
//! A log whose first record is a note of kind 1 counts only as far as the one before it is there up to `end`. After a note
//! of kind 2 no power loss can have taken anything of that log.

use super::internal_key::{FileNumber, SequenceNumber, ValueKind};
use super::write_batch::{self, WriteBatch};
use crate::cursor::Cursor;
use crate::limits::TooLarge;

const NAME: &[u8; 9] = b"esker.log";
/// The table above.
const LEN_BYTES: usize = 26;
const FOLLOWS: u8 = 1;
const DURABLE: u8 = 2;

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogNote {
    /// The log that it is about.
    pub log: FileNumber,
    /// Where that one's next record would have gone.
    pub end: u64,
    /// Whether it was known to be durable.
    pub is_durable: bool,
}

impl LogNote {
    /// As the log holds it; `next` is the sequence number that the next write gets.
    ///
    /// # Errors
    /// None, as a note is short.
    pub fn to_batch(self, next: SequenceNumber) -> Result<WriteBatch, TooLarge> {
        let mut note = Vec::with_capacity(LEN_BYTES);
        note.extend_from_slice(NAME);
        note.push(if self.is_durable { DURABLE } else { FOLLOWS });
        note.extend_from_slice(&self.log.get().to_le_bytes());
        note.extend_from_slice(&self.end.to_le_bytes());
        let mut batch = WriteBatch::with_capacity(LEN_BYTES + 2);
        batch.set_sequence(next);
        batch.put_log_data(&note)?;
        Ok(batch)
    }

    /// The note that `batch` is; `None` if it is anything else.
    pub fn of_batch(batch: &[u8]) -> Option<Self> {
        if write_batch::header(batch).ok()?.count != 0 {
            return None;
        }
        let mut records = write_batch::records(batch);
        let record = records.next()?.ok().filter(|record| record.kind == ValueKind::LogData)?;
        if records.next().is_some() || record.key.len() != LEN_BYTES {
            return None;
        }
        let mut cursor = Cursor::new(record.key.strip_prefix(NAME)?);
        let is_durable = match cursor.u8("kind").ok()? {
            FOLLOWS => false,
            DURABLE => true,
            _ => return None,
        };
        let log = FileNumber::new(cursor.u64("log").ok()?);
        Some(Self { log, end: cursor.u64("end").ok()?, is_durable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let note = LogNote { log: FileNumber::new(7), end: 0x1234, is_durable: false };
        let batch = note.to_batch(SequenceNumber::new(5)).unwrap();
        let expected = [
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 26][..],
            b"esker.log\x01",
            &[7, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(batch.bytes(), expected);
        assert_eq!(LogNote::of_batch(&expected), Some(note));
        let durable = LogNote { is_durable: true, ..note };
        assert_eq!(LogNote::of_batch(durable.to_batch(SequenceNumber::new(5)).unwrap().bytes()), Some(durable));
    }

    #[test]
    fn other_batches_are_no_notes() {
        let note = LogNote { log: FileNumber::new(7), end: 9, is_durable: true };
        let whole = note.to_batch(SequenceNumber::new(1)).unwrap();
        for cut in 0..whole.len_bytes() {
            assert_eq!(LogNote::of_batch(&whole.bytes()[..cut]), None, "{cut}");
        }
        let mut unknown = whole.bytes().to_vec();
        unknown[14 + 9] = 3;
        assert_eq!(LogNote::of_batch(&unknown), None);
        let mut more = whole.clone();
        more.put_log_data(b"another").unwrap();
        assert_eq!(LogNote::of_batch(more.bytes()), None);
        let mut put = whole;
        put.put(0, b"key", b"value").unwrap();
        assert_eq!(LogNote::of_batch(put.bytes()), None);
    }
}
