//! How the keys of a data block in bytewise order begin, and where its entries lie, side by side in memory: a search touches a few cache lines
//! where one in the block itself misses at every restart and entry that it looks at.
//!
//! - D1: words are in the order of the entries, because keys are, and all begin with `common`.
//! - D2: an entry is in the directory only if what it shares with the key before lies within `common` and its own word:
//!   then its key is known without the entries before it. The first entry of a block shares nothing and is always in.
//!
//! Cost: six bytes an entry, of as many entries as a sixteenth of the block has room for, in one piece: what a search looks at is on
//! its way from memory at once.

use crate::error::DecodeError;
use crate::rocksdb::internal_key;
use crate::rocksdb::order::Order;

use super::cursor::BlockCursor;
use super::seek::KeyOrder;
use super::{BlockLayout, KEY_WORD_BYTES};

const PLACE_BYTES: usize = size_of::<u16>();
/// A word and a place.
const ENTRY_BYTES: usize = KEY_WORD_BYTES + PLACE_BYTES;

/// See the module's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDirectory {
    layout: BlockLayout,
    /// - the four bytes that follow `common` in each user key, zeroes after a key's end;
    /// - where the entries lie, two bytes each;
    /// - `common`, what all user keys begin with.
    memory: Box<[u8]>,
    /// How many entries are in it.
    count: u32,
    /// Whether every entry is in it.
    is_full: bool,
}

impl BlockDirectory {
    /// The most memory that the directory of a block takes.
    pub const fn bytes_max(block_bytes: usize) -> usize {
        block_bytes / 16
    }

    /// Of a block of internal keys; `None` if it does not decode, which is told when it is searched, or if it is too large, or
    /// too small to gain by it.
    pub fn of(block: &[u8]) -> Option<Self> {
        let layout = BlockLayout::parse(block).ok()?;
        u16::try_from(layout.entries_bytes()).ok()?;
        let mut cursor = BlockCursor::new(layout);
        cursor.seek_to_first(block).ok()?;
        let first = internal_key::user_key(cursor.key()).to_vec();
        let mut count = 0;
        let mut common_bytes = first.len();
        while cursor.valid() {
            let key = internal_key::user_key(cursor.key());
            // Keys are in order where a block is sound, but it costs little not to count on it.
            common_bytes = first.iter().zip(key).take(common_bytes).take_while(|(a, b)| a == b).count();
            count += 1;
            cursor.next(block).ok()?;
        }
        let room = Self::bytes_max(block.len()).checked_sub(common_bytes)? / ENTRY_BYTES;
        if count < 4 || room < 2 {
            return None;
        }
        let stride = usize::div_ceil(count, room);
        let (mut words, mut places) = (Vec::with_capacity(room * ENTRY_BYTES + common_bytes), Vec::new());
        // Entries to pass before the next one is taken.
        let mut left = 0;
        cursor.seek_to_first(block).ok()?;
        while cursor.valid() {
            let key = internal_key::user_key(cursor.key());
            let known_bytes = key.len().min(common_bytes + KEY_WORD_BYTES);
            if left == 0 && cursor.shared(block)? <= known_bytes {
                words.extend_from_slice(&word(key, common_bytes).to_be_bytes());
                places.extend_from_slice(&u16::try_from(cursor.entry_offset()).ok()?.to_ne_bytes());
                left = stride;
            }
            left = left.saturating_sub(1);
            cursor.next(block).ok()?;
        }
        let taken = words.len() / KEY_WORD_BYTES;
        let mut memory = words;
        memory.extend_from_slice(&places);
        memory.extend_from_slice(first.get(..common_bytes)?);
        Some(Self { layout, memory: memory.into(), count: u32::try_from(taken).ok()?, is_full: taken == count })
    }

    /// All that a search looks at, for who wants it at hand.
    #[inline]
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Words, places and what all user keys begin with.
    #[inline]
    fn parts(&self) -> (&[[u8; KEY_WORD_BYTES]], &[[u8; PLACE_BYTES]], &[u8]) {
        let count = self.count as usize;
        let (words, rest) = self.memory.split_at_checked(count * KEY_WORD_BYTES).unwrap_or_default();
        let (places, common) = rest.split_at_checked(count * PLACE_BYTES).unwrap_or_default();
        (words.as_chunks().0, places.as_chunks().0, common)
    }

    /// The entry to begin at on the way to `user_key`: it is not behind the first that is not before it. Its place, and what its user key
    /// begins with.
    #[inline]
    fn start(&self, user_key: &[u8]) -> Option<(usize, [&[u8]; 2])> {
        let (words, places, common) = self.parts();
        let last = words.len().saturating_sub(1);
        let index = if user_key.starts_with(common) {
            let wanted = word(user_key, common.len());
            let at = words.partition_point(|&word| u32::from_be_bytes(word) < wanted);
            if self.is_full { at.min(last) } else { at.saturating_sub(1) }
        } else if user_key < common {
            0
        } else {
            last
        };
        // Words are as the key has them, so that one of the entry's is a part of it.
        Some((u16::from_ne_bytes(*places.get(index)?).into(), [common, words.get(index)?]))
    }
}

/// The four bytes of `key` from `from` on.
#[inline]
fn word(key: &[u8], from: usize) -> u32 {
    let rest = key.get(from..).unwrap_or_default();
    match rest.first_chunk::<KEY_WORD_BYTES>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; KEY_WORD_BYTES];
            bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u32::from_be_bytes(bytes)
        }
    }
}

impl BlockCursor {
    /// As [`reset`](Self::reset) and [`seek`](Self::seek) to the internal key `target`, with the directory of the same block.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek_with(&mut self, directory: &BlockDirectory, block: &[u8], target: &[u8]) -> Result<(), DecodeError> {
        self.reset(directory.layout);
        let Some((place, known)) = directory.start(internal_key::user_key(target)) else {
            return self.seek(block, target, KeyOrder::Internal(Order::BYTEWISE));
        };
        // D2: nothing else is needed of the keys before.
        self.pass_from(block, target, place, known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockBuilder;
    use super::*;
    use crate::rocksdb::internal_key::SequenceNumber;

    fn random_keys(random: &mut fastrand::Rng, set: usize) -> Vec<Vec<u8>> {
        let count = [1, 3, 40, 300][random.usize(..4)];
        let mut keys: Vec<Vec<u8>> = (0..count)
            .map(|_| match set {
                0 => format!("user/{:010}", random.u32(..100_000)).into_bytes(),
                // Short ones, and such as are the beginning of others.
                1 => (0..random.usize(..6)).map(|_| [0, 1, 0xff][random.usize(..3)]).collect(),
                2 => [b"common", [b'x'; 40].get(..random.usize(..40)).unwrap_or_default()].concat(),
                _ => (0..16).map(|_| random.u8(..)).collect(),
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn a_search_with_the_directory_ends_where_a_search_of_the_block_does() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut full, mut partial) = (0, 0);
        for round in 0..400 {
            let keys = random_keys(&mut random, round % 4);
            let mut builder = BlockBuilder::new([1, 2, 16, 1000][random.usize(..4)]);
            let value_bytes = [0, 10, 200][random.usize(..3)];
            for key in &keys {
                let newest = random.u64(1..=3);
                for sequence in (1..=newest).rev() {
                    let lookup = internal_key::lookup(key, SequenceNumber::new(sequence * 2));
                    builder.add(&lookup, &vec![sequence as u8; value_bytes]);
                }
            }
            let block = builder.finish().to_vec();
            let Some(directory) = BlockDirectory::of(&block) else { continue };
            let bytes = directory.memory().len();
            assert!(bytes <= BlockDirectory::bytes_max(block.len()), "{bytes} of {}", block.len());
            if directory.is_full {
                full += 1
            } else {
                partial += 1
            }
            let changed = |key: &Vec<u8>| {
                let before = key.split_last().map(|(_, before)| before.to_vec()).unwrap_or_default();
                [key.clone(), [key.as_slice(), &[0]].concat(), [key.as_slice(), b"~"].concat(), before]
            };
            let others = [Vec::new(), vec![0xff; 20], b"common".to_vec(), b"us".to_vec(), vec![0]];
            for wanted in keys.iter().flat_map(changed).chain(others) {
                for sequence in [0, 1, 2, 3, 4, 7] {
                    let target = internal_key::lookup(&wanted, SequenceNumber::new(sequence));
                    let mut plain = BlockCursor::new(directory.layout);
                    plain.seek(&block, &target, KeyOrder::Internal(Order::BYTEWISE)).unwrap();
                    let mut cursor = BlockCursor::default();
                    cursor.seek_with(&directory, &block, &target).unwrap();
                    assert_eq!(cursor.valid(), plain.valid(), "{wanted:?} of {keys:?}");
                    assert_eq!((cursor.key(), cursor.value(&block)), (plain.key(), plain.value(&block)), "{wanted:?}");
                    cursor.next(&block).unwrap();
                    plain.next(&block).unwrap();
                    assert_eq!(cursor.key(), plain.key(), "and goes on");
                }
            }
        }
        assert!(full > 10 && partial > 100, "{full} and {partial}");
    }

    #[test]
    fn blocks_that_do_not_decode_have_none_and_any_directory_gives_no_panic() {
        let keys = random_keys(&mut fastrand::Rng::with_seed(2), 0);
        let mut builder = BlockBuilder::new(4);
        keys.iter()
            .for_each(|key| builder.add(&internal_key::lookup(key, SequenceNumber::new(1)), b"0123456789012345"));
        let block = builder.finish().to_vec();
        let directory = BlockDirectory::of(&block);
        for at in 0..block.len() {
            let mut damaged = block.clone();
            damaged[at] ^= 0x81;
            let _ = BlockDirectory::of(&damaged);
            if let Some(directory) = &directory {
                let target = internal_key::lookup(&keys[keys.len() / 2], SequenceNumber::new(1));
                let _ = BlockCursor::default().seek_with(directory, &damaged, &target);
                let _ = BlockCursor::default().seek_with(directory, &damaged[..at], &target);
            }
        }
        assert_eq!(BlockDirectory::of(b""), None);
    }
}
