//! The one face of everything that holds internal keys in order: a memtable, a table, a level, a merge of them.

use std::path::Path;

use esker_format::rocksdb::internal_key::SequenceNumber;

use crate::Result;
use crate::pinned::PinnedSlice;

/// From one user key on, and before another; `None`: from the first, to the last.
pub(crate) type Bounds<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A position in a sorted run of internal keys. After an error it is not valid.
pub(crate) trait InternalIterator: Send {
    /// Whether it stands on an entry.
    fn valid(&self) -> bool;
    /// To the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// To the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// To the first entry at or after `target`, an internal key.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// To the last entry at or before `target`, an internal key.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()>;
    /// To the entry after; only when valid.
    fn next(&mut self) -> Result<()>;
    /// To the entry before; only when valid.
    fn prev(&mut self) -> Result<()>;
    /// The internal key; empty unless valid.
    fn key(&self) -> &[u8];
    /// The value; empty unless valid.
    fn value(&self) -> &[u8];
    /// The value, sharing the block or memtable that holds it.
    fn pinned_value(&self) -> PinnedSlice;
    /// Going on, past entries within the `bounds` that are all older than `sequence`, if it stands among such and can tell
    /// without looking at each; `false`: it stands where it stood. Only when valid.
    fn skip(&mut self, sequence: SequenceNumber, bounds: Bounds<'_>, forward: bool) -> Result<bool> {
        let _ = (sequence, bounds, forward);
        Ok(false)
    }
    /// Which table the entry lies in and where its block begins, as far as that is known: for errors.
    fn place(&self) -> Option<(&Path, Option<u64>)>;
}
