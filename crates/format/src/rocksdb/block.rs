//! Blocks of a table: sorted keys and values, keys shortened by what they share with the key before.
//!
//! | part             | bytes     | meaning                                                                          |
//! |------------------|-----------|----------------------------------------------------------------------------------|
//! | entries          |           | one after the other, see below                                                   |
//! | restarts         | 4 n       | u32 LE each: where an entry lies that shares nothing, ascending                  |
//! | hash index       | b + 2     | only with bit 31 of the footer: b buckets, u16 LE b; not needed to read, skipped |
//! | footer           | 4         | u32 LE: n in the low 28 bits, flags above                                        |
//!
//! | footer bit | meaning                                                                |
//! |-----------:|------------------------------------------------------------------------|
//! |         31 | a hash index goes before the footer                                    |
//! |         30 | not known: unsupported                                                 |
//! |         29 | restart keys lie evenly: a hint, ignored                               |
//! |         28 | values lie apart from keys: see [`put_together`]                       |
//!
//! An entry:
//!
//! | field     | type     | meaning                                                                             |
//! |-----------|----------|-------------------------------------------------------------------------------------|
//! | shared    | varint32 | bytes of the key before that this key begins with; 0 at restarts                    |
//! | unshared  | varint32 | bytes of key that follow                                                            |
//! | value len | varint32 | bytes of value that follow; absent where values are handles                         |
//! | key       | bytes    |                                                                                     |
//! | value     | bytes    | where values are handles: offset and size (varint64 both) if `shared` is 0, otherwise how much longer the block is than the one before (zigzag varint64), which it follows |
//!
//! An index with first keys has a key, with its varint32 length before it, behind each handle.
//!
//! Data blocks restart every 16 entries, index blocks at each, the metaindex at each, properties never.
//!
//! Source: RocksDB `table/block_based/{block_builder,block,data_block_footer,data_block_hash_index,index_builder}.cc`.

mod apart;
mod build;
mod cursor;
mod directory;
mod index;
mod seek;
#[cfg(test)]
mod tests;

pub use apart::put_together;
pub use build::{BlockBuilder, IndexBuilder};
pub use cursor::BlockCursor;
pub use directory::BlockDirectory;
pub use index::{IndexCursor, IndexFormat};
pub use seek::KeyOrder;

use crate::error::DecodeError;

const WORD_BYTES: usize = 4;
/// Of a key, in a directory.
const KEY_WORD_BYTES: usize = 4;
const RESTART_COUNT_MASK: u32 = (1 << 28) - 1;
const HASH_INDEX_BIT: u32 = 1 << 31;
const UNKNOWN_BIT: u32 = 1 << 30;
const SEPARATE_VALUES_BIT: u32 = 1 << 28;

/// Where the parts of a block lie. A few words, valid for the bytes that it was parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockLayout {
    entries_bytes: usize,
    restart_count: usize,
}

impl BlockLayout {
    /// Reads the footer of `block`. Costs a few loads; entries are checked as a cursor passes them.
    ///
    /// # Errors
    /// Corrupt if the parts do not fit; unsupported if the footer has a flag that is not known here, or values lie apart still
    /// ([`put_together`]).
    pub fn parse(block: &[u8]) -> Result<Self, DecodeError> {
        let at = block.len().saturating_sub(WORD_BYTES);
        let Some((rest, footer)) = block.split_last_chunk::<WORD_BYTES>() else {
            return Err(DecodeError::corrupt("footer", 0, format!("the block has {} bytes", block.len())));
        };
        let footer = u32::from_le_bytes(*footer);
        if footer & (UNKNOWN_BIT | SEPARATE_VALUES_BIT) != 0 {
            return Err(DecodeError::unsupported(
                "footer",
                at as u64,
                format!("flags of {footer:#010x} are not known"),
            ));
        }
        let rest = if footer & HASH_INDEX_BIT == 0 { rest } else { without_hash_index(rest)? };
        let restart_count = (footer & RESTART_COUNT_MASK) as usize;
        let Some(entries_bytes) = rest.len().checked_sub(restart_count * WORD_BYTES) else {
            let reason = format!("{restart_count} restarts do not fit into {} bytes", block.len());
            return Err(DecodeError::corrupt("footer", at as u64, reason));
        };
        if restart_count == 0 && entries_bytes > 0 {
            return Err(DecodeError::corrupt("footer", at as u64, "entries, but no restarts"));
        }
        Ok(Self { entries_bytes, restart_count })
    }

    /// Bytes of entries: they lie at the front of the block.
    pub const fn entries_bytes(&self) -> usize {
        self.entries_bytes
    }

    /// How many restarts there are.
    pub const fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// Where the entry of restart `index` lies.
    #[inline]
    fn restart(&self, block: &[u8], index: usize) -> Result<usize, DecodeError> {
        let at = self.entries_bytes + index * WORD_BYTES;
        match block.get(at..).and_then(|rest| rest.first_chunk::<WORD_BYTES>()) {
            Some(word) => Ok(u32::from_le_bytes(*word) as usize),
            None => Err(DecodeError::corrupt("restarts", at as u64, "beyond the block")),
        }
    }
}

fn without_hash_index(rest: &[u8]) -> Result<&[u8], DecodeError> {
    let bad = || DecodeError::corrupt("hash index", rest.len() as u64, "its buckets do not fit into the block");
    let (rest, count) = rest.split_last_chunk::<2>().ok_or_else(bad)?;
    let count = usize::from(u16::from_le_bytes(*count));
    rest.len().checked_sub(count).and_then(|len| rest.get(..len)).ok_or_else(bad)
}
