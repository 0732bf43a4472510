//! Positions in a memtable, and entries kept beyond it.
//!
//! - P1: an entry is of the memtable whose `Arc` is kept beside it, so it is alive.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::Memtable;
use super::skip_list::{Detached, Entry};
use crate::Result;
use crate::iterate::InternalIterator;
use crate::pinned::PinnedSlice;

/// An entry, and the memtable that it keeps alive.
#[derive(Clone)]
pub(crate) struct PinnedEntry {
    entry: Detached,
    _memtable: Arc<Memtable>,
}

impl PinnedEntry {
    /// The value.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        // SAFETY: P1, for as long as `self` is borrowed.
        unsafe { self.entry.attach() }.value()
    }
}

impl fmt::Debug for PinnedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedEntry").field("value", &self.value()).finish_non_exhaustive()
    }
}

/// The value of `entry`, which is of `memtable`. An empty value pins nothing.
#[inline]
pub(super) fn pin(memtable: &Arc<Memtable>, entry: Entry<'_>) -> PinnedSlice {
    if entry.value().is_empty() {
        return PinnedSlice::default();
    }
    PinnedSlice::from_memtable(PinnedEntry { entry: entry.detach(), _memtable: memtable.clone() })
}

/// A position among the entries of a memtable, which may grow meanwhile: what is added is met if it lies ahead.
///
/// Cost: [`next`](InternalIterator::next) follows one link; [`prev`](InternalIterator::prev) is a search. No step fails.
pub(crate) struct MemtableIterator {
    entry: Option<Detached>,
    memtable: Arc<Memtable>,
}

impl MemtableIterator {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        Self { entry: None, memtable }
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: P1, for as long as `self` is borrowed.
        self.entry.map(|entry| unsafe { entry.attach() })
    }
}

impl InternalIterator for MemtableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.entry = self.memtable.list.first().map(Entry::detach);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.entry = self.memtable.list.last().map(Entry::detach);
        Ok(())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.entry = self.memtable.list.first_at_or_after(target).map(Entry::detach);
        Ok(())
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.entry = self.memtable.list.last_at_or_before(target).map(Entry::detach);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.entry = self.entry().and_then(Entry::next).map(Entry::detach);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.entry = self.entry().and_then(|entry| self.memtable.list.last_before(entry.key())).map(Entry::detach);
        Ok(())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().map_or(&[], Entry::key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry().map_or(&[], Entry::value)
    }

    fn pinned_value(&self) -> PinnedSlice {
        self.entry().map(|entry| pin(&self.memtable, entry)).unwrap_or_default()
    }

    fn place(&self) -> Option<(&Path, Option<u64>)> {
        None
    }
}
