//! Reads index blocks.

use std::ops::Range;

use crate::error::DecodeError;
use crate::rocksdb::internal_key;
use crate::rocksdb::order::Order;
use crate::rocksdb::table::BlockHandle;

use super::BlockLayout;
use super::cursor::{BlockCursor, ValueEncoding};
use super::seek::KeyOrder;

/// How a table's index is written; its properties say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexFormat {
    /// Handles are differences to the one before (`rocksdb.index.value.is.delta.encoded`).
    pub delta_encoded: bool,
    /// Separators are user keys, without a tag (`rocksdb.index.key.is.user.key`).
    pub user_keys: bool,
    /// A handle is followed by the first key of its block, which is not used ([`BinarySearchWithFirstKey`]).
    ///
    /// [`BinarySearchWithFirstKey`]: crate::rocksdb::table::IndexType::BinarySearchWithFirstKey
    pub first_keys: bool,
    /// The order of the user keys.
    pub order: Order,
}

/// A position in an index block: a separator, and the handle of the block whose keys are not behind it.
#[derive(Debug, Clone, Default)]
pub struct IndexCursor {
    cursor: BlockCursor,
    format: IndexFormat,
}

impl IndexCursor {
    /// Before any entry of an index block with this layout.
    pub fn new(layout: BlockLayout, format: IndexFormat) -> Self {
        Self { cursor: BlockCursor::with_encoding(layout, encoding(format)), format }
    }

    /// The same for another block of the same or another table, keeping the key's buffer.
    #[inline]
    pub fn reset(&mut self, layout: BlockLayout, format: IndexFormat) {
        self.cursor.reset_encoding(layout, encoding(format));
        self.format = format;
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub const fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The separator: a user key or an internal key, as the format says; empty unless valid.
    #[inline]
    pub fn separator(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The handle.
    ///
    /// # Errors
    /// Corrupt if it does not decode, or if the cursor is not valid.
    #[inline]
    pub fn handle(&self, block: &[u8]) -> Result<BlockHandle, DecodeError> {
        if !self.valid() {
            return Err(DecodeError::corrupt("handle", 0, "not at an entry"));
        }
        if self.format.delta_encoded {
            return Ok(self.cursor.handle());
        }
        let at = self.cursor.value_range().start as u64;
        BlockHandle::decode(self.cursor.value(block)).map(|(handle, _)| handle).map_err(|error| error.at_base(at))
    }

    /// To the first block, if there is one.
    ///
    /// # Errors
    /// Corrupt, naming the field of the first entry that does not decode.
    pub fn seek_to_first(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.cursor.seek_to_first(block)
    }

    /// To the last block, if there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.cursor.seek_to_last(block)
    }

    /// To the first block that may hold a key not before the internal key `target`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek(&mut self, block: &[u8], target: &[u8]) -> Result<(), DecodeError> {
        self.seek_within(block, target, 0..usize::MAX)
    }

    /// As [`seek`](Self::seek) for one who knows that the restarts before `restarts` are before `target` and those behind
    /// it are not.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek_within(&mut self, block: &[u8], target: &[u8], restarts: Range<usize>) -> Result<(), DecodeError> {
        if self.format.user_keys {
            self.cursor.seek_within(block, internal_key::user_key(target), KeyOrder::User(self.format.order), restarts)
        } else {
            self.cursor.seek_within(block, target, KeyOrder::Internal(self.format.order), restarts)
        }
    }

    /// The user key in the separator of restart `index`, in place.
    ///
    /// # Errors
    /// Corrupt if there is no such restart, or its entry does not decode.
    #[inline]
    pub fn restart_user_key<'a>(&self, block: &'a [u8], index: usize) -> Result<&'a [u8], DecodeError> {
        let separator = self.cursor.restart_key(block, index)?;
        Ok(if self.format.user_keys { separator } else { internal_key::user_key(separator) })
    }

    /// To the block after, if there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn next(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.cursor.next(block)
    }

    /// To the block before, if there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.cursor.prev(block)
    }
}

const fn encoding(format: IndexFormat) -> ValueEncoding {
    match format {
        IndexFormat { delta_encoded: false, .. } => ValueEncoding::Prefixed,
        IndexFormat { first_keys: true, .. } => ValueEncoding::HandleAndKey,
        IndexFormat { .. } => ValueEncoding::Handle,
    }
}
