//! Range deletions as tables have them; what they do is for [`range_deletions`](crate::range_deletions) to say.
//!
//! They lie in a block of their own. A key of it is the internal key at which a range begins, its value the user key before which it ends;
//! ranges may overlap.
//!
//! Source: RocksDB `table/block_based/block_based_table_builder.cc`, `db/range_tombstone_fragmenter.cc`.

use esker_format::DecodeError;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout};
use esker_format::rocksdb::internal_key::{InternalKey, SequenceNumber, TAG_BYTES, ValueKind};

use super::Table;
use crate::range_deletions::RangeDeletion;

impl RangeDeletion {
    /// Those of a table, from their block. In one that was `taken_in` they count from then.
    ///
    /// # Errors
    /// Corrupt if one does not decode.
    pub(crate) fn decode_all(
        block: &[u8],
        taken_in: Option<SequenceNumber>,
    ) -> std::result::Result<Box<[Self]>, DecodeError> {
        let mut found = Vec::new();
        let mut cursor = BlockCursor::new(BlockLayout::parse(block)?);
        cursor.seek_to_first(block)?;
        while cursor.valid() {
            let key = InternalKey::decode(cursor.key())?;
            if key.kind != ValueKind::RangeDeletion {
                let reason = format!("an entry of kind {:?} among range deletions", key.kind);
                return Err(DecodeError::corrupt("range deletions", 0, reason));
            }
            if taken_in.is_some() && key.sequence != SequenceNumber::default() {
                let reason = format!("one of a table that was taken in has a sequence number, {}", key.sequence);
                return Err(DecodeError::corrupt("range deletions", 0, reason));
            }
            let (begin, end) = (key.user_key.into(), cursor.value(block).into());
            found.push(Self { begin, end, sequence: taken_in.unwrap_or(key.sequence) });
            cursor.next(block)?;
        }
        Ok(found.into())
    }

    /// What a writer adds to its sums of keys and values for it.
    pub(crate) fn raw_bytes(&self) -> (u64, u64) {
        ((self.begin.len() + TAG_BYTES) as u64, self.end.len() as u64)
    }
}

impl Table {
    /// As they lie in it: they may reach beyond what a version has it for (RD2 of [`range_deletions`](crate::range_deletions)).
    pub(crate) fn range_deletions(&self) -> &[RangeDeletion] {
        &self.range_deletions
    }
}

#[cfg(test)]
mod tests {
    use esker_format::rocksdb::block::BlockBuilder;
    use esker_format::rocksdb::internal_key;

    use super::*;

    /// Goal: damage of a range deletion is damage.
    #[test]
    fn a_range_deletion_that_is_none_is_refused() {
        let mut block = BlockBuilder::new(1);
        let key = |kind| {
            let mut key = Vec::new();
            internal_key::append(&mut key, b"a", SequenceNumber::new(7), kind);
            key
        };
        block.add(&key(ValueKind::RangeDeletion), b"c");
        let raw = block.finish().to_vec();
        let found = RangeDeletion::decode_all(&raw, None).unwrap();
        let expected = RangeDeletion { begin: b"a"[..].into(), end: b"c"[..].into(), sequence: SequenceNumber::new(7) };
        assert_eq!(*found, [expected]);
        assert!(RangeDeletion::decode_all(&raw, Some(SequenceNumber::new(9))).is_err());
        assert!(RangeDeletion::decode_all(b"", None).is_err());
        let mut block = BlockBuilder::new(1);
        block.add(&key(ValueKind::Value), b"c");
        assert!(RangeDeletion::decode_all(block.finish(), None).is_err());
    }
}
