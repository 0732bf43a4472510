//! The beginnings of an index's separators, side by side in memory: a binary search touches few cache lines where one in
//! the index block itself misses at every step.
//!
//! - F1: words are in the order of the separators, because separators are and all begin with `common`. There are none where keys do not lie by their
//!   bytes.
//!
//! Cost: eight bytes a restart of the index, one a block as Esker and RocksDB write it.

use std::ops::Range;

use esker_format::DecodeError;
use esker_format::rocksdb::block::{BlockLayout, IndexCursor, IndexFormat};
use esker_format::rocksdb::order::head;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// What the user keys of all separators begin with.
    common: Box<[u8]>,
    /// What follows it in each, as a big-endian number; zeroes after a key's end.
    words: Box<[u64]>,
}

impl Fences {
    /// Of the index `block`.
    ///
    /// # Errors
    /// Corrupt if a restart of it does not decode.
    pub(super) fn of(block: &[u8], layout: BlockLayout, format: IndexFormat) -> Result<Self, DecodeError> {
        let cursor = IndexCursor::new(layout, format);
        // A block without entries may have a restart all the same.
        let count = if layout.entries_bytes() == 0 { 0 } else { layout.restart_count() };
        let Some(last) = count.checked_sub(1).filter(|_| format.order.is_bytewise()) else {
            return Ok(Self::default());
        };
        // The keys are in order, so what the first and the last share, all share.
        let (first, last) = (cursor.restart_user_key(block, 0)?, cursor.restart_user_key(block, last)?);
        let common_bytes = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let words = (0..count).map(|index| Ok(word(cursor.restart_user_key(block, index)?, common_bytes)));
        let words = words.collect::<Result<_, DecodeError>>()?;
        Ok(Self { common: first.get(..common_bytes).unwrap_or_default().into(), words })
    }

    /// The restarts that `user_key` may lie at: those before are before it, those behind are behind it.
    #[inline]
    pub(super) fn around(&self, user_key: &[u8]) -> Range<usize> {
        if self.words.is_empty() {
            return 0..usize::MAX;
        }
        if !user_key.starts_with(&self.common) {
            let end = if user_key < &*self.common { 0 } else { self.words.len() };
            return end..end;
        }
        let wanted = word(user_key, self.common.len());
        let start = self.words.partition_point(|&word| word < wanted);
        let same = self.words.get(start..).unwrap_or_default();
        // Nearly always one or none.
        let count = match same {
            [] => 0,
            [first, ..] if *first != wanted => 0,
            [_, second, ..] if *second == wanted => same.partition_point(|&word| word == wanted),
            _ => 1,
        };
        start..start + count
    }

    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.common.len() + size_of_val(&*self.words)
    }
}

/// The eight bytes of `key` from `from` on.
#[inline]
fn word(key: &[u8], from: usize) -> u64 {
    head(key.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use esker_format::rocksdb::block::IndexBuilder;
    use esker_format::rocksdb::internal_key::{self, SequenceNumber};
    use esker_format::rocksdb::order::Order;
    use esker_format::rocksdb::table::BlockHandle;

    use super::*;

    const FORMATS: [IndexFormat; 2] = [
        IndexFormat { delta_encoded: true, user_keys: true, first_keys: false, order: Order::BYTEWISE },
        IndexFormat { delta_encoded: false, user_keys: false, first_keys: false, order: Order::BYTEWISE },
    ];

    fn keys(set: usize) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = match set {
            0 => Vec::new(),
            1 => vec![b"one".to_vec()],
            2 => (0..500u32).map(|n| format!("user/{:08}", n * 7).into_bytes()).collect(),
            // Short keys, keys that are the beginning of others, keys that differ only behind the word.
            _ => (0..300usize).map(|n| [&b"p"[..], &vec![n as u8 % 3; n % 14]].concat()).collect(),
        };
        keys.sort();
        keys.dedup();
        keys
    }

    fn index_of(keys: &[Vec<u8>], restart_interval: usize, format: IndexFormat) -> Vec<u8> {
        let mut builder = IndexBuilder::new(restart_interval, format.delta_encoded);
        let mut offset = 0;
        for (key, bytes) in keys.iter().zip(100..) {
            let separator = if format.user_keys { key.clone() } else { internal_key::lookup(key, NUMBER) };
            builder.add(&separator, BlockHandle { offset, bytes });
            offset += bytes + 5;
        }
        builder.finish().to_vec()
    }

    const NUMBER: SequenceNumber = SequenceNumber::new(7);

    #[test]
    fn a_search_between_fences_ends_where_a_search_of_the_whole_index_does() {
        for (set, restart_interval, format) in
            (0..4).flat_map(|set| [1, 3].map(|interval| FORMATS.map(|format| (set, interval, format)))).flatten()
        {
            let keys = keys(set);
            let block = index_of(&keys, restart_interval, format);
            let layout = BlockLayout::parse(&block).unwrap();
            let fences = Fences::of(&block, layout, format).unwrap();
            let changed =
                |key: &Vec<u8>| [key.clone(), [key.as_slice(), &[0]].concat(), [key.as_slice(), b"~"].concat()];
            let others =
                [Vec::new(), vec![0xff; 20], b"p".to_vec(), b"us".to_vec(), b"user/0".to_vec(), b"one".to_vec()];
            for wanted in keys.iter().flat_map(changed).chain(others) {
                for sequence in [SequenceNumber::new(0), NUMBER, SequenceNumber::MAX] {
                    let target = internal_key::lookup(&wanted, sequence);
                    let (mut whole, mut between) = (IndexCursor::new(layout, format), IndexCursor::new(layout, format));
                    whole.seek(&block, &target).unwrap();
                    between.seek_within(&block, &target, fences.around(&wanted)).unwrap();
                    assert_eq!(between.valid(), whole.valid(), "set {set}, {wanted:?}");
                    assert_eq!(between.separator(), whole.separator(), "set {set}, {wanted:?}");
                    if whole.valid() {
                        assert_eq!(between.handle(&block).unwrap(), whole.handle(&block).unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn fences_of_evenly_spread_keys_leave_one_restart_at_most() {
        let keys = keys(2);
        let block = index_of(&keys, 1, FORMATS[0]);
        let fences = Fences::of(&block, BlockLayout::parse(&block).unwrap(), FORMATS[0]).unwrap();
        assert!(keys.iter().all(|key| fences.around(key).len() == 1));
        assert_eq!(fences.around(b"user/00000003").len(), 0);
        assert_eq!(fences.memory_bytes(), 8 * keys.len() + "user/0000".len());
    }
}
